#include "tools/run/step_recorder.h"

#include <vector>

#include "core/comm/world.h"
#include "tests/support/catch.h"
#include "tests/tools/plan/planned_job.h"

namespace slackline {

namespace {

constexpr CodecSetting kUsed{.rank = 4};
constexpr CodecSetting kCandidate{.rank = 8};

CodecTimes codec_times(const CodecSetting& setting, std::int64_t elements, double seconds) {
  return {.setting = setting,
          .shape = {elements},
          .sent_bytes = 64,
          .encode = {.seconds = 2 * seconds, .calls = 2},
          .decode = {.seconds = seconds, .calls = 1}};
}

// A step with one pass of each direction.
MeshModel::StepTimes step_times(double forward) {
  MeshModel::StepTimes times;
  times.ops = {{.op = {.kind = schedule::OpKind::forward}, .begin = 1.0, .end = 1.0 + forward},
               {.op = {.kind = schedule::OpKind::backward}, .begin = 6.0, .end = 8.0}};
  times.update_begin = 8.0;
  times.update_end = 8.5;
  return times;
}

// What two data ranks record, of whom rank 1 takes `slower` times as long for a forward pass.
StepCosts recorded(double slower) {
  const MeshJob job = planned_config({"parallel.data=2", "batch.micro=1"}).mesh_job();
  StepCosts costs;
  run_local_ranks(2, {}, [&](Communicator& world) {
    Groups groups(world, job.parallel, job.model.tie_embeddings);
    StepRecorder recorder(job, groups);
    MeshModel::StepTimes times = step_times(world.rank() == 0 ? 1.0 : slower);
    times.codecs = {codec_times(kUsed, 100, world.rank() == 0 ? 0.25 : 0.5)};
    Wait gather;
    gather.record.wait_begin = 1.25;
    gather.record.wait_end = 1.75;
    recorder.add(times, {gather});
    recorder.add_codecs_beside_steps(
        {codec_times(kUsed, 50, 0.125), codec_times(kCandidate, 50, 0.125)});
    const StepCosts found = recorder.costs();
    if (world.rank() == 0) {
      costs = found;
    }
  });
  return costs;
}

}  // namespace

TEST_CASE("an op's cost is that of the slowest rank, without its waits") {
  const StepCosts costs = recorded(3.0);
  CHECK(costs.of_stage(0, CostKind::forward)->value == Approx(3.0 - 0.5));
  CHECK(costs.of_stage(0, CostKind::backward)->value == Approx(2.0));
  CHECK(costs.of_stage(0, CostKind::optimizer)->value == Approx(0.5));
}

TEST_CASE("what a codec took in steps replaces what it took beside them") {
  const StepCosts costs = recorded(1.0);
  REQUIRE(costs.codecs.size() == 2);
  CHECK(costs.of_codec(kUsed, {100})->encode.value == Approx(0.5));
  CHECK(costs.of_codec(kUsed, {50})->encode.value == Approx(0.25));  // scaled, of the slower rank
  CHECK(costs.of_codec(kCandidate, {50})->encode.value == Approx(0.125));
}

}  // namespace slackline
