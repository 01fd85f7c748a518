#include "tools/run/round_state.h"

#include <cmath>
#include <optional>
#include <span>
#include <string>

#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/update/outer_step.h"
#include "core/tensor/buffer.h"
#include "tools/run/checkpoint_document.h"
#include "tools/run/checkpoint_parts.h"

namespace slackline {

namespace {

constexpr const char* kOuterMomentum = "outer/momentum/";
constexpr const char* kOuterDifference = "outer/difference/";
constexpr const char* kOuterLead = "outer/lead/";

// Reads by how much the workers of a checkpoint were ahead of their anchor.
void load_leads(Checkpoint& checkpoint, int worker, OuterLoop& outer) {
  for (const OuterLoop::State& state : outer.all_state()) {
    if (!state.lead.empty()) {
      read_parts(checkpoint, kOuterLead, worker, *state.piece, state.share.range, state.lead);
    }
  }
}

// True where a round had arrived that the parameter's anchor lacks.
bool owes(const Checkpoint& checkpoint, const std::string& name) {
  return checkpoint.tensors().contains(kOuterDifference + name);
}

// Momentum, and differences of a round that had arrived; these are the same on all workers.
void load_rounds(Checkpoint& checkpoint, bool has_arrived, OuterLoop& outer) {
  const auto read = [&](const char* group, const OuterLoop::State& state, const Tensor& memory) {
    read_parts(checkpoint, group, std::nullopt, *state.piece, state.share.range, memory);
  };
  for (const OuterLoop::State& state : outer.all_state()) {
    read(kOuterMomentum, state, state.momentum);
    if (has_arrived && owes(checkpoint, state.piece->parameter->spec.name)) {
      read(kOuterDifference, state, state.difference);
    }
  }
}

// Makes the step that workers owed their anchor, where ranks go on that all step together.
void make_owed_step(Checkpoint& checkpoint, const OwedStep& owed, MeshModel& model) {
  for (std::size_t i = 0; i < model.pieces().size(); ++i) {
    const OptimizerPiece& piece = model.pieces()[i];
    if (!piece.parameter->spec.trained || !owes(checkpoint, piece.parameter->spec.name)) {
      continue;
    }
    const Tensor weight = model.optimizer().tensors()[i].weight;
    const auto memory = [&](const char* name) {
      return make_buffer(name, DType::f32, weight.shape(), backing_of(model.stream().device()));
    };
    const Buffer momentum = memory("outer momentum");
    const Buffer difference = memory("outer difference");
    const Buffer anchor = memory("outer anchor");
    const auto view = [&](const Buffer& buffer) { return buffer.view(DType::f32, weight.shape()); };
    read_parts(checkpoint, kOuterMomentum, std::nullopt, piece, piece.range, view(momentum));
    read_parts(checkpoint, kOuterDifference, std::nullopt, piece, piece.range, view(difference));
    cast(model.stream(), weight, view(anchor));
    outer_step(model.stream(),
               {.difference = view(difference),
                .momentum = view(momentum),
                .anchor = view(anchor),
                .weight = weight},
               owed.of(piece.parameter->spec.name));
    model.stream().synchronize();
  }
  model.publish_weights();
}

// Returns by what a step makes a momentum no longer than the bound, as the end of a round does.
double owed_shrink(Checkpoint& checkpoint, const OwedStep& owed, double bound, MeshModel& model) {
  double squares = 0.0;  // each element by one rank
  for (std::size_t i = 0; i < model.pieces().size(); ++i) {
    const OptimizerPiece& piece = model.pieces()[i];
    if (!piece.saved || model.groups().worker_index() > 0 || !piece.parameter->spec.trained ||
        !owes(checkpoint, piece.parameter->spec.name)) {
      continue;
    }
    const Shape shape = model.optimizer().tensors()[i].weight.shape();
    const Buffer momentum = make_buffer("outer momentum", DType::f32, shape);
    const Buffer difference = make_buffer("outer difference", DType::f32, shape);
    const Tensor held = momentum.view(DType::f32, shape);
    const Tensor added = difference.view(DType::f32, shape);
    read_parts(checkpoint, kOuterMomentum, std::nullopt, piece, piece.range, held);
    read_parts(checkpoint, kOuterDifference, std::nullopt, piece, piece.range, added);
    const OuterStep step = owed.of(piece.parameter->spec.name);
    const std::span<const float> before = held.span<float>();
    const std::span<const float> arrived = added.span<float>();
    for (std::size_t e = 0; e < before.size(); ++e) {
      const double made = step.momentum * before[e] + step.scale * arrived[e];
      squares += made * made;
    }
  }
  model.groups()
      .everyone->all_reduce(Tensor(std::span(&squares, 1)), {.what = "norm of an owed momentum"})
      .wait();
  const double norm = static_cast<float>(std::sqrt(squares));
  return norm > bound ? bound / norm : 1.0;
}

}  // namespace

void add_round_state(OuterLoop& outer, int worker, std::vector<CheckpointTensor>& tensors) {
  for (const OuterLoop::State& state : outer.state()) {
    const auto add = [&](const char* group, std::optional<std::int64_t> of, const Tensor& memory) {
      add_parts(group, of, *state.piece, state.share.range, memory, tensors);
    };
    if (!state.lead.empty() && state.share.counted) {
      add(kOuterLead, worker, state.lead);
    }
    if (state.saved) {
      add("weights/", std::nullopt, state.anchor);
      add(kOuterMomentum, std::nullopt, state.momentum);
      if (!state.difference.empty()) {
        add(kOuterDifference, std::nullopt, state.difference);
      }
    }
  }
}

void load_round_state(Checkpoint& checkpoint, int worker, OuterLoop& outer) {
  const std::string& text = checkpoint.documents().outer;
  const auto owed =
      reading_document(checkpoint, "outer", [&] { return OuterLoop::owed_step(text); });
  load_rounds(checkpoint, owed.has_value(), outer);
  reading_document(checkpoint, "outer", [&] { outer.load(text); });
  if (OuterLoop::has_leads(text)) {
    load_leads(checkpoint, worker, outer);
  }
}

void take_over_rounds(Checkpoint& checkpoint, MeshModel& model, OuterLoop* outer) {
  const std::string& text = checkpoint.documents().outer;
  std::optional<OwedStep> owed =
      reading_document(checkpoint, "outer", [&] { return OuterLoop::owed_step(text); });
  if (owed && owed->norm_bound) {
    owed->step.shrink = owed_shrink(checkpoint, *owed, *owed->norm_bound, model);
  }
  if (outer != nullptr) {
    load_rounds(checkpoint, owed.has_value(), *outer);
    if (owed) {
      outer->make_owed_step(*owed, [&](const std::string& name) { return owes(checkpoint, name); });
    }
    reading_document(checkpoint, "outer", [&] { outer->convert_momentum(text); });
  } else if (owed) {
    make_owed_step(checkpoint, *owed, model);
  }
}

}  // namespace slackline
