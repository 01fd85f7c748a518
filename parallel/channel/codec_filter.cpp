#include "parallel/channel/codec_filter.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compress/codec.h"
#include "compress/codec_bytes.h"
#include "compress/codec_traits.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/tensor/buffer.h"
#include "core/tensor/host_tensor.h"
#include "parallel/channel/channel_state.h"
#include "parallel/plan/pipeline_boundaries.h"

namespace slackline {

namespace {

constexpr int kPhases = 3;  // of a boundary's messages

// As training names a boundary for the numbers that its codec draws.
std::string name_of(const ActivationCompression::Boundary& boundary) {
  return fmt::format("pipeline_forward/{}", boundary.stage);
}

// As a checkpoint names the boundary's state: by the layers before it, in older checkpoints by the
// stage that sends.
std::string state_place(const ActivationCompression::Boundary& boundary,
                        const Checkpoint& checkpoint) {
  return checkpoint.updates() ? fmt::format("pipeline_forward/{}", boundary.after_layer + 1)
                              : name_of(boundary);
}

// The matrices of a message of so many tokens.
std::vector<MatrixShape> cut(const ActivationCompression& compression, std::int64_t tokens) {
  const int t = compression.tensor;
  const bool whole_tokens = compression.tokens % t == 0;  // in training
  if (whole_tokens && tokens % t != 0) {
    return {{.rows = tokens, .columns = compression.channels}};
  }
  const MatrixShape share = whole_tokens
                                ? share_shape(tokens, compression.channels, t)
                                : MatrixShape{.rows = tokens, .columns = compression.channels / t};
  return std::vector<MatrixShape>(static_cast<std::size_t>(t), share);
}

class CodecFilter final : public BoundaryFilter {
 public:
  CodecFilter(const ActivationCompression& compression,
              Checkpoint& checkpoint,
              const Workers& workers);

  void after_layer(StreamView stream, int layer, const Tensor& rows) override;

 private:
  // A tensor rank's part of a message, and the state that its codec begins every message with.
  struct Share {
    std::unique_ptr<Codec> codec;
    MatrixShape shape{};
    Buffer frame{};
    Buffer first_state{};  // empty where messages leave none
  };

  using Shares = std::vector<Share>;

  [[nodiscard]] Shares& shares_of(std::size_t boundary, std::int64_t tokens);
  [[nodiscard]] Share make_share(std::size_t boundary, const MatrixShape& shape, int rank);
  void read_factors(Checkpoint& checkpoint);
  void pass_through(Shares& shares, const Tensor& group, std::uint64_t number);

