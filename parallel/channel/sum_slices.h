#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "compress/codec.h"
#include "core/tensor/buffer.h"
#include "parallel/plan/owned_rows.h"

namespace slackline {

// Which way elements are copied between where they belong and where they travel.
enum class Packing { pack, unpack };

// A compressed sum of which each rank of a group adds up its own rows alone: cuts what a rank sends
// into slices, and takes what it gets. Addends (of cast) are reduce-scattered; frames (of quantize)
// go to all by an all-to-all, and each rank decodes its slices of all ranks and adds them up in
// rank order. So a row has the bits that the whole sum would have. Where all ranks need all rows,
// these sums are coded anew, and go to all. Owns the messages, which transfers read and write. Not
// called beside other calls.
class SumSlices {
 public:
  struct Options {
    CodecSetting setting{};
    std::vector<CodecPart> parts{};
    OwnedRows owners{};
    int rank = 0;
    Device device = Device::cpu;
  };

  // Codecs of messages of parts_of_rows(), rank by rank, where messages do not add: of all ranks
  // where all rows are needed, else of this one. Null for a rank without rows, and where nothing is
  // decoded.
  using Codecs = std::vector<std::unique_ptr<Codec>>;

  SumSlices(const Options& options, Codecs codecs);

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

  // The second shot: encode_sums() codes what add_up() made, and what is owed of it, into this
  // rank's frame among those of all, which are gathered; settle_sums() takes off what all get, and
  // decode_sums() writes all rows of `matrices`, its own among them, so that all ranks have the
  // same bits. `residual` has all rows, or is empty.
  [[nodiscard]] Tensor sums() const { return received(); }

  void encode_sums(StreamView stream,
                   const Codec::Matrices& matrices,
                   const Codec::Matrices& residual,
                   const MessageKey& key) const;
  void settle_sums(StreamView stream, const Codec::Matrices& residual) const;
  void decode_sums(StreamView stream, const Codec::Matrices& matrices) const;

 private:
  [[nodiscard]] int ranks() const { return static_cast<int>(options_.owners.size()); }

  [[nodiscard]] const std::vector<MatrixRows>& rows_of(int rank) const {
    return options_.owners[static_cast<std::size_t>(rank)];
  }

  [[nodiscard]] Codec* codec_of(int rank) const {
    return codecs_[static_cast<std::size_t>(rank)].get();
  }

  [[nodiscard]] Tensor slice_of(const Tensor& all, int rank) const;
  // Copies a rank's rows between an addend and the rank's slice; returns how many elements.
  std::int64_t copy_rows(StreamView stream, const Tensor& addend, int rank, Packing packing) const;
  [[nodiscard]] Codec::Matrices rows_of(int rank, const Codec::Matrices& matrices) const;

  Options options_;
  Codecs codecs_;
  std::size_t slice_ = 0;  // elements, or bytes of frames
  Buffer frame_{};
  Buffer sent_;
  Buffer received_{};
};

}  // namespace slackline
