// What is measured of compressed messages over meshes, against the same numbers computed from a
// model without pipeline and from a run without compression.

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "model/stage.h"
#include "parallel/mesh/stage_split.h"
#include "parallel/plan/compression_quality.h"
#include "tests/equivalence/initial_weights.h"
#include "tests/equivalence/sampled_step.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

using schedule::Phase;
using schedule::Site;
using schedule::TransferClass;

using ClassSums = std::map<TransferClass, MessageSums>;

// What ranks measured, added up over all of them.
class AllRanks {
 public:
  void add(StepSamples samples) {
    const std::vector<TransferClass> classes = samples.classes();
    const std::vector<MessageSums> sums = samples.finish();
    for (std::size_t i = 0; i < classes.size(); ++i) {
      add(classes[i], sums[i]);
    }
  }

  void add(const TransferClass& members, const MessageSums& sums) {
    const std::lock_guard lock(mutex_);
    sums_[members] += sums;
  }

  [[nodiscard]] const ClassSums& sums() const { return sums_; }

 private:
  std::mutex mutex_;
  ClassSums sums_;
};

// Gradients that the second of two stages sends back and the inputs that it had, by micro-batch:
// from one process that runs one stage after the other.
struct Boundary {
  std::vector<std::vector<float>> gradients{};
  std::vector<std::vector<float>> inputs{};
};

Boundary boundary_of(const MeshRun& run, const std::vector<MicroBatch>& micro_batches) {
  const std::vector<ChunkSlice> chunks = split_layers(run.model, run.parallel);
  const BatchShape shape{.B = run.micro_batch, .T = run.model.sequence};
  const auto options = [&](std::size_t stage) {
    return Stage::Options{.micro_batch = shape, .chunk = chunks[stage], .own_slot = false};
  };
  Parameters parameters(run.model, {});
  Stream stream({.num_threads = 1,
                 .workspace_bytes = std::max(Stage::workspace_bytes(run.model, options(0), 1),
                                             Stage::workspace_bytes(run.model, options(1), 1))});
  set_initial_weights(stream, parameters, kSeed);
  Stage first(parameters, run.model, options(0));
  Stage second(parameters, run.model, options(1));
  ActivationSlot first_slot(Stage::activation_bytes(run.model, options(0)));
  ActivationSlot second_slot(Stage::activation_bytes(run.model, options(1)));
  NoTensorSum sum;
  const auto tokens = static_cast<double>(run.global_batch * run.model.sequence);
  Boundary boundary;
  LossSum losses;
  for (const MicroBatch& batch : micro_batches) {
    const Pass pass{
        .stream = stream, .sum = &sum, .batch = batch, .seed = kSeed, .losses = &losses};
    first.forward(pass, first_slot);
    boundary.inputs.push_back(values_of(first.output(first_slot)));
    second.prepare(second_slot, shape);
    std::copy(boundary.inputs.back().begin(),
              boundary.inputs.back().end(),
              second.input(second_slot).data<float>());
    second.forward(pass, second_slot);
    second.backward(pass, static_cast<float>(1.0 / tokens), second_slot);
    boundary.gradients.push_back(values_of(second.gradient(second_slot)));
  }
  return boundary;
}

// One tensor rank's part of a boundary tensor; tokens divide over the ranks.
std::span<float> share_of(std::vector<float>& values, int rank, int size) {
  const std::size_t count = values.size() / static_cast<std::size_t>(size);
  return std::span(values).subspan(static_cast<std::size_t>(rank) * count, count);
}

