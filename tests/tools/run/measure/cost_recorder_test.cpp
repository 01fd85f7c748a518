#include "tools/run/measure/cost_recorder.h"

#include <cstdint>
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
  times.updated = true;
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
    CostRecorder recorder(job, groups);
    MeshModel::StepTimes times = step_times(world.rank() == 0 ? 1.0 : slower);
    times.codecs = {codec_times(kUsed, 100, world.rank() == 0 ? 0.25 : 0.5)};
    Wait gather;
    gather.record.wait_begin = 1.25;
    gather.record.wait_end = 1.75;
    static_cast<void>(recorder.add({.times = times, .transfers = {gather}}, {}));
    recorder.codecs().add_beside_steps(
        {codec_times(kUsed, 50, 0.125), codec_times(kCandidate, 50, 0.125)});
    const StepCosts found = recorder.costs();
    if (world.rank() == 0) {
      costs = found;
    }
  });
  return costs;
}

// A step whose forward pass takes `forward` seconds and which takes twice as long itself.
AccountedStep timed_step(std::int64_t step, double forward) {
  return {.record = {.step = step, .step_seconds = 2 * forward}, .times = step_times(forward)};
}

// Records four steps, of which the first is a measurement of its own and the next two are one.
// Calls `found` with what the recorder holds then.
template <typename Found>
void record_two_of_four(bool at_once, const Found& found) {
  const MeshJob job = planned_config({"batch.micro=1"}).mesh_job();
  run_local_ranks(1, {}, [&](Communicator& world) {
    Groups groups(world, job.parallel, job.model.tie_embeddings);
    CostRecorder recorder(job, groups);
    CHECK(recorder.add(timed_step(1, 0.25), {.first = 1, .last = 1}));
    const MeasuredSteps measured{.first = 2, .last = 3, .at_once = at_once};
    CHECK_FALSE(recorder.add(timed_step(1, 0.25), measured));
    CHECK_FALSE(recorder.add(timed_step(2, 2.0), measured));
    CHECK(recorder.add(timed_step(3, 1.0), measured));
    CHECK_FALSE(recorder.add(timed_step(4, 0.5), measured));
    found(recorder);
  });
}

}  // namespace

TEST_CASE("an op's cost is that of the slowest rank, without its waits") {
  const StepCosts costs = recorded(3.0);
  CHECK(costs.of_stage(0, CostKind::forward)->value == Approx(3.0 - 0.5));
  CHECK(costs.of_stage(0, CostKind::backward)->value == Approx(2.0));
  CHECK(costs.of_stage(0, CostKind::optimizer)->value == Approx(0.5));
}

TEST_CASE("the mean of the measured steps counts") {
  record_two_of_four(false, [](CostRecorder& recorder) {
    CHECK(recorder.step_seconds() == Approx(3.0));
    CHECK(recorder.costs().of_stage(0, CostKind::forward)->value == Approx(1.5));
  });
}

TEST_CASE("of steps for a plan at once the quickest counts") {
  record_two_of_four(true, [](CostRecorder& recorder) {
    CHECK(recorder.step_seconds() == Approx(2.0));
    CHECK(recorder.costs().of_stage(0, CostKind::forward)->value == Approx(1.0));
  });
}

TEST_CASE("what a codec took in steps replaces what it took beside them") {
  const StepCosts costs = recorded(1.0);
  REQUIRE(costs.codecs.size() == 2);
  CHECK(costs.of_codec(kUsed, {100})->encode.value == Approx(0.5));
  CHECK(costs.of_codec(kUsed, {50})->encode.value == Approx(0.25));  // scaled, of the slower rank
  CHECK(costs.of_codec(kCandidate, {50})->encode.value == Approx(0.125));
}

}  // namespace slackline
