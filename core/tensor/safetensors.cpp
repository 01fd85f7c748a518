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
#include "core/hash.h"
#include "core/shown_text.h"
#include "core/strict_json.h"

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

// Reads the entry of one tensor; messages name the file, the tensor and the rule.
class EntryParser {
 public:
  EntryParser(const std::string& path, const std::string& name, const Json& entry)
      : where_(path + ": tensor '" + shown_value(name) + "'"), name_(name), entry_(entry) {}

  SafetensorsFile::Entry parse() const {
    if (!entry_.is_object()) {
      refuse("expected an object", entry_);
    }
    const Json& offsets = list("data_offsets");
    if (offsets.size() != 2) {
      refuse("data_offsets must be two numbers", offsets);
    }
    SafetensorsFile::Entry entry{
        name_, dtype(), shape(), unsigned_integer(offsets[0]), unsigned_integer(offsets[1])};
    check_size(entry);
    return entry;
  }

 private:
  [[noreturn]] void refuse(std::string_view rule, const Json& value) const {
    throw FileError(fmt::format("{}: {}; got {}", where_, rule, shown_value(value.dump())));
  }

  const Json& field(const std::string& key) const {
    const auto found = entry_.find(key);
    if (found == entry_.end()) {
      refuse(key + " is missing", entry_);
    }
    return *found;
  }

  const Json& list(const std::string& key) const {
    const Json& value = field(key);
    if (!value.is_array()) {
      refuse(key + " must be a list", value);
    }
    return value;
  }

  std::size_t unsigned_integer(const Json& value) const {
    if (!value.is_number_unsigned()) {
      refuse("expected an integer from 0 to 2^64 - 1", value);
    }
    return value.get<std::size_t>();
  }

  DType dtype() const {
    const Json& value = field("dtype");
    std::string names;
    for (const DTypeName& known : kDTypeNames) {
      if (value.is_string() && value.get_ref<const std::string&>() == known.name) {
        return known.dtype;
      }
      names.append(names.empty() ? "" : ", ").append(known.name);
    }
    refuse("dtype must be one of " + names, value);
  }

  Shape shape() const {
    const Json& value = list("shape");
    if (value.size() > Shape::kMaxRank) {
      refuse(fmt::format("shape may have at most {} dimensions", Shape::kMaxRank), value);
    }
    std::vector<std::int64_t> dims;
    for (const Json& dim : value) {
      if (!std::in_range<std::int64_t>(unsigned_integer(dim))) {
        refuse("shape overflows", value);
      }
      dims.push_back(dim.get<std::int64_t>());
    }
    return Shape(std::span<const std::int64_t>(dims));
  }

  void check_size(const SafetensorsFile::Entry& entry) const {
    std::size_t bytes = 1;
    bool overflow = false;
    for (const std::int64_t dim : entry.shape.dims()) {
      overflow |= __builtin_mul_overflow(bytes, static_cast<std::size_t>(dim), &bytes);
    }
    overflow |= __builtin_mul_overflow(bytes, size_of(entry.dtype), &bytes);
    if (overflow) {
      refuse("the number of bytes overflows 64 bits", entry_);
    }
    if (entry.begin > entry.end || entry.end - entry.begin != bytes) {
      refuse(fmt::format("shape and dtype need {} bytes between data_offsets", bytes), entry_);
    }
  }

  std::string where_;
  const std::string& name_;
  const Json& entry_;
};

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
    const auto dims = item.tensor.shape().dims();
    Json entry = Json::object();
    entry["dtype"] = entry_of(item.tensor.dtype()).name;
    entry["shape"] = std::vector<std::int64_t>(dims.begin(), dims.end());
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
  Json json;
  try {
    json = parse_strict_json(header);
  } catch (const JsonSyntaxError& error) {
    throw FileError(path() + ": header: " + error.what());
  }
  for (const auto& [name, value] : json.get_ref<const Json::object_t&>()) {
    if (name != kMetadata) {
      entries_.push_back(EntryParser(path(), name, value).parse());
      continue;
    }
    if (!value.is_object()) {
      throw FileError(path() + ": __metadata__ must map strings to strings");
    }
    for (const auto& [key, text] : value.get_ref<const Json::object_t&>()) {
      if (!text.is_string()) {
        throw FileError(path() + ": __metadata__ must map strings to strings; got " +
                        shown_value(text.dump()));
      }
      metadata_.emplace(key, text.get<std::string>());
    }
  }
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
