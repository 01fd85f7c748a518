// A codec is a class behind Codec: one that no setting names codes the messages and sums of a step
// like the others, and is told from them by nothing.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compress/frame.h"
#include "core/comm/forwarding_communicator.h"
#include "core/comm/world.h"
#include "core/threads/worker.h"
#include "tests/equivalence/distance.h"
#include "tests/equivalence/mesh_run.h"
#include "tests/support/catch.h"
#include "tests/support/unowned.h"

namespace slackline::testing {

namespace {

constexpr std::size_t kPlaces = 2;

// Whether a message of a step has an element, by its place in the matrix.
bool is_sent(std::size_t place, std::uint64_t step) {
  return place % kPlaces == (step + 1) % kPlaces;
}

// Sends every second element: in odd steps the first, the third and so on, in even steps the
// others. A frame has a float that tells the step's parity, then the elements of each matrix.
class EverySecond final : public Codec {
 public:
  explicit EverySecond(std::vector<CodecPart> parts)
      : Codec(bytes_of(parts)), parts_(std::move(parts)) {}

  [[nodiscard]] static std::size_t bytes_of(const std::vector<CodecPart>& parts) {
    std::size_t floats = 1;
    for (const CodecPart& part : parts) {
      floats += kept(part);
    }
    return floats * sizeof(float);
  }

  void encode(StreamView /*stream*/,
              const Matrices& values,
              const Matrices& residual,
              const MessageKey& key,
              const Tensor& frame) override {
    const std::span<float> sent = floats_of(frame);
    sent[0] = static_cast<float>(key.step % kPlaces);
    for (std::size_t m = 0; m < parts_.size(); ++m) {
      std::span<const float> from = values[m].span<float>();
      if (!residual.empty()) {
        const std::span<float> owed = residual[m].span<float>();
        std::transform(from.begin(), from.end(), owed.begin(), owed.begin(), std::plus<>());
        from = owed;
      }
      for_each_sent(frame, m, [&](std::size_t place, float& value) { value = from[place]; });
    }
  }

  void settle(StreamView /*stream*/, const Tensor& frame, const Matrices& residual) override {
    for (std::size_t m = 0; m < parts_.size(); ++m) {
      const std::span<float> owed = residual[m].span<float>();
      for_each_sent(frame, m, [&](std::size_t place, float& value) { owed[place] -= value; });
    }
  }

  void decode(StreamView /*stream*/,
              const Tensor& frame,
              const Matrices& out,
              bool accumulate) const override {
    for (std::size_t m = 0; m < parts_.size(); ++m) {
      const std::span<float> to = out[m].span<float>();
      if (!accumulate) {
        std::ranges::fill(to, 0.0F);
      }
      for_each_sent(frame, m, [&](std::size_t place, float& value) { to[place] += value; });
    }
  }

  [[nodiscard]] std::size_t workspace_bytes(const Workers& /*workers*/) const override { return 0; }

 private:
  [[nodiscard]] static std::size_t kept(const CodecPart& part) {
    return (part.shape.num_elements() + 1) / kPlaces;
  }

  [[nodiscard]] static std::span<float> floats_of(const Tensor& frame) {
    const auto count = static_cast<std::int64_t>(frame.bytes() / sizeof(float));
    return frame_part(frame, 0, DType::f32, {count}).span<float>();
  }

  // Calls visit(place in the matrix, its element in the frame).
  template <typename Visit>
  void for_each_sent(const Tensor& frame, std::size_t matrix, Visit visit) const {
    const std::span<float> sent = floats_of(frame);
    std::size_t at = 1;
    for (std::size_t m = 0; m < matrix; ++m) {
      at += kept(parts_[m]);
    }
    const auto step = static_cast<std::uint64_t>(sent[0]);
    for (std::size_t place = 0; place < parts_[matrix].shape.num_elements(); ++place) {
      if (is_sent(place, step)) {
        visit(place, sent[at++]);
      }
    }
  }

