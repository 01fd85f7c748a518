#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "compress/codec.h"
#include "core/tensor/buffer.h"
#include "parallel/plan/owned_rows.h"

namespace slackline {

// A compressed sum of which each rank of a group needs its own rows alone: cuts what a rank sends
// into slices, and takes what it gets. Addends (of cast) are reduce-scattered; frames (of quantize)
// go to all by an all-to-all, and each rank decodes its slices of all ranks and adds them up in
// rank order. So a row has the bits that the whole sum would have. Owns the messages, which
// transfers read and write. Not called beside other calls.
class SumSlices {
 public:
  struct Options {
    CodecSetting setting{};
    std::vector<CodecPart> parts{};
    OwnedRows owners{};
    int rank = 0;
    Device device = Device::cpu;
  };

  // `own_codec` decodes messages of parts_of_rows() of this rank's rows; null where it has none, or
  // where messages add.
  SumSlices(const Options& options, std::unique_ptr<Codec> own_codec);

  // Messages that add need the slices one behind another, bf16, to be reduce-scattered. scatter()
  // fills them from a whole addend, collect() writes this rank's rows of the sum back into it.
  [[nodiscard]] Tensor addends() const;
  void scatter(StreamView stream, const Tensor& addend) const;
  void collect(StreamView stream, const Tensor& addend) const;

  // Frames need this rank's whole one, what it sends to all, which cut() cuts from that, and what
  // it gets; add_up() writes the sums of its own rows of `matrices`.
  [[nodiscard]] Tensor frame() const;
  [[nodiscard]] Tensor sent() const;
  [[nodiscard]] Tensor received() const;
  void cut(StreamView stream) const;
  void add_up(StreamView stream, const Codec::Matrices& matrices) const;

 private:
  [[nodiscard]] int ranks() const { return static_cast<int>(options_.owners.size()); }

  [[nodiscard]] const std::vector<MatrixRows>& rows_of(int rank) const {
    return options_.owners[static_cast<std::size_t>(rank)];
  }

  [[nodiscard]] Tensor slice_of_addends(int rank) const;

  Options options_;
  std::unique_ptr<Codec> own_codec_;
  std::size_t slice_ = 0;  // elements, or bytes of frames
  Buffer frame_{};
  Buffer sent_;
  Buffer received_{};
};

}  // namespace slackline
