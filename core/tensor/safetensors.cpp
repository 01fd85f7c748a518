#include "core/tensor/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <tuple>
#include <unordered_set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/error.h"
#include "core/file_errors.h"
#include "core/hash.h"
#include "core/json_reader.h"
#include "core/shown_text.h"

namespace slackline {

namespace {

using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "element bytes are used as they lie");

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kLargestHeader = 100'000'000;  // bytes, the reference's limit
constexpr std::size_t kDataAlignment = 8;            // of the start of the data
constexpr std::string_view kMetadata = "__metadata__";

struct DTypeName {
  DType dtype;
  std::string_view name;
};

// In the order of the reference's writer, which puts the last first.
constexpr std::array<DTypeName, 13> kDTypeNames = {{{DType::boolean, "BOOL"},
                                                    {DType::u8, "U8"},
                                                    {DType::i8, "I8"},
                                                    {DType::i16, "I16"},
                                                    {DType::u16, "U16"},
                                                    {DType::f16, "F16"},
                                                    {DType::bf16, "BF16"},
                                                    {DType::i32, "I32"},
                                                    {DType::u32, "U32"},
                                                    {DType::f32, "F32"},
                                                    {DType::f64, "F64"},
                                                    {DType::i64, "I64"},
                                                    {DType::u64, "U64"}}};

const DTypeName& entry_of(DType dtype) {
  const auto* found = std::find_if(kDTypeNames.begin(), kDTypeNames.end(), [&](const auto& entry) {
    return entry.dtype == dtype;
  });
  SL_CHECK(found != kDTypeNames.end(), "dtype without a name in files");
  return *found;
}

SafetensorsFile::Entry read_entry(const std::string& name, JsonReader reader) {
  static const auto kNames = [] {
    std::array<std::string_view, kDTypeNames.size()> names{};
    std::ranges::transform(kDTypeNames, names.begin(), &DTypeName::name);
    return names;
  }();
  SafetensorsFile::Entry entry{.name = name,
                               .dtype = kDTypeNames[reader.choice("dtype", kNames)].dtype,
                               .shape = read_shape(reader)};
  const auto offsets = reader.integers("data_offsets", {.min = 0});
  if (offsets.size() != 2) {
    reader.fail("data_offsets", "must be two numbers");
  }
  entry.begin = static_cast<std::size_t>(offsets[0]);
  entry.end = static_cast<std::size_t>(offsets[1]);
  const std::size_t bytes = entry.shape.num_elements() * size_of(entry.dtype);
  if (entry.begin > entry.end || entry.end - entry.begin != bytes) {
    reader.fail("data_offsets", fmt::format("shape and dtype need {} bytes between them", bytes));
  }
  return entry;
}

std::string make_header(std::span<const NamedTensor> tensors,
                        const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  auto& members = header.get_ref<Json::object_t&>();  // appended to without a search each
  if (!metadata.empty()) {
    members.push_back({std::string(kMetadata), Json(metadata)});
  }
  std::unordered_set<std::string_view> names{kMetadata};
  std::size_t begin = 0;
  for (const NamedTensor& item : tensors) {
    SL_CHECK(names.insert(item.name).second, "tensor name used twice or reserved: " + item.name);
    const std::size_t end = begin + item.tensor.bytes();
    Json entry = Json::object();
    entry["dtype"] = entry_of(item.tensor.dtype()).name;
    entry["shape"] = item.tensor.shape().dims();
    entry["data_offsets"] = {begin, end};
    members.push_back({item.name, std::move(entry)});
    begin = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + kDataAlignment - 1) / kDataAlignment * kDataAlignment, ' ');
  SL_CHECK(text.size() <= kLargestHeader, "header of " + std::to_string(text.size()) + " bytes");
  return text;
}

// Hashes what it writes, in blocks small enough to be read from memory once.
class HashingWriter {
 public:
  explicit HashingWriter(const std::string& path) : writer_(path) {}

  void write(std::span<const std::byte> bytes) {
    constexpr std::size_t kBlock = std::size_t{1} << 20U;
    while (!bytes.empty()) {
      const auto block = bytes.first(std::min(kBlock, bytes.size()));
      hash_.update(block);
      writer_.write(block);
      bytes = bytes.subspan(block.size());
    }
  }