  std::vector<CodecPart> parts_;
};

MeshRun run_of(const ParallelConfig& parallel) {
  return {.model = {.layers = 2, .hidden = 16, .heads = 2, .sequence = 8, .vocab = 29, .ffn = 32},
          .parallel = parallel,
          .global_batch = 8,
          .steps = 1};
}

// With the toy where a plan has put a codec of frames.
MeshRun with_toy(MeshRun run, const std::string& site, ErrorFeedback feedback) {
  run.compress.policy = CompressionPolicy::all;
  run.compress.sites[site] = {
      .kind = CodecKind::top_k, .error_feedback = feedback, .always = true, .ratio = 0.5};
  run.makers.codecs = [](const CodecRequest& request) {
    return std::make_unique<EverySecond>(request.parts);
  };
  return run;
}

// Zeroes in activations that arrive what the toy leaves out in step 1.
class HalfReceiver final : public ForwardingCommunicator {
 public:
  explicit HalfReceiver(Communicator& real) : ForwardingCommunicator(unowned(real)) {}

  explicit HalfReceiver(std::unique_ptr<Communicator> real)
      : ForwardingCommunicator(std::move(real)) {}

  [[nodiscard]] Transfer submit(Operation operation) override {
    if (operation.kind == Kind::receive && operation.note.what == std::string("activations")) {
      const auto halve = [data = operation.data] {
        const std::span<float> values = data.span<float>();
        for (std::size_t i = 0; i < values.size(); ++i) {
          values[i] = is_sent(i, 1) ? values[i] : 0.0F;
        }
      };
      operation.work = {.worker = worker_, .after = halve};
    }
    return real().submit(std::move(operation));
  }

  [[nodiscard]] std::unique_ptr<Communicator> group(const std::string& name,
                                                    const std::vector<int>& members,
                                                    Urgency urgency) override {
    return std::make_unique<HalfReceiver>(real().group(name, members, urgency));
  }