  ActivationCompression compression_;
  Workers workers_;
  std::vector<std::vector<float>> factors_;  // of each boundary (tensor, r, m); or empty
  std::map<std::pair<std::size_t, std::int64_t>, Shares> shares_;  // by boundary and tokens
  std::unique_ptr<Stream> stream_;  // with a workspace for all codecs so far
};

CodecFilter::CodecFilter(const ActivationCompression& compression,
                         Checkpoint& checkpoint,
                         const Workers& workers)
    : compression_(compression), workers_(workers) {
  read_factors(checkpoint);
}

void CodecFilter::read_factors(Checkpoint& checkpoint) {
  const MatrixShape share = cut(compression_, compression_.tokens).front();
  for (const ActivationCompression::Boundary& boundary : compression_.boundaries) {
    std::vector<float>& factors = factors_.emplace_back();
    if (!traits_of(boundary.codec.kind).trains) {
      continue;
    }
    const Shape shape{compression_.tensor, factor_rank(boundary.codec, share), share.columns};
    // Codecs of several phases are told apart by their ranks; of equal ranks the first one's factor
    // serves as well, for it was warmed up on the same rows.
    for (int number = 1; number <= kPhases && factors.empty(); ++number) {
      const std::string name =
          "residual/" + boundary_label(state_place(boundary, checkpoint), number) + ".right_factor";
      const auto found = checkpoint.tensors().find(name);
      if (found != checkpoint.tensors().end() && found->second.shape == shape) {
        factors.resize(shape.num_elements());
        checkpoint.read(name, Tensor(std::span(factors)).reshaped(shape), 0);
      }
    }
  }
}

CodecFilter::Share CodecFilter::make_share(std::size_t boundary,
                                           const MatrixShape& shape,
                                           int rank) {
  const ActivationCompression::Boundary& at = compression_.boundaries[boundary];
  Share share{
      .codec = make_codec(
          at.codec, {{.name = name_of(at), .shape = shape}}, compression_.seed, workers_.device),
      .shape = shape};
  const Backing backing = backing_of(workers_.device);
  share.frame = Buffer("frame", share.codec->frame_bytes(), backing);
  const std::vector<CodecState> states = share.codec->state();
  if (states.empty()) {
    return share;
  }
  const Tensor& drawn = states.front().data;  // the only one: a message is one matrix
  const std::size_t count = drawn.num_elements();
  share.first_state = make_buffer("first state of a codec", DType::f32, drawn.shape(), backing);
  const HostTensor first_state(share.first_state.view(DType::f32, drawn.shape()),
                               HostTensor::Contents::undefined);
  std::ranges::copy(HostTensor(drawn).tensor().span<float>(), first_state.tensor().data<float>());
  // A smaller message has as many columns and perhaps fewer factors: the first ones. One matrix of
  // whole tokens may have more than a tensor rank's share of training's: the others are as drawn.
  const std::vector<float>& factors = factors_[boundary];
  const std::size_t of_rank = factors.size() / static_cast<std::size_t>(compression_.tensor);
  const auto first = factors.begin() + static_cast<std::ptrdiff_t>(of_rank) * rank;
  std::copy_n(first, std::min(count, of_rank), first_state.tensor().data<float>());
  first_state.write_back();
  return share;
}

CodecFilter::Shares& CodecFilter::shares_of(std::size_t boundary, std::int64_t tokens) {
  Shares& shares = shares_[{boundary, tokens}];
  if (!shares.empty()) {
    return shares;
  }
  for (const MatrixShape& shape : cut(compression_, tokens)) {
    shares.push_back(make_share(boundary, shape, static_cast<int>(shares.size())));
  }
  const std::size_t workspace = shares.front().codec->workspace_bytes(workers_);
  if (stream_ == nullptr || stream_->workspace().capacity() < workspace) {
    if (stream_ != nullptr) {
      stream_->synchronize();
    }
    stream_ = std::make_unique<Stream>(workers_, workspace, "codec");
  }
  return shares;
}

void CodecFilter::pass_through(Shares& shares, const Tensor& group, std::uint64_t number) {
  const auto each = static_cast<std::int64_t>(group.num_elements() / shares.size());
  const Tensor ranks = group.reshaped({std::ssize(shares), each});
  MessageKey key{.seed = compression_.seed, .step = 0, .micro_batch = number, .sender = number};
  for (std::size_t rank = 0; rank < shares.size(); ++rank) {
    Share& share = shares[rank];
    key.first_element = rank * share.shape.num_elements();
    const auto row = static_cast<std::int64_t>(rank);
    const Tensor matrix =
        ranks.rows(row, row + 1).reshaped({share.shape.rows, share.shape.columns});
    for (const CodecState& state : share.codec->state()) {
      cast(*stream_, share.first_state.view(DType::f32, state.data.shape()), state.data);
    }
    const Tensor frame = share.frame.row(DType::u8);
    share.codec->encode(*stream_, {matrix}, {}, key, frame);
    share.codec->decode(*stream_, frame, {matrix}, false);
  }
}

void CodecFilter::after_layer(StreamView stream, int layer, const Tensor& rows) {
  for (std::size_t i = 0; i < compression_.boundaries.size(); ++i) {
    if (compression_.boundaries[i].after_layer != layer) {
      continue;
    }
    stream.synchronize();
    std::uint64_t number = 0;
    for (std::int64_t first = 0; first < rows.dim(0); ++number) {
      const std::int64_t end = std::min(first + compression_.tokens, rows.dim(0));
      pass_through(shares_of(i, end - first), rows.rows(first, end), number);
      first = end;
    }
    if (stream_ != nullptr) {
      stream_->synchronize();
    }
  }
}

}  // namespace

std::unique_ptr<BoundaryFilter> make_codec_filter(const ActivationCompression& compression,
                                                  Checkpoint& checkpoint,
                                                  const Workers& workers) {
  return std::make_unique<CodecFilter>(compression, checkpoint, workers);
}

}  // namespace slackline
