#include "parallel/step/step_rehearsal.h"

#include <utility>

#include "compress/codecs/rehearsed_codec.h"

namespace slackline {

namespace {

// What takes time besides ops of a schedule, whose kinds are not negative.
constexpr int kNorms = -1;
constexpr int kUpdate = -2;

class RehearsedCodecs final : public ChannelCodecs {
 public:
  explicit RehearsedCodecs(std::shared_ptr<const StepCosts> costs) : costs_(std::move(costs)) {}

  [[nodiscard]] std::unique_ptr<Codec> make(const Coded& coded) const override {
    const CodecCost cost = codec_cost(*costs_, coded.setting, coded.shape);
    return make_rehearsed_codec(
        coded.setting, coded.parts, {.encode = cost.encode.value, .decode = cost.decode.value});
  }

 private:
  std::shared_ptr<const StepCosts> costs_;
};

}  // namespace

std::shared_ptr<const ChannelCodecs> StepRehearsal::codecs() const {
  return std::make_shared<const RehearsedCodecs>(costs_.codecs);
}

void StepRehearsal::begin(const schedule::Op& op) {
  clock_.begin({static_cast<int>(op.kind), op.chunk}, op_seconds(costs_.ops, op).value);
}

void StepRehearsal::take_norms() {
  clock_.begin({kNorms, 0}, costs_.ops.gradient_norm.value);
  clock_.end();
}

void StepRehearsal::update() {
  clock_.begin({kUpdate, 0}, costs_.ops.optimizer.value);
  clock_.end();
}

}  // namespace slackline