template <typename Values>
double sum(const Values& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

std::vector<double> difference(std::span<const float> a, std::span<const float> b) {
  std::vector<double> values(a.size());
  std::transform(
      a.begin(), a.end(), b.begin(), values.begin(), [](double x, double y) { return x - y; });
  return values;
}

MessageSums message_sums(std::span<const float> raw,
                         std::span<const float> sent,
                         std::span<const float> residual) {
  const std::vector<double> lost = difference(raw, sent);
  return {.elements = static_cast<double>(raw.size()),
          .raw = dot(raw, raw),
          .sent = dot(sent, sent),
          .product = dot(raw, sent),
          .error = dot(lost, lost),
          .residual = dot(residual, residual)};
}

MessageSums pair_sums(std::span<const float> left, const std::vector<double>& step) {
  return {.pair_elements = static_cast<double>(left.size()),
          .left = dot(left, left),
          .left_sum = sum(left),
          .difference = dot(step, step),
          .difference_sum = sum(step),
          .left_by_difference = dot(left, step)};
}

// Sends one tensor rank's share of every micro-batch through a codec with lazy feedback.
void add_expected(Boundary boundary, int rank, int size, std::int64_t C, AllRanks& expected) {
  const std::size_t count = boundary.gradients.front().size() / static_cast<std::size_t>(size);
  const MatrixShape shape{.rows = static_cast<std::int64_t>(count) / C, .columns = C};
  const auto codec = make_codec(
      kLazyRankTwo, std::vector<CodecPart>{{.name = "pipeline_backward/1", .shape = shape}}, kSeed);
  Stream stream({.num_threads = 1, .workspace_bytes = codec->workspace_bytes(1)});
  std::vector<float> residual(count, 0.0F);
  std::vector<float> sent(count);
  std::vector<std::uint8_t> frame(codec->frame_bytes());
  const auto matrix = [&](std::span<float> values) {
    return Codec::Matrices{Tensor(values).reshaped({shape.rows, shape.columns})};
  };
  const std::size_t last = boundary.gradients.size() - 1;
  for (std::size_t m = 0; m <= last; ++m) {
    const std::span<float> raw = share_of(boundary.gradients[m], rank, size);
    codec->encode(stream,
                  matrix(raw),
                  matrix(residual),
                  {.seed = kSeed, .step = 1, .micro_batch = m},
                  Tensor(std::span(frame)));
    codec->settle(stream, Tensor(std::span(frame)), matrix(residual));
    codec->decode(stream, Tensor(std::span(frame)), matrix(sent), false);
    const TransferClass members{.site = Site::pipeline_backward,
                                .stage = 1,
                                .phase = m == last ? Phase::cooldown : Phase::steady};
    if (m == 0 || m == last) {
      expected.add(members, message_sums(raw, sent, residual));
    }
    if (m < last) {
      expected.add(members,
                   pair_sums(residual,
                             difference(share_of(boundary.inputs[m], rank, size),
                                        share_of(boundary.inputs[m + 1], rank, size))));
    }
  }
}

// Each field relative to the sizes it is made of: `tolerance` is for what tensor ranks round.
void require_close(const MessageSums& found, const MessageSums& due, double tolerance) {
  const auto near = [&](double a, double b, double scale) {
    return std::abs(a - b) <= tolerance * scale;
  };
  REQUIRE(found.elements == due.elements);
  REQUIRE(found.pair_elements == due.pair_elements);
  REQUIRE(near(found.raw, due.raw, due.raw));
  REQUIRE(near(found.sent, due.sent, due.sent));
  REQUIRE(near(found.product, due.product, std::sqrt(due.raw * due.sent)));
  REQUIRE(near(found.error, due.error, due.error));
  REQUIRE(near(found.residual, due.residual, due.residual));
  REQUIRE(near(found.left, due.left, due.left));
  REQUIRE(near(found.difference, due.difference, due.difference));
  REQUIRE(
      near(found.left_by_difference, due.left_by_difference, std::sqrt(due.left * due.difference)));
  REQUIRE(near(found.left_sum, due.left_sum, std::sqrt(due.left * due.pair_elements)));
  REQUIRE(near(
      found.difference_sum, due.difference_sum, std::sqrt(due.difference * due.pair_elements)));
}

// The stage whose gradients a matrix's are, by its logical name.
int stage_of(const MeshRun& run, const ParameterSpec& spec) {
  const std::vector<ChunkSlice> chunks = split_layers(run.model, run.parallel);
  int stage = 0;
  while (spec.part == ModelPart::layer &&
         spec.layer >= chunks[static_cast<std::size_t>(stage)].last_layer) {
    ++stage;
  }
  return stage;
}

// Sums of what each stage's gradients lose, from whole runs with and without compression.
ClassSums gradient_sums(const MeshRun& plain, const MeshRun& run) {
  const LogicalTensors raw = run_mesh(plain).gradients;
  const LogicalTensors sent = run_mesh(run).gradients;
  ClassSums sums;
  for (const ParameterSpec& spec : parameter_table(run.model)) {
    if (spec.shape.rank() == 2 && raw.contains(spec.name) && spec.name != "wte.weight") {
      sums[{.site = Site::data_gradient, .stage = stage_of(run, spec), .phase = Phase::tail}] +=
          message_sums(raw.at(spec.name), sent.at(spec.name), {});
    }
  }
  return sums;
}

}  // namespace

