#include "core/tensor/safetensors.h"

#include <filesystem>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/hash.h"
#include "tests/support/catch.h"
#include "tests/support/file_tensor.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_directory.h"

namespace slackline {

namespace {

using Catch::Contains;
using Catch::Equals;

const std::string kGolden = std::string(SL_SOURCE_DIR) + "/tests/golden/safetensors/";

std::string hex(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4U];
    text += kDigits[std::to_integer<unsigned>(byte) & 15U];
  }
  return text;
}

std::string upper(std::string_view name) {
  std::string text(name);
  for (char& letter : text) {
    letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  }
  return text;
}

// A file made of a header, padded by nobody, and some zero bytes of data.
std::string file_text(const std::string& header, std::size_t data_bytes) {
  std::string text(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) {
    text[i] = static_cast<char>(header.size() >> (8 * i));
  }
  return text + header + std::string(data_bytes, '\0');
}

std::string refusal(const std::string& path) {
  return testing::refusal_of<FileError>([&] { const SafetensorsFile file(path); });
}

// Where we are stricter than the reference, and with which words.
std::string own_refusal(const std::string& file) {
  static const std::map<std::string, std::string> refusals = {
      {"good_float8.safetensors", R"(got "F8_E)"},
      {"bad_header_start.safetensors", "must start with '{'"},
      {"bad_duplicate_key.safetensors", "a: key given twice"}};
  const auto found = refusals.find(file);
  return found == refusals.end() ? "" : found->second;
}

void check_contents(const SafetensorsFile& file, const nlohmann::json& expected) {
  REQUIRE(file.entries().size() == expected["tensors"].size());
  for (const auto& [name, tensor] : expected["tensors"].items()) {
    CAPTURE(name);
    const SafetensorsFile::Entry* entry = file.find(name);
    REQUIRE(entry != nullptr);
    REQUIRE(upper(name_of(entry->dtype)) == tensor["dtype"]);
    const auto dims = entry->shape.dims();
    REQUIRE(std::vector<std::int64_t>(dims.begin(), dims.end()) == tensor["shape"]);
    REQUIRE(hex(file.bytes(*entry)) == tensor["hex"]);
  }
  REQUIRE(nlohmann::json(file.metadata()) == expected.value("metadata", nlohmann::json::object()));
}

}  // namespace

TEST_CASE("safetensors files are accepted and refused as the reference implementation does") {
  const auto cases = nlohmann::json::parse(read_file(kGolden + "cases.json"));
  REQUIRE(cases.size() > 40);
  for (const nlohmann::json& expected : cases) {
    const auto file = expected["file"].get<std::string>();
    CAPTURE(file);
    if (const std::string own = own_refusal(file); !own.empty()) {
      CHECK_THAT(refusal(kGolden + file), Contains(kGolden + file) && Contains(own));
    } else if (expected["accepted"].get<bool>()) {
      check_contents(SafetensorsFile(kGolden + file), expected);
    } else {
      CHECK_THAT(refusal(kGolden + file), Contains(kGolden + file + ": "));
    }
  }
}

TEST_CASE("a refused safetensors file is told what is wrong, where, and the rule") {
  const auto golden = [](const std::string& name) {
    return refusal(kGolden + "bad_" + name + ".safetensors");
  };
  CHECK_THAT(golden("empty_file"), Contains("expected at least 8 bytes; got 0"));
  CHECK_THAT(golden("header_over_limit"), Contains("at most 100000000 bytes; the file says"));
  CHECK_THAT(golden("header_beyond_file"), Contains("truncated: header needs"));
  CHECK_THAT(golden("header_array"), Contains("must start with '{'"));
  CHECK_THAT(golden("invalid_utf8"), Contains("header: line 1") && Contains("UTF-8"));
  CHECK_THAT(golden("nul_padding"), Contains("NUL byte"));
  CHECK_THAT(golden("duplicate_field"), Contains("a.shape: key given twice"));
  CHECK_THAT(golden("missing_field"), Contains("a.shape: required key is missing"));
  CHECK_THAT(golden("hole"), Contains("tensor 'b': hole: data must start at byte"));
  CHECK_THAT(golden("overlap"), Contains("tensor 'b': overlap: data must start at byte"));
  CHECK_THAT(golden("bytes_overflow"),
             Contains("a.shape: must have at most") && Contains("2^61 elements"));
  CHECK_THAT(golden("size_mismatch"), Contains("a.data_offsets: shape and dtype need 12 bytes"));
  CHECK_THAT(golden("trailing_bytes"), Contains("bytes of no tensor: the header describes"));
  CHECK_THAT(golden("truncated"), Contains("truncated: the header describes"));
  CHECK_THAT(golden("unknown_dtype"),
             Contains("a.dtype: must be one of BOOL") && Contains("\"F33\""));
  CHECK_THAT(golden("metadata_number"), Contains("__metadata__.step: expected a string; got 3"));
}

