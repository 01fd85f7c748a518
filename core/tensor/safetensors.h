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
// headers that do not start with '{', duplicate names, shapes that read_shape() refuses, and
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

  // The elements as they lie in the file, aligned or not, alive as long as this object.
  [[nodiscard]] std::span<const std::byte> bytes(const Entry& entry) const;

  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  void parse_header(std::string_view header, std::size_t data_bytes);
  void check_coverage(std::size_t data_bytes);

  MappedFile file_;
  std::size_t data_start_ = 0;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, std::size_t> index_;  // name to position in entries_
  std::map<std::string, std::string> metadata_;
};

struct FileSummary {
  std::size_t bytes = 0;
  std::uint64_t xxh3 = 0;  // of the whole file
};

// Writes a file atomically (FileWriter) in one pass, hashing on the way. The header is padded with
// spaces so that the data starts at a multiple of 8. Tensors are sorted by element type, widest
// first, then by name, as by the reference package: every one is then aligned, and without metadata
// (or with one entry) the file is the same byte for byte. Views are read while it runs; they need
// not be aligned. REQUIRES: distinct names in UTF-8, none "__metadata__".
FileSummary write_safetensors(const std::string& path,
                              std::span<const NamedTensor> tensors,
                              const std::map<std::string, std::string>& metadata = {});

}  // namespace slackline
