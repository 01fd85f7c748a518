#include "tests/equivalence/optimus_cc_oracle.h"

#include <algorithm>

#include "core/rng.h"
#include "tests/equivalence/initial_weights.h"

namespace slackline::testing {

namespace {

using reference::Matrix;

Stage::Options stage_options(const MeshRun& run, int stage) {
  return {.micro_batch = {.B = run.micro_batch, .T = run.model.sequence},
          .chunk = ChunkSlice{.first_layer = stage,
                              .last_layer = stage + 1,
                              .embedding = stage == 0,
                              .head = stage + 1 == run.parallel.pipeline},
          .own_slot = false};
}

std::size_t largest_workspace(const MeshRun& run) {
  std::size_t bytes = 0;
  for (int stage = 0; stage < run.parallel.pipeline; ++stage) {
    bytes = std::max(bytes, Stage::workspace_bytes(run.model, stage_options(run, stage), 1));
  }
  return bytes;
}

Matrix matrix_of(const Tensor& tensor) {
  const std::span<const float> values = tensor.span<float>();
  return {static_cast<std::size_t>(tensor.dim(0)),
          static_cast<std::size_t>(tensor.dim(1)),
          {values.begin(), values.end()}};
}

void write(const Matrix& matrix, const Tensor& tensor) {
  std::ranges::transform(matrix.values, tensor.span<float>().begin(), [](double value) {
    return static_cast<float>(value);
  });
}

}  // namespace

OptimusCcOracle::OptimusCcOracle(const MeshRun& run, const OptimusCcRules& rules)
    : run_(run),
      rules_(rules),
      parameters_(run.model, {}),
      stream_({.num_threads = 1, .workspace_bytes = largest_workspace(run)}) {
  set_initial_weights(stream_, parameters_, kSeed);
  const auto tokens = static_cast<std::size_t>(run.micro_batch * run.model.sequence);
  const auto C = static_cast<std::size_t>(run.model.hidden);
  for (int stage = 0; stage < run.parallel.pipeline; ++stage) {
    const Stage::Options options = stage_options(run, stage);
    stages_.emplace_back(parameters_, run.model, options);
    slots_.emplace_back(Stage::activation_bytes(run.model, options));
  }
  boundaries_.resize(static_cast<std::size_t>(run.parallel.data));
  for (auto& senders : boundaries_) {
    for (int stage = 1; stage < run.parallel.pipeline; ++stage) {
      senders.emplace_back(first_right("pipeline_backward/" + std::to_string(stage), tokens, C));
    }
  }
  for (const Parameter& parameter : parameters_.all()) {
    if (compresses_gradient(parameter.spec)) {
      const Matrix nothing(static_cast<std::size_t>(parameter.spec.shape[0]),
                           static_cast<std::size_t>(parameter.spec.shape[1]));
      sums_.try_emplace(parameter.spec.name,
                        first_right(parameter.spec.name, nothing.rows, nothing.columns),
                        std::vector<Matrix>(static_cast<std::size_t>(run.parallel.data), nothing));
    }
  }
}

// Normal numbers, as the codecs draw them: the one thing that both sides have to know alike.
Matrix OptimusCcOracle::first_right(const std::string& name,
                                    std::size_t rows,
                                    std::size_t columns) const {
  Matrix right(std::min({rows, columns, static_cast<std::size_t>(rules_.rank)}), columns);
  const PhiloxKey key = philox_key(kSeed, "codec/right_factor/" + name);
  for (std::size_t i = 0; i < right.values.size(); ++i) {
    right.values[i] = static_cast<float>(normal_pair(key, i / 2)[i % 2]);
  }
  return right;
}

// Stage s of S sends while those before it still have forward passes, until the cool-down: the last
// S - s micro-batches' gradients meet ranks that do nothing but wait for them.
bool OptimusCcOracle::compresses_message(int stage, int micro_batch) const {
  const auto count = static_cast<int>(run_.global_batch / (run_.micro_batch * run_.parallel.data));
  const int epilogue = run_.parallel.pipeline - stage;
  return !rules_.epilogue_only || micro_batch >= count - epilogue;
}

// Every matrix of the first stages but the tied table, which both ends of the model share.
bool OptimusCcOracle::compresses_gradient(const ParameterSpec& spec) const {
  if (spec.shape.rank() != 2 || spec.name == "wte.weight") {
    return false;
  }
  const int stage = spec.part == ModelPart::layer ? spec.layer : 0;
  return stage < rules_.stages;
}

void OptimusCcOracle::run_micro_batch(const Pass& pass, int data_rank, int micro_batch) {
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    stages_[s].prepare(slots_[s], {.B = pass.B(), .T = pass.T()});
    if (s > 0) {
      write(matrix_of(stages_[s - 1].output(slots_[s - 1])), stages_[s].input(slots_[s]));
    }
    stages_[s].forward(pass, slots_[s]);
  }
  const auto tokens = static_cast<float>(run_.global_batch * run_.model.sequence);
  for (std::size_t s = stages_.size(); s-- > 0;) {
    stages_[s].backward(pass, 1.0F / tokens, slots_[s]);
    if (s == 0) {
      continue;
    }
    Matrix gradient = matrix_of(stages_[s].gradient(slots_[s]));
    if (compresses_message(static_cast<int>(s), micro_batch)) {
      gradient = boundaries_[static_cast<std::size_t>(data_rank)][s - 1].send(gradient);
    }
    write(gradient, stages_[s - 1].gradient(slots_[s - 1]));
  }
}