TEST_CASE("shapes that our tensors cannot hold are refused") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a.safetensors");
  const auto refusal_of = [&](const std::string& shape) {
    write_file_atomically(
        path,
        file_text(R"({"a":{"dtype":"U8","shape":)" + shape + R"(,"data_offsets":[0,1]}})", 1));
    return refusal(path);
  };
  CHECK_THAT(refusal_of("[1]"), Equals("accepted"));
  CHECK_THAT(refusal_of("[1,1,1,1,1,1,1,1,1]"), Contains("at most 8 dimensions"));
  CHECK_THAT(refusal_of("[0,9223372036854775808]"),
             Contains("a.shape.1: must be at most 9223372036854775807"));
}

TEST_CASE("entries come in the order of the data") {
  const SafetensorsFile file(kGolden + "good_any_order.safetensors");
  for (std::size_t i = 1; i < file.entries().size(); ++i) {
    REQUIRE(file.entries()[i].begin == file.entries()[i - 1].end);
  }
}

TEST_CASE("tensors are found by name, with type, shape and elements") {
  const SafetensorsFile file(kGolden + "good_dtypes.safetensors");
  const SafetensorsFile::Entry* const entry = file.find("f32");
  REQUIRE(entry != nullptr);
  REQUIRE(entry->dtype == DType::f32);
  REQUIRE(entry->shape == Shape{2, 3});
  REQUIRE(testing::file_tensor(file, "f32").data<float>()[2] == 1.5F);
  REQUIRE(file.find("none") == nullptr);
}

TEST_CASE("tensors behind one of odd length are not aligned") {
  const SafetensorsFile file(kGolden + "good_odd_sizes.safetensors");
  REQUIRE(std::ranges::any_of(file.entries(), [&](const SafetensorsFile::Entry& entry) {
    const auto address = reinterpret_cast<std::uintptr_t>(file.bytes(entry).data());
    return address % size_of(entry.dtype) != 0;
  }));
}

TEST_CASE("files equal the reference package's byte for byte") {
  const TemporaryDirectory directory;
  for (const std::string name : {"dtypes", "unsigned", "scalar", "empty_tensor"}) {
    const std::string golden = fmt::format("{}good_{}.safetensors", kGolden, name);
    CAPTURE(golden);
    const SafetensorsFile file(golden);
    std::vector<NamedTensor> tensors;
    for (const auto& entry : file.entries()) {
      tensors.insert(tensors.begin(), {entry.name, testing::file_tensor(file, entry.name)});
    }
    const std::string path = directory.file(name);
    const FileSummary summary = write_safetensors(path, tensors, file.metadata());
    REQUIRE(read_file(path) == read_file(golden));
    REQUIRE(summary.bytes == std::filesystem::file_size(path));
    REQUIRE(summary.xxh3 == xxh3(MappedFile(path).bytes()));
  }
}

TEST_CASE("what is written is read back bit for bit, wide elements first, data aligned to 8") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a.safetensors");
  std::vector<float> large(700'000);
  std::iota(large.begin(), large.end(), -3.0F);
  std::vector<BFloat16> small = {BFloat16(1.0F), BFloat16(-2.5F), BFloat16(3e38F)};
  const std::vector<NamedTensor> tensors = {{"a", Tensor(std::span(small))},
                                            {"z \"quoted\" é", Tensor(std::span(large))}};
  const FileSummary summary =
      write_safetensors(path, tensors, {{"format", "pt"}, {"note", "x\ny"}});
  const SafetensorsFile file(path);
  REQUIRE(file.entries()[0].name == tensors[1].name);
  REQUIRE(file.entries()[1].name == "a");
  REQUIRE(file.metadata().at("note") == "x\ny");
  REQUIRE(hex(file.bytes(file.entries()[1])) == hex(std::as_bytes(std::span(small))));
  REQUIRE(std::ranges::equal(file.bytes(file.entries()[0]), std::as_bytes(std::span(large))));
  REQUIRE(reinterpret_cast<std::uintptr_t>(file.bytes(file.entries()[0]).data()) % 8 == 0);
  REQUIRE(summary.xxh3 == xxh3(MappedFile(path).bytes()));
  REQUIRE(summary.bytes == std::filesystem::file_size(path));
}

TEST_CASE("a file without tensors is a file, and a name cannot be used twice") {
  const TemporaryDirectory directory;
  write_safetensors(directory.file("a"), {});
  REQUIRE(SafetensorsFile(directory.file("a")).entries().empty());
  std::vector<float> values(1);
  const NamedTensor tensor{"x", Tensor(std::span(values))};
  REQUIRE_THROWS_AS(write_safetensors(directory.file("b"), std::vector{tensor, tensor}), Error);
  REQUIRE_FALSE(std::filesystem::exists(directory.file("b")));
}

}  // namespace slackline
