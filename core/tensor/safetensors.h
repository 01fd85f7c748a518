#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/file_io.h"
#include "core/tensor/tensor.h"

namespace slackline {

// The safetensors format: u64 length N of the header, N bytes of JSON {name: {dtype, shape,
// data_offsets [begin, end)}}, then the tensors' little-endian bytes without holes. Since there
// are no holes, a tensor behind one of odd length is not aligned to its element type.

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// A memory-mapped file, checked as a whole when opened: refuses, with a FileError that gives path,
// tensor and rule, what the reference implementation refuses (header over 100 MB, holes, overlaps,
// overflow, wrong sizes, bytes that belong to no tensor, anything but strict JSON), and also
// headers that do not start with '{', duplicate names, more than Shape::kMaxRank dimensions, and
// element types that DType lacks. Element data is read only when asked for.
class SafetensorsFile {
 public:
  struct Entry {
    std::string name;
    DType dtype = DType::f32;
    Shape shape;
    std::size_t begin = 0;  // bytes from the start of the data
    std::size_t end = 0;
  };

  explicit SafetensorsFile(std::string path);

  [[nodiscard]] const std::string& path() const { return file_.path(); }

  // In the order in which the data lies in the file.
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }

  [[nodiscard]] const Entry* find(std::string_view name) const;  // null when there is none

  [[nodiscard]] std::span<const std::byte> bytes(const Entry& entry) const;

  // A view of the file for reading only (a write faults), alive as long as this object. Its
  // address need not be a multiple of the element size, which typed access needs: use read() there.
  // Throws FileError when the file has no such tensor.
  [[nodiscard]] Tensor tensor(std::string_view name) const;

  // Copies a tensor, aligned or not. Throws FileError when there is none of that name, element
  // type and shape.
  void read(std::string_view name, Tensor destination) const;

  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  void parse_header(std::string_view header, std::size_t data_bytes);
  void check_coverage(std::size_t data_bytes);
  [[nodiscard]] const Entry& at(std::string_view name) const;

  MappedFile file_;
  std::size_t data_start_ = 0;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, std::size_t> index_;  // name to position in entries_
  std::map<std::string, std::string> metadata_;
};

struct SafetensorsOptions {
  std::map<std::string, std::string> metadata{};
  // as_given keeps the caller's order. reference sorts by element type, widest first, then by
  // name, as the reference package does: every tensor is then aligned, and without metadata (or
  // with one entry) the file is the same byte for byte.
  enum class Order { as_given, reference } order = Order::as_given;
};

struct FileSummary {
  std::size_t bytes = 0;
  std::uint64_t xxh3 = 0;  // of the whole file
};

// Writes a file atomically (FileWriter) in one pass, hashing on the way. The header is padded with
// spaces so that the data starts at a multiple of 8. Views are read while it runs; they need not
// be aligned. REQUIRES: distinct names in UTF-8, none "__metadata__".
FileSummary write_safetensors(const std::string& path,
                              std::span<const NamedTensor> tensors,
                              const SafetensorsOptions& options = {});

}  // namespace slackline
