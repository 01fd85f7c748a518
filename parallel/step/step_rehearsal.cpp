#include "parallel/step/step_rehearsal.h"

#include "compress/codecs/rehearsed_codec.h"

namespace slackline {

namespace {

// What takes time besides ops of a schedule, whose kinds are not negative.
constexpr int kNorms = -1;
constexpr int kUpdate = -2;

}  // namespace

CodecMaker StepRehearsal::codec_maker() const {
  return [costs = costs_.codecs](const CodecRequest& request) {
    const CodecCost cost = codec_cost(*costs, request.setting, request.shape);
    return make_rehearsed_codec(
        request.setting, request.parts, {.encode = cost.encode.value, .decode = cost.decode.value});
  };
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
