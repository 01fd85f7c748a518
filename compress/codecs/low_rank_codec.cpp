#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "compress/codec_bytes.h"
#include "compress/codec_keys.h"
#include "compress/codec_traits.h"
#include "compress/frame.h"
#include "compress/kernels/low_rank/low_rank.h"
#include "compress/kernels/low_rank/orthonormalize.h"
#include "compress/kernels/low_rank/revive_zero_rows.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/rng.h"
#include "core/tensor/buffer.h"
#include "core/tensor/host_tensor.h"

// One step of PowerSGD (Vogels, Karimireddy, Jaggi 2019, algorithm 1) per message. For a matrix
// M (n, m), with Q (r, m) left from the message before:
//   P = M Q^T;  P = orthonormal basis of P's columns;  Q = P^T M;  decoded: P Q,
// the projection of M onto what P spans. Over ranks, P and Q are sums: the first before it is made
// orthonormal, so that all ranks project onto the same space.
//
// A frame holds the left factors of all matrices, then the right ones.
namespace slackline {

namespace {

constexpr const char* kRightFactor = "right_factor";

// The left or right factors of a message's matrices, in one piece of memory, which a codec that
// only decodes never takes.
struct Factors {
  std::vector<Shape> shapes{};
  std::int64_t count = 0;
  Buffer all{};
  Buffer narrow{};  // bf16, where factors travel as such
  std::vector<Tensor> each{};

  void add(const Shape& shape) {
    shapes.push_back(shape);
    count += static_cast<std::int64_t>(shape.num_elements());
  }

  void take_memory(const char* name, DType travels_as, Backing backing) {
    all = make_buffer(name, DType::f32, Shape{count}, backing);
    std::size_t offset = 0;
    for (const Shape& shape : shapes) {
      each.push_back(all.view(DType::f32, shape, offset));
      offset += each.back().bytes();
    }
    if (travels_as == DType::bf16) {
      narrow = make_buffer(name, DType::bf16, Shape{count}, backing);
    }
  }

  [[nodiscard]] Tensor tensor() const { return all.view(DType::f32, Shape{count}); }

  [[nodiscard]] Tensor narrow_tensor() const { return narrow.view(DType::bf16, Shape{count}); }
};

class LowRankCodec final : public Codec {
 public:
  LowRankCodec(const CodecSetting& setting,
               std::vector<CodecPart> parts,
               std::uint64_t seed,
               Device device)
      : Codec(slackline::frame_bytes(setting, parts)),
        setting_(setting),
        parts_(std::move(parts)),
        seed_(seed),
        device_(device) {
    for (const CodecPart& part : parts_) {
      const std::int64_t r = factor_rank(setting_, part.shape);
      left_.add({part.shape.rows, r});
      right_.add({r, part.shape.columns});
    }
  }

  void encode(StreamView stream,
              const Matrices& values,
              const Matrices& residual,
              const MessageKey& /*key*/,
              const Tensor& frame) override {
    make_left(stream, values, residual);
    make_right(stream, values, residual);
    narrow(stream, left_);
    narrow(stream, right_);
    const Tensor left = addend(1);
    const Tensor right = addend(2);
    arrived(stream, right_);
    begin_frame(stream, frame, CodecKind::low_rank, parameter());
    const std::size_t payload = sizeof(FrameHeader);
    cast(stream, left, frame_part(frame, payload, left.dtype(), left.shape()));
    cast(stream, right, frame_part(frame, payload + left.bytes(), right.dtype(), right.shape()));
  }

  void settle(StreamView stream, const Tensor& /*frame*/, const Matrices& residual) override {
    if (!residual.empty()) {
      low_rank_multiply(stream, products({}, residual), LowRankOutput::none, 1.0F);
    }
  }

  void decode(StreamView stream,
              const Tensor& frame,
              const Matrices& out,
              bool accumulate) const override {
    open_frame(stream, frame, CodecKind::low_rank, parameter(), frame_bytes());
    std::size_t payload = sizeof(FrameHeader);
    ArenaScope scratch(stream.workspace());
    const auto next = [&](const Factors& factors) {
      const Tensor received = frame_part(frame, payload, setting_.factors, Shape{factors.count});
      payload += received.bytes();
      if (setting_.factors == DType::f32) {
        return received;
      }
      const Tensor wide = scratch.allocate(DType::f32, received.shape());
      cast(stream, received, wide);
      return wide;
    };
    const Tensor left = next(left_);
    const Tensor right = next(right_);
    std::vector<LowRankProduct> list = products(out, {});
    std::size_t left_done = 0;
    std::size_t right_done = 0;
    for (LowRankProduct& product : list) {
      const auto part_of = [](const Tensor& all, std::size_t& done, const Shape& shape) {
        const Tensor part(all.data<float>() + done, DType::f32, shape, all.device());
        done += part.num_elements();
        return part;
      };
      product.left = part_of(left, left_done, product.left.shape());
      product.right = part_of(right, right_done, product.right.shape());
    }
    low_rank_multiply(stream, list, accumulate ? LowRankOutput::add : LowRankOutput::write, 1.0F);
  }

