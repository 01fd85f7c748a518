#include "parallel/step/pipeline_executor.h"

#include "core/check.h"
#include "parallel/mesh/executor_bytes.h"
#include "parallel/schedule/forward_only.h"
#include "parallel/step/step_rehearsal.h"

namespace slackline {

namespace {

using schedule::Op;
using schedule::OpKind;

}  // namespace

PipelineExecutor::PipelineExecutor(Parameters& parameters,
                                   const ModelConfig& config,
                                   const ExecutorPlan& plan,
                                   Groups& groups,
                                   Channels& channels)
    : plan_(plan),
      slots_(schedule::input_slots(plan.schedule())),
      evaluation_slots_(schedule::slots_in_turn(plan.evaluation(), slots_.num_slots)),
      groups_(&groups),
      channels_(&channels) {
  for (const ChunkSlice& chunk : plan.chunks) {
    stages_.emplace_back(parameters, config, chunk_options(plan, chunk));
  }
  const std::size_t bytes = slot_bytes(config, plan);
  const int num_slots = slots_.num_slots[static_cast<std::size_t>(groups.pipeline_rank())];
  for (int i = 0; i < num_slots; ++i) {
    in_flight_.emplace_back(bytes, plan.activations, channels.message_channel());
  }
}

double PipelineExecutor::train(const Work& work) {
  for (Stage& stage : stages_) {
    stage.begin_step(work.stream);
  }
  const double loss = run(plan_.schedule(), slots_, work);
  for (Stage& stage : stages_) {
    stage.finish_gradients(work.stream);
  }
  return loss;
}

double PipelineExecutor::evaluate(Work work) {
  work.dropout = 0.0F;
  work.gradients = Gradients::none;
  return run(plan_.evaluation(), evaluation_slots_, work);
}

double PipelineExecutor::run(const schedule::Schedule& schedule,
                             const schedule::SlotMap& slots,
                             const Work& work) {
  SL_CHECK_EQ(static_cast<int>(work.micro_batches.size()), schedule.num_micro_batches);
  channels_->begin_passes({.stream = work.stream,
                           .step = work.micro_batches.front().step,
                           .train = work.gradients != Gradients::none,
                           .keeps = work.keeps});
  ops_.clear();
  times_.restart(work.stream, groups_->world->now());
  const std::vector<Op>& ops = schedule.ranks[static_cast<std::size_t>(groups_->pipeline_rank())];
  const std::vector<schedule::Phase> phases = schedule::phases_of(ops);
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Op& op = ops[i];
    if (op.kind == OpKind::wait) {
      wait_for_all();
      continue;
    }
    if (schedule::is_compute(op.kind)) {
      channels_->tensor().begin_pass(schedule::tensor_class(op, phases[i]), op.micro_batch);
    }
    const int slot = slots.slot_of(op.chunk, op.micro_batch);
    execute(op, in_flight_[static_cast<std::size_t>(slot)], work);
  }
  wait_for_all();
  const std::size_t end = times_.mark(work.stream, groups_->world->now());
  const double loss = losses_.take(work.stream);
  times_.align(end, groups_->world->now());
  return loss;
}

void PipelineExecutor::execute(const Op& op, InFlight& at, const Work& work) {
  Stage& stage = stage_of(op.chunk);
  const TensorChannel& tensor = channels_->tensor();
  switch (op.kind) {
    case OpKind::receive_forward:
      prepare(stage, at);
      at.messages.receive(op, tensor.share_of(stage.input(at.slot)));
      return;
    case OpKind::receive_backward:
      at.messages.receive(op, tensor.share_of(stage.gradient(at.slot)));
      return;
    case OpKind::send_forward:
      at.messages.send(op, {.share = tensor.share_of(stage.output(at.slot))});
      return;
    case OpKind::send_backward:
      at.messages.send(op,
                       {.share = tensor.share_of(stage.gradient(at.slot)),
                        .input = tensor.share_of(stage.input(at.slot))});
      return;
    case OpKind::forward:
      forward(op, at, work);
      return;
    case OpKind::backward:
    case OpKind::backward_input:
      backward(op, at, work);
      return;
    case OpKind::backward_weight: {
      const std::size_t begin = begin_op(op, work);
      make(op, at, work, [&](const Pass& pass) { stage.backward_weight(pass, at.slot); });
      note_op(op, work, begin);
      return;
    }
    case OpKind::wait:
      break;
  }
  SL_CHECK(false, "op " + std::to_string(static_cast<int>(op.kind)));
}