OptimusCcOracle::Tensors OptimusCcOracle::gradients_of_rank(int step, int data_rank) {
  for (Stage& stage : stages_) {
    stage.begin_step(stream_);
  }
  RankBatches batches(run_, data_rank, step);
  for (std::size_t m = 0; m < batches.micro_batches().size(); ++m) {
    run_micro_batch({.stream = stream_,
                     .sum = &no_sum_,
                     .batch = batches.micro_batches()[m],
                     .accumulate = m == 0 ? Accumulate::no : Accumulate::yes,
                     .losses = &losses_},
                    data_rank,
                    static_cast<int>(m));
  }
  static_cast<void>(losses_.take(stream_));
  for (Stage& stage : stages_) {
    stage.finish_gradients(stream_);
  }
  Tensors gradients;
  for (const Parameter& parameter : parameters_.all()) {
    const std::span<const float> values = parameter.gradient.span<float>();
    gradients[parameter.spec.name] = {values.begin(), values.end()};
  }
  return gradients;
}

OptimusCcOracle::Tensors OptimusCcOracle::gradients(int step) {
  if (rules_.forgets_between_steps) {
    for (auto& senders : boundaries_) {
      std::ranges::for_each(senders, &reference::LazySender::forget_what_is_owed);
    }
  }
  std::vector<Tensors> of_ranks;
  of_ranks.reserve(static_cast<std::size_t>(run_.parallel.data));
  for (int data_rank = 0; data_rank < run_.parallel.data; ++data_rank) {
    of_ranks.push_back(gradients_of_rank(step, data_rank));
  }
  Tensors sums;
  for (const Parameter& parameter : parameters_.all()) {
    const std::string& name = parameter.spec.name;
    const Shape& shape = parameter.spec.shape;
    const auto rows = static_cast<std::size_t>(shape[0]);
    std::vector<Matrix> parts;
    parts.reserve(of_ranks.size());
    for (const Tensors& of_rank : of_ranks) {
      parts.emplace_back(rows, shape.num_elements() / rows, of_rank.at(name));
    }
    if (const auto compressed = sums_.find(name); compressed != sums_.end()) {
      sums[name] = compressed->second.sum(parts).values;
      continue;
    }
    Matrix sum = parts.front();
    for (std::size_t rank = 1; rank < parts.size(); ++rank) {
      sum = reference::combined(sum, 1.0, parts[rank]);
    }
    sums[name] = sum.values;
  }
  return sums;
}

}  // namespace slackline::testing