  [[nodiscard]] int sums() const override { return 2; }

  [[nodiscard]] Tensor addend(int round) override {
    take_memory();
    const Factors& factors = round == 1 ? left_ : right_;
    return setting_.factors == DType::f32 ? factors.tensor() : factors.narrow_tensor();
  }

  void begin_sum(StreamView stream,
                 const Matrices& values,
                 const Matrices& residual,
                 const MessageKey& /*key*/) override {
    make_left(stream, values, residual);
    narrow(stream, left_);
  }

  void next_sum(StreamView stream, const Matrices& values, const Matrices& residual) override {
    arrived(stream, left_);
    make_right(stream, values, residual);
    narrow(stream, right_);
  }

  // The residual loses an equal share of the sum on every rank, as in the paper's algorithm: over
  // all ranks that adds up to what was received.
  void finish_sum(StreamView stream,
                  const Matrices& out,
                  const Matrices& residual,
                  int ranks) override {
    arrived(stream, right_);
    low_rank_multiply(
        stream, products(out, residual), LowRankOutput::write, 1.0F / static_cast<float>(ranks));
  }

  [[nodiscard]] std::vector<CodecState> state() override {
    take_memory();
    std::vector<CodecState> states;
    states.reserve(parts_.size());
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      states.push_back({.part = parts_[i].name, .name = kRightFactor, .data = right_.each[i]});
    }
    return states;
  }

  [[nodiscard]] std::size_t workspace_bytes(const Workers& workers) const override {
    Matrices shapes;
    shapes.reserve(parts_.size());
    for (const CodecPart& part : parts_) {
      shapes.emplace_back(nullptr, DType::f32, Shape{part.shape.rows, part.shape.columns});
    }
    Matrices left;
    left.reserve(parts_.size());
    for (const Shape& shape : left_.shapes) {
      left.emplace_back(nullptr, DType::f32, shape);
    }
    // decode() reads factors where they arrived, but bf16 ones as copies.
    const std::size_t decoded = setting_.factors == DType::f32
                                    ? 0
                                    : Arena::aligned_bytes(DType::f32, Shape{left_.count}) +
                                          Arena::aligned_bytes(DType::f32, Shape{right_.count});
    return std::max(orthonormalize_workspace_bytes(left, workers),
                    decoded + low_rank_workspace_bytes(products(shapes, {}), workers));
  }

 private:
  [[nodiscard]] std::size_t parameter() const { return static_cast<std::size_t>(setting_.rank); }

  void take_memory() {
    if (!left_.each.empty()) {
      return;
    }
    left_.take_memory("left factors", setting_.factors, backing_of(device_));
    right_.take_memory("right factors", setting_.factors, backing_of(device_));
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      draw_right(i);
    }
  }

  void draw_right(std::size_t matrix) {
    const PhiloxKey key = philox_key(seed_, "codec/right_factor/" + parts_[matrix].name);
    const HostTensor drawn(right_.each[matrix], HostTensor::Contents::undefined);
    draw_normal(drawn.tensor().span<float>(), key);
    drawn.write_back();
  }

