#include "core/checkpoint/manifest_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>

#include <fmt/format.h>

#include "core/hash.h"

namespace slackline {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kHashDigits = 16;

// The names of the element types, in their order.
std::array<std::string_view, kDTypes.size()> dtype_names() {
  std::array<std::string_view, kDTypes.size()> names{};
  std::ranges::transform(kDTypes, names.begin(), &DTypeTraits::name);
  return names;
}

Json piece_json(const ManifestPiece& piece) {
  Json json = {
      {"file", piece.file}, {"start", piece.region.start}, {"shape", piece.region.shape.dims()}};
  if (piece.worker) {
    json["worker"] = *piece.worker;
  }
  return json;
}

Json tensor_json(const ManifestTensor& tensor) {
  Json json = {
      {"shape", tensor.shape.dims()}, {"dtype", name_of(tensor.dtype)}, {"pieces", Json::array()}};
  for (const ManifestPiece& piece : tensor.pieces) {
    json["pieces"].push_back(piece_json(piece));
  }
  return json;
}

ManifestPiece read_piece(JsonReader reader,
                         const ManifestTensor& tensor,
                         const std::map<std::string, ManifestFile>& files) {
  ManifestPiece piece;
  piece.file = reader.string("file");
  if (!files.contains(piece.file)) {
    reader.fail("file", "must be listed under files");
  }
  piece.region.start = reader.integers("start", {.min = 0});
  piece.region.shape = read_shape(reader);
  if (!is_inside(piece.region, tensor.shape)) {
    reader.fail("start", "the piece must lie inside the tensor " + tensor.shape.to_string());
  }
  if (reader.has("worker")) {
    piece.worker = reader.integer("worker", {.min = 0});
  }
  reader.finish();
  return piece;
}

// First index of the outermost dimension, and one past the last.
std::pair<std::int64_t, std::int64_t> outer_range(const Region& region) {
  return region.start.empty()
             ? std::pair<std::int64_t, std::int64_t>(0, 1)
             : std::pair(region.start[0], region.start[0] + region.shape.dims()[0]);
}

// Two pieces of one worker that share an element. Pieces are visited by their first row and
// compared with those that reach it: many ranks' pieces are thousands, few of them side by side.
std::optional<std::pair<std::size_t, std::size_t>> find_overlap(
    const std::vector<ManifestPiece>& pieces) {
  std::vector<std::size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return outer_range(pieces[a].region).first < outer_range(pieces[b].region).first;
  });
  std::vector<std::size_t> reaching;
  for (const std::size_t i : order) {
    const std::int64_t row = outer_range(pieces[i].region).first;
    std::erase_if(reaching,
                  [&](std::size_t j) { return outer_range(pieces[j].region).second <= row; });
    for (const std::size_t j : reaching) {
      if (pieces[j].worker == pieces[i].worker &&
          intersection(pieces[j].region, pieces[i].region)) {
        return std::pair(std::min(i, j), std::max(i, j));
      }
    }
    reaching.push_back(i);
  }
  return std::nullopt;
}

// The pieces of each worker add up to the tensor and none overlaps another: so there is no hole.
void check_coverage(const JsonReader& reader, const ManifestTensor& tensor) {
  if (const auto overlap = find_overlap(tensor.pieces)) {
    reader.fail("pieces", fmt::format("pieces {} and {} overlap", overlap->first, overlap->second));
  }
  std::map<std::optional<std::int64_t>, std::size_t> covered;
  for (const ManifestPiece& piece : tensor.pieces) {
    covered[piece.worker] += piece.region.shape.num_elements();
  }
  for (const auto& [worker, elements] : covered) {
    if (elements != tensor.shape.num_elements()) {
      reader.fail("pieces", "pieces must cover the tensor without holes");
    }
  }
  if (covered.empty()) {
    reader.fail("pieces", "a tensor needs at least one piece");
  }
}

ManifestTensor read_tensor(JsonReader reader,
                           const std::map<std::string, ManifestFile>& files,
                           Coverage coverage) {
  static const auto kNames = dtype_names();
  ManifestTensor tensor;
  tensor.shape = read_shape(reader);
  tensor.dtype = static_cast<DType>(reader.choice("dtype", kNames));
  for (const JsonReader& piece : reader.sections("pieces")) {
    tensor.pieces.push_back(read_piece(piece, tensor, files));
  }
  if (coverage == Coverage::whole) {
    check_coverage(reader, tensor);
  }
  reader.finish();
  return tensor;
}

ManifestFile read_file_entry(JsonReader reader) {
  ManifestFile file;
  file.bytes = static_cast<std::size_t>(reader.integer("bytes", {.min = 0}));
  file.xxh3 = read_hash(reader);
  reader.finish();
  return file;
}

}  // namespace

nlohmann::ordered_json tensors_json(const std::map<std::string, ManifestTensor>& tensors) {
  Json json = Json::object();
  auto& members = json.get_ref<Json::object_t&>();
  for (const auto& [name, tensor] : tensors) {
    members.push_back({name, tensor_json(tensor)});  // by name would search what is there
  }
  return json;
}

nlohmann::ordered_json files_json(const std::map<std::string, ManifestFile>& files) {
  Json json = Json::object();
  auto& members = json.get_ref<Json::object_t&>();
  for (const auto& [name, file] : files) {
    members.push_back({name, {{"bytes", file.bytes}, {"xxh3", hex_text(file.xxh3)}}});
  }
  return json;
}

std::map<std::string, ManifestFile> read_files(JsonReader section) {
  std::map<std::string, ManifestFile> files;
  for (const auto& [name, entry] : section.items()) {
    if (!is_file_name(name)) {
      section.fail(name, "must be the name of a file in the same directory");
    }
    files.emplace(name, read_file_entry(entry));
  }
  return files;
}

std::map<std::string, ManifestTensor> read_tensors(JsonReader section,
                                                   const std::map<std::string, ManifestFile>& files,
                                                   Coverage coverage) {
  std::map<std::string, ManifestTensor> tensors;
  for (const auto& [name, entry] : section.items()) {
    tensors.emplace(name, read_tensor(entry, files, coverage));
  }
  return tensors;
}

std::uint64_t read_hash(JsonReader& reader) {
  constexpr int kBase = 16;
  std::uint64_t hash = 0;
  const std::string digits = reader.string("xxh3");
  const char* end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), end, hash, kBase);
  if (digits.size() != kHashDigits || parsed.ec != std::errc{} || parsed.ptr != end) {
    reader.fail("xxh3", "must be 16 hexadecimal digits");
  }
  return hash;
}

}  // namespace slackline
