// Compressed sums of which each data rank gets its own rows alone (zero1), against the same sums on
// every rank (replicate).

#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "parallel/plan/class_bytes.h"
#include "parallel/plan/compression_quality.h"
#include "tests/equivalence/sampled_step.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

using schedule::Site;
using schedule::TransferClass;

CodecSetting quantize(int bits, ScaleOf scale, Rounding rounding = Rounding::nearest) {
  return {.kind = CodecKind::quantize,
          .error_feedback = ErrorFeedback::immediate,
          .bits = bits,
          .scale = scale,
          .group = 8,
          .rounding = rounding};
}

// What is cut by rows, with scales of every kind.
std::vector<CodecSetting> cut_codecs() {
  return {{.kind = CodecKind::cast},
          {.kind = CodecKind::cast, .error_feedback = ErrorFeedback::immediate},
          quantize(8, ScaleOf::token),
          quantize(4, ScaleOf::channel),
          quantize(2, ScaleOf::group, Rounding::stochastic),
          quantize(8, ScaleOf::tensor),
          quantize(2, ScaleOf::both)};
}

MeshRun run_on(int tensor, int pipeline, int data, DataStrategy strategy) {
  MeshRun run{.model = {.layers = 4,
                        .hidden = 24,
                        .heads = 4,
                        .sequence = 12,
                        .vocab = 67,
                        .ffn = 96,
                        .dropout = 0.0F}};
  run.parallel.tensor = tensor;
  run.parallel.pipeline = pipeline;
  run.parallel.data = data;
  run.parallel.data_strategy = strategy;
  run.global_batch = run.micro_batch * data * 2;
  return run;
}

void require_as_replicated(int tensor, int pipeline, int data) {
  for (const char* site : {"data_gradient", "embedding"}) {
    for (const CodecSetting& setting : cut_codecs()) {
      INFO(tensor << " x " << pipeline << " x " << data << ", " << site << ", "
                  << short_text(setting));
      const auto result = [&](DataStrategy strategy) {
        return run_mesh(compressed(run_on(tensor, pipeline, data, strategy), site, setting));
      };
      const MeshRunResult expected = result(DataStrategy::replicate);
      const MeshRunResult found = result(DataStrategy::zero1);
      REQUIRE(found.losses == expected.losses);
      REQUIRE(found.norms == expected.norms);
      REQUIRE(found.gradients == expected.gradients);
      REQUIRE(found.weights == expected.weights);
    }
  }
}

// The share that all classes send of what they would send plain.
double sent_share(const MeshRun& run) {
  const MeshModel::Options options = run.options();
  std::size_t sent = 0;
  std::size_t raw = 0;
  for (const ClassBytes& row :
       class_bytes(MeshLists(options.job), options.compression.front().plan)) {
    sent += row.sent;
    raw += row.raw;
  }
  return static_cast<double>(sent) / static_cast<double>(raw);
}

// Returns the share of a model wide enough that matrices are nearly all of it, with a codec for
// gradients and table.
double share_of_wide(int data, DataStrategy strategy, const CodecSetting& setting) {
  MeshRun run = run_on(1, 1, data, strategy);
  run.model.hidden = 128;
  run.model.ffn = 512;
  run = compressed(run, "data_gradient", setting);
  run.compress.sites["embedding"] = setting;
  return sent_share(run);
}

// What ranks measured of the gradients' classes in one step, added up over all of them.
std::map<TransferClass, MessageSums> sampled(const MeshRun& run) {
  std::mutex mutex;
  std::map<TransferClass, MessageSums> all;
  run_step(run, [&](MeshModel& model, const std::vector<MicroBatch>& /*micro_batches*/) {
    StepSamples samples = *model.channels().take_samples();
    const std::vector<TransferClass> classes = samples.classes();
    const std::vector<MessageSums> sums = samples.finish();
    const std::lock_guard lock(mutex);
    for (std::size_t i = 0; i < classes.size(); ++i) {
      all[classes[i]] += sums[i];
    }
  });
  return all;
}

}  // namespace

TEST_CASE("zero1 trains with the bits of replicate where messages are cut by rows") {
  require_as_replicated(1, 1, 2);
  require_as_replicated(2, 2, 2);  // the table's slices alternate between both ends
  require_as_replicated(1, 1, 3);
}

TEST_CASE("under zero1 a cast sends about half of what plain gradients send, and bytes a quarter") {
  for (const int data : {2, 4, 8}) {
    const auto share = [&](const CodecSetting& setting) {
      return share_of_wide(data, DataStrategy::zero1, setting);
    };
    INFO("data " << data);
    // Norms and biases travel plain, the biases of compressed buckets to all ranks, and each slice
    // has up to two rows more and is as long as the longest: 3 % together at this size.
    CHECK(share({.kind = CodecKind::cast}) > 0.5);
    CHECK(share({.kind = CodecKind::cast}) < 0.53);
    CHECK(share(quantize(8, ScaleOf::token)) > 0.25);
    CHECK(share(quantize(8, ScaleOf::token)) < 0.29);
  }
}

TEST_CASE(
    "in two shots a sum that all need is a quarter of the plain one, over however many ranks") {
  for (const int data : {2, 4, 8}) {
    const auto share = [&](SumWay way) {
      CodecSetting setting = quantize(8, ScaleOf::token);
      setting.sum = way;
      return share_of_wide(data, DataStrategy::replicate, setting);
    };
    INFO("data " << data);
    // A gathered message is 1/4 of 1/2 of the 2 (n - 1) / n parts of n that a plain sum sends, n
    // times; 4 % are norms, biases, scales and rows that are shared out unevenly.
    CHECK(share(SumWay::gather) == Approx(data / 8.0).epsilon(0.04));
    CHECK(share(SumWay::two_shot) == Approx(0.25).epsilon(0.06));
  }
}

TEST_CASE("samples of sums that ranks have in parts are those of whole sums") {
  for (const CodecSetting& setting : {quantize(4, ScaleOf::token), quantize(2, ScaleOf::channel)}) {
    const auto found_under = [&](DataStrategy strategy) {
      MeshRun run = compressed(run_of(1, 1, 3), "data_gradient", setting);
      run.parallel.data_strategy = strategy;
      return sampled(run);
    };
    const auto expected = found_under(DataStrategy::replicate);
    const auto found = found_under(DataStrategy::zero1);
    REQUIRE(expected.size() == 1);
    REQUIRE(found.size() == 1);
    const MessageSums& due = expected.begin()->second;
    const MessageSums& sums = found.begin()->second;
    REQUIRE(due.error > 0.001 * due.raw);
    CHECK(sums.elements == due.elements);
    CHECK(sums.raw == due.raw);
    CHECK(sums.sent == due.sent);
    CHECK(sums.product == due.product);
    CHECK(sums.error == due.error);
    // Ranks add theirs up in the order in which they end, in doubles.
    CHECK(sums.residual == Approx(due.residual).epsilon(1e-12));
  }
}

}  // namespace slackline::testing