 private:
  std::shared_ptr<Worker> worker_ = std::make_shared<Worker>();
};

// Runs `visit(model, step)` on every rank after the passes of each step; weights stay as they are.
template <typename Visit>
void run_passes(const MeshRun& run, int steps, Visit visit) {
  run_local_ranks(run.parallel.num_ranks(), {.timeout_seconds = 60.0}, [&](Communicator& world) {
    Groups groups(world, run.parallel, run.model.tie_embeddings);
    MeshModel model(run.options(), groups);
    model.initialize(kSeed);
    for (int step = 1; step <= steps; ++step) {
      RankBatches batches(run, model, step);
      static_cast<void>(model.make_gradients(batches.micro_batches()));
      visit(model, static_cast<std::uint64_t>(step));
    }
  });
}

using Values = std::vector<float>;

Values values_of(const Tensor& tensor) {
  const std::span<const float> values = tensor.span<float>();
  return {values.begin(), values.end()};
}

constexpr const char* kMatrix = "h.1.mlp.c_fc.weight";

// By rank and step; the matrix's gradient after the passes, and what the rank then owes of it.
struct Observed {
  std::vector<std::vector<Values>> gradients{};
  std::vector<std::vector<Values>> residuals{};
};

Observed observe(const MeshRun& run, int steps) {
  const auto ranks = static_cast<std::size_t>(run.parallel.num_ranks());
  Observed seen{.gradients = std::vector<std::vector<Values>>(ranks),
                .residuals = std::vector<std::vector<Values>>(ranks)};
  run_passes(run, steps, [&](MeshModel& model, std::uint64_t /*step*/) {
    const auto rank = static_cast<std::size_t>(model.groups().world->rank());
    seen.gradients[rank].push_back(values_of(model.parameters().at(kMatrix).gradient));
    for (const ChannelState& state : model.channels().state()) {
      if (state.name == "residual/data_gradient/" + std::string(kMatrix)) {
        seen.residuals[rank].push_back(values_of(state.data));
      }
    }
  });
  return seen;
}

}  // namespace

TEST_CASE("what a codec of a test decodes is what the next stage computes with") {
  const MeshRun plain = run_of({.pipeline = 2});
  const MeshRun toy = with_toy(plain, "pipeline_forward", ErrorFeedback::none);
  const MeshRunResult expected = run_mesh(
      plain, {.world = [](Communicator& world) { return std::make_unique<HalfReceiver>(world); }});
  const MeshRunResult result = run_mesh(toy);
  CHECK(bit_differences(result, expected) == "");
  CHECK(result.losses != run_mesh(plain).losses);
}

TEST_CASE("messages between stages have the bytes of a test's codec") {
  const MeshRun run = with_toy(run_of({.pipeline = 2}), "pipeline_forward", ErrorFeedback::lazy);
  const CodecPart share{
      .name = "share",
      .shape = {.rows = run.micro_batch * run.model.sequence, .columns = run.model.hidden}};
  const std::size_t messages = static_cast<std::size_t>(run.global_batch / run.micro_batch);
  std::vector<std::size_t> sent(2);
  run_passes(run, 1, [&](MeshModel& model, std::uint64_t /*step*/) {
    sent[static_cast<std::size_t>(model.groups().pipeline_rank())] =
        model.groups().forward->bytes_sent();
  });
  CHECK(sent == std::vector<std::size_t>{messages * EverySecond::bytes_of({share}), 0});
}

TEST_CASE("a sum by a test's codec is of what it decodes, and what it owes comes a step later") {
  const MeshRun plain = run_of({.data = 2});
  const Observed whole = observe(plain, 2);
  const Observed toy = observe(with_toy(plain, "data_gradient", ErrorFeedback::immediate), 2);
  REQUIRE(toy.residuals[0].size() == 2);
  const Values& first = whole.gradients[0][0];
  const Values& second = whole.gradients[0][1];
  const auto owed = [&](std::size_t step, std::size_t i) {
    return toy.residuals[0][step][i] + toy.residuals[1][step][i];
  };
  std::vector<std::size_t> wrong_sums;
  std::vector<std::size_t> wrong_debts;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const bool now = is_sent(i, 1);  // else a step later
    const Approx both = Approx(first[i] + second[i]).margin(1e-7);
    for (const std::vector<Values>& sums : toy.gradients) {
      if (sums[0][i] != (now ? first[i] : 0.0F) ||
          !(now ? sums[1][i] == 0.0F : sums[1][i] == both)) {
        wrong_sums.push_back(i);
      }
    }
    if (owed(0, i) != (now ? 0.0F : first[i]) || owed(1, i) != (now ? second[i] : 0.0F)) {
      wrong_debts.push_back(i);
    }
  }
  INFO("first " << (wrong_sums.empty() ? 0 : wrong_sums.front()) << " and "
                << (wrong_debts.empty() ? 0 : wrong_debts.front()));
  CHECK(wrong_sums.empty());
  CHECK(wrong_debts.empty());
}

TEST_CASE("sums have the bytes of a test's codec") {
  const MeshRun run = with_toy(run_of({.data = 2}), "data_gradient", ErrorFeedback::lazy);
  using Bytes = std::vector<std::size_t>;
  std::vector<Bytes> gathered(2);  // by rank, in the second step
  std::vector<Bytes> due(2);
  run_passes(run, 2, [&](MeshModel& model, std::uint64_t step) {
    Communicator& data = *model.groups().data;
    if (step == 1) {
      data.record_transfers(true);
      return;
    }
    const auto rank = static_cast<std::size_t>(data.rank());
    for (const TransferRecord& record : data.take_records()) {
      if (record.kind == TransferRecord::Kind::all_gather) {
        gathered[rank].push_back(record.bytes_sent);
      }
    }
    std::vector<CodecPart> matrices;
    for (const Parameter& parameter : model.parameters().all()) {
      const Shape& shape = parameter.shard.shape;
      if (shape.rank() == 2 && parameter.spec.name != "wte.weight") {  // the tied table
        matrices.push_back(
            {.name = parameter.spec.name, .shape = {.rows = shape[0], .columns = shape[1]}});
      }
    }
    due[rank].push_back(EverySecond::bytes_of(matrices));
  });
  CHECK(gathered == due);
}

}  // namespace slackline::testing
