// What is measured of compressed messages over meshes, against the same numbers computed from a
// model without pipeline and from a run without compression; and what a change of plan keeps.

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "core/comm/world.h"
#include "model/stage.h"
#include "parallel/compression_quality.h"
#include "parallel/stage_split.h"
#include "tests/equivalence/mesh_run.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

using schedule::Phase;
using schedule::Site;
using schedule::TransferClass;

using ClassSums = std::map<TransferClass, MessageSums>;

constexpr CodecSetting kLazyRankTwo = {
    .kind = CodecKind::low_rank, .error_feedback = ErrorFeedback::lazy, .always = true, .rank = 2};

// Catch2 counts on one thread at a time.
std::mutex& check_mutex() {
  static std::mutex mutex;
  return mutex;
}

// So small that a sample takes every element of its matrices.
MeshRun run_of(int tensor, int pipeline, int data) {
  MeshRun run{.model = {.layers = 2,
                        .hidden = 8,
                        .heads = 2,
                        .sequence = 12,
                        .vocab = 67,
                        .ffn = 16,
                        .dropout = 0.0F}};
  run.parallel.tensor = tensor;
  run.parallel.pipeline = pipeline;
  run.parallel.data = data;
  run.global_batch = run.micro_batch * data * 4;
  return run;
}

MeshRun compressed(MeshRun run, const std::string& site, const CodecSetting& setting) {
  run.compress.policy = CompressionPolicy::all;
  run.compress.sites[site] = setting;
  return run;
}

// Runs the passes of one step on every rank, sampled, and what a test does with its model then.
template <typename Then>
void run_step(const MeshRun& run, Then then) {
  run_local_ranks(run.parallel.num_ranks(), {.timeout_seconds = 60.0}, [&](Communicator& world) {
    Groups groups(world, run.parallel, run.model.tie_embeddings);
    MeshModel::Options options = run.options();
    options.sample_every = 1;
    MeshModel model(options, groups);
    initialize(model.stream(), model.parameters(), kSeed);
    RankBatches batches(run, model, 1);
    static_cast<void>(model.make_gradients(batches.micro_batches()));
    then(model, batches.micro_batches());
  });
}

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

std::vector<float> values_of(const Tensor& tensor) {
  const std::span<const float> values = tensor.span<float>();
  return {values.begin(), values.end()};
}

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
  initialize(stream, parameters, kSeed);
  Stage first(parameters, run.model, options(0));
  Stage second(parameters, run.model, options(1));
  ActivationSlot first_slot(Stage::activation_bytes(run.model, options(0)));
  ActivationSlot second_slot(Stage::activation_bytes(run.model, options(1)));
  NoTensorSum sum;
  const auto tokens = static_cast<double>(run.global_batch * run.model.sequence);
  Boundary boundary;
  for (const MicroBatch& batch : micro_batches) {
    const Pass pass{.stream = stream, .sum = &sum, .batch = batch, .seed = kSeed};
    first.forward(pass, first_slot);
    boundary.inputs.push_back(values_of(first.output(first_slot)));
    second.prepare(second_slot, shape);
    std::copy(boundary.inputs.back().begin(),
              boundary.inputs.back().end(),
              second.input(second_slot).data<float>());
    second.forward(pass, second_slot);
    static_cast<void>(second.backward(pass, static_cast<float>(1.0 / tokens), second_slot));
    boundary.gradients.push_back(values_of(second.gradient(second_slot)));
  }
  return boundary;
}

// One tensor rank's part of a boundary tensor; tokens divide over the ranks.
std::span<float> share_of(std::vector<float>& values, int rank, int size) {
  const std::size_t count = values.size() / static_cast<std::size_t>(size);
  return std::span(values).subspan(static_cast<std::size_t>(rank) * count, count);
}