  // A direction that a matrix did not have (it was zero, or of lower rank) leaves a zero row, and
  // zero rows would stay zero for ever. They begin anew.
  void revive_lost_rows(StreamView stream) {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      revive_zero_rows(stream,
                       right_.each[i],
                       philox_key(seed_, "codec/right_factor/" + parts_[i].name + "/again"));
    }
  }

  [[nodiscard]] std::vector<LowRankProduct> products(const Matrices& matrices,
                                                     const Matrices& residual) const {
    std::vector<LowRankProduct> list;
    list.reserve(parts_.size());
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const Shape shape{parts_[i].shape.rows, parts_[i].shape.columns};
      const auto of = [&](const Matrices& tensors) {
        return tensors.empty() ? Tensor() : tensors[i].reshaped(shape);
      };
      list.push_back({.matrix = of(matrices), .added = of(residual)});
      list.back().left =
          left_.each.empty() ? Tensor(nullptr, DType::f32, left_.shapes[i]) : left_.each[i];
      list.back().right =
          right_.each.empty() ? Tensor(nullptr, DType::f32, right_.shapes[i]) : right_.each[i];
    }
    return list;
  }

  void make_left(StreamView stream, const Matrices& values, const Matrices& residual) {
    take_memory();
    revive_lost_rows(stream);
    low_rank_left(stream, products(values, residual));
  }

  void make_right(StreamView stream, const Matrices& values, const Matrices& residual) {
    orthonormalize(stream, left_.each, setting_.orthogonalization);
    narrow(stream, left_);
    arrived(stream, left_);
    low_rank_right(stream, products(values, residual));
  }

  // Rounds what travels in bf16.
  void narrow(StreamView stream, const Factors& factors) const {
    if (setting_.factors == DType::bf16) {
      cast(stream, factors.tensor(), factors.narrow_tensor());
    }
  }

  void arrived(StreamView stream, const Factors& factors) const {
    if (setting_.factors == DType::bf16) {
      cast(stream, factors.narrow_tensor(), factors.tensor());
    }
  }

  CodecSetting setting_;
  std::vector<CodecPart> parts_;
  std::uint64_t seed_;
  Device device_;
  Factors left_;
  Factors right_;
};

constexpr std::array<std::string_view, 2> kOrthogonalizations = {"blocked", "gram_schmidt"};
constexpr std::int64_t kMaxRank = 1 << 16;

std::size_t payload(const CodecSetting& setting, const MatrixShape& shape) {
  return static_cast<std::size_t>((shape.rows + shape.columns) * factor_rank(setting, shape)) *
         size_of(setting.factors);
}

// The left factors go first, then the right ones.
std::vector<SumRound> rounds(const CodecSetting& setting, const std::vector<CodecPart>& parts) {
  SumRound left{.element_bytes = size_of(setting.factors)};
  SumRound right = left;
  for (const CodecPart& part : parts) {
    const std::int64_t r = factor_rank(setting, part.shape);
    left.elements += static_cast<std::size_t>(part.shape.rows * r);
    right.elements += static_cast<std::size_t>(part.shape.columns * r);
  }
  return {left, right};
}

// Encoding multiplies by both factors, decoding multiplies them.
CodecWork work(const CodecSetting& setting) {
  return {.encode = 4.0 * setting.rank, .decode = 2.0 * setting.rank};
}

// Every direction is taken to carry the same.
double error(const CodecSetting& setting, const MatrixShape& shape) {
  const auto rank = static_cast<double>(factor_rank(setting, shape));
  const auto most = static_cast<double>(std::min(shape.rows, shape.columns));
  return std::sqrt(1.0 - rank / most);
}

std::optional<CodecSetting> finer(const CodecSetting& setting) {
  if (setting.rank > kMaxRank / 2) {
    return std::nullopt;
  }
  CodecSetting twice = setting;
  twice.rank *= 2;
  return twice;
}

void read(JsonReader& section, const CodecSetting& /*defaults*/, CodecSetting& setting) {
  setting.rank = static_cast<int>(section.integer("rank", {.min = 1, .max = kMaxRank}));
  setting.factors = read_float(section, "factors");
  setting.orthogonalization = read_choice(
      section, "orthogonalization", kOrthogonalizations, CodecSetting{}.orthogonalization);
}

std::string keys(const CodecSetting& setting) {
  return fmt::format(R"(, "rank": {}{}{})",
                     setting.rank,
                     unless_fp32("factors", setting.factors),
                     unless_default("orthogonalization",
                                    kOrthogonalizations,
                                    setting.orthogonalization,
                                    CodecSetting{}.orthogonalization));
}

std::string strength(const CodecSetting& setting) {
  return std::to_string(setting.rank);
}

}  // namespace

extern const CodecTraits kLowRankTraits;
constexpr CodecTraits kLowRankTraits = {.name = "low_rank",
                                        .trains = true,
                                        .payload_bytes = payload,
                                        .sum_rounds = rounds,
                                        .work = work,
                                        .expected_error = error,
                                        .finer = finer,
                                        .read = read,
                                        .keys = keys,
                                        .strength = strength,
                                        .make = make_codec_of<LowRankCodec>};

}  // namespace slackline
