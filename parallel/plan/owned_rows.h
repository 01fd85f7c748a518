#pragma once

#include <cstddef>
#include <vector>

#include "compress/codec.h"
#include "compress/frame_rows.h"
#include "parallel/plan/summed_part.h"

namespace slackline {

// Rows of a sum's matrices, by the rank of a group that adds them up.
using OwnedRows = std::vector<std::vector<MatrixRows>>;

// Where updates are shared out: by whoever updates elements of them. A row that two ranks' slices
// of the sum's elements cut stands with both.
[[nodiscard]] OwnedRows owned_rows(std::size_t elements,
                                   const std::vector<SummedPart>& matrices,
                                   int ranks);

// As many rows of each matrix for every rank, but for one; each row once. Who adds up a row, which
// shows in the bits of a sum that is coded anew, follows from its matrix and the number of ranks,
// and not from what else is in the message.
[[nodiscard]] OwnedRows even_rows(const std::vector<CodecPart>& parts, int ranks);

// Returns the rows of a rank that no rank before it has: each row of the sum once over all ranks.
[[nodiscard]] std::vector<MatrixRows> rows_counted_by(const OwnedRows& owners, int rank);

// Slices of a message, one for each rank, are all as long as the longest, for collectives take
// equal ones: elements of a message that adds, bytes of one of frames.
[[nodiscard]] std::size_t slice_elements(const std::vector<CodecPart>& parts,
                                         const OwnedRows& owners);
[[nodiscard]] std::size_t slice_bytes(const CodecSetting& setting,
                                      const std::vector<CodecPart>& parts,
                                      const OwnedRows& owners);

}  // namespace slackline