template <typename A, typename B>
double dot(const A& a, const B& b) {
  return std::inner_product(
      a.begin(), a.end(), b.begin(), 0.0, std::plus<>(), [](double x, double y) { return x * y; });
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
      const std::vector<double> step = difference(share_of(boundary.inputs[m], rank, size),
                                                  share_of(boundary.inputs[m + 1], rank, size));
      expected.add(members,
                   {.pair_elements = static_cast<double>(count),
                    .left = dot(residual, residual),
                    .left_sum = sum(residual),
                    .difference = dot(step, step),
                    .difference_sum = sum(step),
                    .left_by_difference = dot(residual, step)});
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

// All residuals that ranks keep, by what begins their names; each once.
std::map<std::string, std::vector<float>> residuals_of(Compression& compression) {
  std::map<std::string, std::vector<float>> residuals;
  for (const CompressionState& state : compression.state()) {
    if (!state.name.ends_with(".right_factor")) {
      residuals[state.name] = values_of(state.data);
    }
  }
  return residuals;
}

PlanFromStep changed(const PlanHistory& plans, Site site, int rank) {
  PlanFromStep next{.from_step = 2, .plan = plans.back().plan};
  for (CompressionPlan::Class& row : next.plan.classes) {
    if (row.members.site == site) {
      row.codec->rank = rank;
    }
  }
  return next;
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
        found.add(*model.compression().take_samples());
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
    const LogicalTensors raw = run_mesh(plain).gradients;
    const LogicalTensors sent = run_mesh(run).gradients;
    ClassSums due;
    for (const ParameterSpec& spec : parameter_table(run.model)) {
      if (spec.shape.rank() == 2 && raw.contains(spec.name) && spec.name != "wte.weight") {
        due[{.site = Site::data_gradient, .stage = stage_of(run, spec), .phase = Phase::step}] +=
            message_sums(raw.at(spec.name), sent.at(spec.name), {});
      }
    }
    REQUIRE(due.size() == 2);
    AllRanks found;
    std::mutex mutex;
    std::map<int, double> owed;
    run_step(run, [&](MeshModel& model, const std::vector<MicroBatch>& /*micro_batches*/) {
      found.add(*model.compression().take_samples());
      const std::lock_guard lock(mutex);
      std::map<const void*, double> once;
      for (const CompressionState& state : model.compression().state()) {
        if (state.saved && !state.name.ends_with(".right_factor")) {
          once[state.data.raw()] = dot(state.data.span<float>(), state.data.span<float>());
        }
      }
      for (const auto& [data, square] : once) {
        owed[model.groups().pipeline_rank()] += square;
      }
    });
    REQUIRE(found.sums().size() == 2);
    for (auto& [members, sums] : due) {
      INFO("stage " << members.stage);
      sums.residual = owed.at(members.stage);
      REQUIRE(sums.error > 0.1 * sums.raw);
      REQUIRE(sums.residual > 0.0);
      require_close(found.sums().at(members), sums, 1e-5);  // f32 sums over ranks here
    }
  }
}

TEST_CASE("a codec that is tightened keeps what its messages owe") {
  for (const char* site : {"pipeline_backward", "data_gradient"}) {
    INFO(site);
    const bool boundary = std::string(site) == "pipeline_backward";
    const MeshRun run = compressed(run_of(1, 2, 2), site, kLazyRankTwo);
    run_step(run, [&](MeshModel& model, const std::vector<MicroBatch>& /*micro_batches*/) {
      Compression& compression = model.compression();
      const auto before = residuals_of(compression);
      compression.add_plan(changed(
          compression.plans(), boundary ? Site::pipeline_backward : Site::data_gradient, 4));
      compression.begin_step(2);
      const auto after = residuals_of(compression);
      const bool has_any = !boundary || model.groups().pipeline_rank() == 1;
      const bool same = before == after;
      const bool owes = std::any_of(before.begin(), before.end(), [](const auto& residual) {
        return dot(residual.second, residual.second) > 0.0;
      });
      const std::lock_guard lock(check_mutex());
      CHECK(same);
      CHECK(owes == has_any);
    });
  }
}

// One codec serves both phases; where one of them changes, what is owed stays with the other.
TEST_CASE("phases that part and meet again owe together what they owed") {
  const MeshRun run = compressed(run_of(1, 2, 1), "pipeline_backward", kLazyRankTwo);
  run_step(run, [&](MeshModel& model, const std::vector<MicroBatch>& /*micro_batches*/) {
    Compression& compression = model.compression();
    const auto together = residuals_of(compression);
    PlanFromStep apart{.from_step = 2, .plan = compression.plans().back().plan};
    for (CompressionPlan::Class& row : apart.plan.classes) {
      if (row.codec && row.members.phase == Phase::cooldown) {
        row.codec->rank = 4;
      }
    }
    compression.add_plan(apart);
    compression.begin_step(2);
    const auto parted = residuals_of(compression);
    compression.add_plan(
        {.from_step = 3, .plan = changed(compression.plans(), Site::pipeline_backward, 4).plan});
    compression.begin_step(3);
    const auto met = residuals_of(compression);
    const bool sends = model.groups().pipeline_rank() == 1;
    const std::lock_guard lock(check_mutex());
    CHECK(together.size() == (sends ? 1 : 0));
    CHECK(parted.size() == (sends ? 2 : 0));
    CHECK(met == together);
  });
}

}  // namespace slackline::testing
