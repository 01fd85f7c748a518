#include "parallel/plan/owned_rows.h"

#include <algorithm>

#include "compress/codec_bytes.h"

namespace slackline {

OwnedRows owned_rows(std::size_t elements, const std::vector<SummedPart>& matrices, int ranks) {
  OwnedRows owners(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    const Slice own = slice_of(elements, rank, ranks);
    for (std::size_t m = 0; m < matrices.size(); ++m) {
      const auto columns = static_cast<std::size_t>(matrices[m].shape[1]);
      const std::size_t first = matrices[m].first;
      const std::size_t begin = std::max(own.begin, first);
      const std::size_t end = std::min(own.end, first + matrices[m].elements.count());
      if (begin < end) {
        owners[static_cast<std::size_t>(rank)].push_back(
            {.matrix = m,
             .first = static_cast<std::int64_t>((begin - first) / columns),
             .last = static_cast<std::int64_t>((end - first + columns - 1) / columns)});
      }
    }
  }
  return owners;
}

OwnedRows even_rows(const std::vector<CodecPart>& parts, int ranks) {
  OwnedRows owners(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::size_t m = 0; m < parts.size(); ++m) {
      const Slice own = slice_of(static_cast<std::size_t>(parts[m].shape.rows), rank, ranks);
      if (own.count() > 0) {
        owners[static_cast<std::size_t>(rank)].push_back(
            {.matrix = m,
             .first = static_cast<std::int64_t>(own.begin),
             .last = static_cast<std::int64_t>(own.end)});
      }
    }
  }
  return owners;
}

std::vector<MatrixRows> rows_counted_by(const OwnedRows& owners, int rank) {
  std::vector<MatrixRows> counted;
  for (MatrixRows own : owners[static_cast<std::size_t>(rank)]) {
    for (int before = 0; before < rank; ++before) {
      for (const MatrixRows& other : owners[static_cast<std::size_t>(before)]) {
        own.first = other.matrix == own.matrix ? std::max(own.first, other.last) : own.first;
      }
    }
    if (own.count() > 0) {
      counted.push_back(own);
    }
  }
  return counted;
}

std::size_t slice_elements(const std::vector<CodecPart>& parts, const OwnedRows& owners) {
  std::size_t longest = 0;
  for (const std::vector<MatrixRows>& rows : owners) {
    std::size_t elements = 0;
    for (const CodecPart& part : parts_of_rows(parts, rows)) {
      elements += part.shape.num_elements();
    }
    longest = std::max(longest, elements);
  }
  return longest;
}

std::size_t slice_bytes(const CodecSetting& setting,
                        const std::vector<CodecPart>& parts,
                        const OwnedRows& owners) {
  std::size_t longest = 0;
  for (const std::vector<MatrixRows>& rows : owners) {
    longest = std::max(longest, frame_bytes(setting, parts_of_rows(parts, rows)));
  }
  return longest;
}

}  // namespace slackline