void PipelineExecutor::forward(const Op& op, InFlight& at, const Work& work) {
  Stage& stage = stage_of(op.chunk);
  if (stage.chunk().embedding) {
    prepare(stage, at);
  }
  at.messages.before_pass(op);
  const std::size_t begin = begin_op(op, work);
  if (!stage.chunk().embedding) {
    channels_->tensor().gather_shares(stage.input(at.slot));
  }
  const bool evaluates = work.gradients == Gradients::none;
  make(op, at, work, [&](const Pass& pass) {
    stage.forward(pass, at.slot);
    if (evaluates && stage.chunk().head) {
      stage.add_loss(pass, at.slot);
    }
  });
  note_op(op, work, begin);
}

void PipelineExecutor::backward(const Op& op, InFlight& at, const Work& work) {
  Stage& stage = stage_of(op.chunk);
  at.messages.before_pass(op);
  const std::size_t begin = begin_op(op, work);
  if (!stage.chunk().head) {
    channels_->tensor().gather_shares(stage.gradient(at.slot));
  }
  make(op, at, work, [&](const Pass& pass) { stage.backward(pass, work.scale, at.slot); });
  note_op(op, work, begin);
}

void PipelineExecutor::make(const Op& op,
                            const InFlight& at,
                            const Work& work,
                            const std::function<void(const Pass&)>& body) {
  Pass pass = pass_of(op, work);
  if (!graphs_) {
    body(pass);
    return;
  }
  // The first forward pass of a step has waited for all the chunk's weights, the last micro-batch
  // finishes gradients; between them nobody has to be told.
  if (pass.use != nullptr && op.kind == OpKind::forward && op.micro_batch == 0 &&
      stage_of(op.chunk).chunk().head) {
    pass.use->before_use(pass.stream, ModelPart::head, -1);
    pass.use->after_use(pass.stream, ModelPart::head, -1);
  }
  if (op.kind == OpKind::forward ? op.micro_batch > 0 : !pass.is_last) {
    pass.use = nullptr;
  }
  const auto slot = static_cast<int>(&at - in_flight_.data());
  graphs_->run(
      {.op = op, .evaluates = work.gradients == Gradients::none, .slot = slot, .scale = work.scale},
      pass,
      [&] { body(pass); });
}

std::size_t PipelineExecutor::begin_op(const Op& op, const Work& work) {
  if (work.rehearsal != nullptr) {
    work.rehearsal->begin(op);
  }
  return times_.mark(work.stream, groups_->world->now());
}

void PipelineExecutor::note_op(const Op& op, const Work& work, std::size_t begin) {
  if (work.rehearsal != nullptr) {
    work.rehearsal->end();
  }
  ops_.push_back(
      {.op = op, .begin = begin, .end = times_.mark(work.stream, groups_->world->now())});
}

std::vector<PipelineExecutor::OpTime> PipelineExecutor::op_times() const {
  std::vector<OpTime> times;
  times.reserve(ops_.size());
  for (const MarkedOp& op : ops_) {
    times.push_back(
        {.op = op.op, .begin = times_.seconds(op.begin), .end = times_.seconds(op.end)});
  }
  return times;
}

Pass PipelineExecutor::pass_of(const Op& op, const Work& work) {
  return {.stream = work.stream,
          .sum = &channels_->tensor(),
          .batch = work.micro_batches[static_cast<std::size_t>(op.micro_batch)],
          .dropout = work.dropout,
          .seed = work.seed,
          .accumulate =
              op.micro_batch > 0 && plan_.adds_micro_batches ? Accumulate::yes : Accumulate::no,
          .is_last = op.micro_batch + 1 == plan_.schedule().num_micro_batches,
          .losses = &losses_,
          .use = work.use};
}

void PipelineExecutor::prepare(const Stage& stage, InFlight& at) const {
  if (!stage.is_prepared(at.slot, plan_.stage.micro_batch)) {
    at.messages.finish_sends();
    stage.prepare(at.slot, plan_.stage.micro_batch);
  }
}

void PipelineExecutor::wait_for_all() {
  for (InFlight& at : in_flight_) {
    at.messages.finish();
  }
}

Stage& PipelineExecutor::stage_of(int chunk) {
  return stages_[static_cast<std::size_t>(chunk / plan_.schedule().num_ranks)];
}

}  // namespace slackline