  FileSummary commit() {
    writer_.commit();
    return {writer_.bytes_written(), hash_.digest()};
  }

 private:
  FileWriter writer_;
  Xxh3 hash_;
};

}  // namespace

SafetensorsFile::SafetensorsFile(std::string path) : file_(std::move(path)) {
  const auto all = file_.bytes();
  if (all.size() < kLengthBytes) {
    throw FileError(fmt::format("{}: not a safetensors file: expected at least {} bytes; got {}",
                                file_.path(),
                                kLengthBytes,
                                all.size()));
  }
  std::uint64_t length = 0;
  std::memcpy(&length, all.data(), kLengthBytes);
  if (length > kLargestHeader) {
    throw FileError(fmt::format("{}: header may have at most {} bytes; the file says {}",
                                file_.path(),
                                kLargestHeader,
                                length));
  }
  if (length > all.size() - kLengthBytes) {
    throw FileError(fmt::format("{}: truncated: header needs {} bytes behind byte {}; got {}",
                                file_.path(),
                                length,
                                kLengthBytes,
                                all.size() - kLengthBytes));
  }
  data_start_ = kLengthBytes + length;
  parse_header({reinterpret_cast<const char*>(all.data()) + kLengthBytes, length},
               all.size() - data_start_);
}

void SafetensorsFile::parse_header(std::string_view header, std::size_t data_bytes) {
  if (!header.starts_with('{')) {
    throw FileError(path() + ": not a safetensors file: the header must start with '{'");
  }
  reading(path(), [&] {
    for (auto& [name, reader] : JsonReader::parse(header, "header").items()) {
      if (name != kMetadata) {
        entries_.push_back(read_entry(name, reader));
        continue;
      }
      for (auto& [key, text] : reader.texts()) {
        metadata_.emplace(key, std::move(text));
      }
    }
  });
  check_coverage(data_bytes);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    index_.emplace(entries_[i].name, i);
  }
}

void SafetensorsFile::check_coverage(std::size_t data_bytes) {
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::size_t covered = 0;
  for (const Entry& entry : entries_) {
    if (entry.begin != covered) {
      throw FileError(
          fmt::format("{}: tensor '{}': {}: data must start at byte {} where the one before it "
                      "ends; got {}",
                      path(),
                      shown_value(entry.name),
                      entry.begin > covered ? "hole" : "overlap",
                      covered,
                      entry.begin));
    }
    covered = entry.end;
  }
  if (covered != data_bytes) {
    throw FileError(fmt::format("{}: {}: the header describes {} bytes of data; got {}",
                                path(),
                                covered > data_bytes ? "truncated" : "bytes of no tensor",
                                covered,
                                data_bytes));
  }
}

const SafetensorsFile::Entry* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &entries_[found->second];
}

std::span<const std::byte> SafetensorsFile::bytes(const Entry& entry) const {
  return file_.bytes().subspan(data_start_ + entry.begin, entry.end - entry.begin);
}

FileSummary write_safetensors(const std::string& path,
                              std::span<const NamedTensor> tensors,
                              const std::map<std::string, std::string>& metadata) {
  std::vector<NamedTensor> ordered(tensors.begin(), tensors.end());
  std::sort(ordered.begin(), ordered.end(), [](const NamedTensor& a, const NamedTensor& b) {
    const DTypeName* left = &entry_of(a.tensor.dtype());
    const DTypeName* right = &entry_of(b.tensor.dtype());
    return std::tie(right, a.name) < std::tie(left, b.name);
  });
  const std::string header = make_header(ordered, metadata);
  const std::uint64_t length = header.size();
  HashingWriter writer(path);
  writer.write(std::as_bytes(std::span(&length, 1)));
  writer.write(std::as_bytes(std::span(header)));
  for (const NamedTensor& item : ordered) {
    writer.write({static_cast<const std::byte*>(item.tensor.raw()), item.tensor.bytes()});
  }
  return writer.commit();
}

}  // namespace slackline