TEST_CASE("what is measured of a boundary is what its messages lose, over tensor and data ranks") {
  for (const int tensor : {1, 2}) {
    for (const bool sequence_parallel : {false, true}) {
      INFO("tensor " << tensor << (sequence_parallel ? ", sequence parallel" : ""));
      MeshRun run = compressed(run_of(tensor, 2, 2), "pipeline_backward", kLazyRankTwo);
      run.parallel.sequence_parallel = sequence_parallel && tensor > 1;
      AllRanks found;
      AllRanks due;
      run_step(run, [&](MeshModel& model, const std::vector<MicroBatch>& micro_batches) {
        found.add(*model.channels().take_samples());
        if (model.groups().tensor_rank() == 0 && model.groups().pipeline_rank() == 0) {
          const Boundary boundary = boundary_of(run, micro_batches);
          for (int rank = 0; rank < tensor; ++rank) {
            add_expected(boundary, rank, tensor, run.model.hidden, due);
          }
        }
      });
      REQUIRE(found.sums().size() == 2);
      REQUIRE(due.sums().size() == 2);
      // Residuals are f32. Sums of tensor ranks round otherwise, and a projection onto few
      // directions can enlarge that.
      const double tolerance = tensor == 1 ? 1e-6 : 1e-3;
      for (const auto& [members, sums] : due.sums()) {
        INFO(schedule::phase_name(members.phase));
        REQUIRE(sums.error > 0.1 * sums.raw);
        require_close(found.sums().at(members), sums, tolerance);
      }
    }
  }
}

TEST_CASE("what is measured of gradients is what the sum over ranks loses") {
  for (const bool adds : {true, false}) {
    INFO((adds ? "sums" : "frames"));
    const CodecSetting setting{.kind = adds ? CodecKind::low_rank : CodecKind::top_k,
                               .error_feedback = ErrorFeedback::immediate,
                               .always = true,
                               .rank = 1,
                               .ratio = 0.1};
    const MeshRun plain = run_of(2, 2, 2);
    const MeshRun run = compressed(plain, "data_gradient", setting);
    ClassSums due = gradient_sums(plain, run);
    REQUIRE(due.size() == 2);
    AllRanks found;
    run_step(run, [&](MeshModel& model, const std::vector<MicroBatch>& /*micro_batches*/) {
      found.add(*model.channels().take_samples());
    });
    REQUIRE(found.sums().size() == 2);
    for (auto& [members, sums] : due) {
      INFO("stage " << members.stage);
      sums.residual = sums.error;  // after a first step what was lost is what is owed
      REQUIRE(sums.error > 0.1 * sums.raw);
      require_close(found.sums().at(members), sums, 1e-5);  // f32 sums over ranks here
    }
  }
}

}  // namespace slackline::testing
