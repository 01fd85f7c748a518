// When a guard changes a plan, to what, and what it says.

#include "parallel/choose/compression_guard.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "compress/codec_traits.h"
#include "core/comm/world.h"
#include "parallel/channel/gradient_sample.h"
#include "parallel/choose/compression_policy.h"
#include "parallel/plan/sampled_steps.h"
#include "tests/support/catch.h"

namespace slackline {

using Catch::Contains;

namespace {

using schedule::Phase;
using schedule::Site;
using schedule::TransferClass;

constexpr double kMaxError = 0.5;
const std::map<Site, double> kBounds = {{Site::pipeline_backward, kMaxError},
                                        {Site::data_gradient, kMaxError}};
const GuardRule kRule{.max_error = kBounds};

MeshJob job_of(int pipeline, int data) {
  MeshJob job{
      .model = {.layers = 4, .hidden = 32, .heads = 4, .sequence = 16, .vocab = 67, .ffn = 128},
      .micro_batch = {.B = 2, .T = 16},
      .num_micro_batches = 4};
  job.parallel.pipeline = pipeline;
  job.parallel.data = data;
  return job;
}

PlanHistory plans_of(const MeshJob& job, const std::string& site, const CodecSetting& setting) {
  CompressConfig config{.policy = CompressionPolicy::all};
  config.sites.emplace(site, setting);
  return make_compression_plans(config, job);
}

CodecSetting low_rank(int rank) {
  return {.kind = CodecKind::low_rank, .error_feedback = ErrorFeedback::lazy, .rank = rank};
}

const TransferClass kSteady{.site = Site::pipeline_backward, .stage = 1, .phase = Phase::steady};
const TransferClass kCooldown{
    .site = Site::pipeline_backward, .stage = 1, .phase = Phase::cooldown};

// What is lost and what is owed are the same.
std::vector<ClassQuality> measured(const TransferClass& members, double error) {
  return {{.members = members,
           .elements = 1,
           .relative_error = error,
           .raw_norm = 1.0,
           .residual_norm = error}};
}

// What a guard makes of one class of a site of one setting; its codec as text, "kept" or "off".
std::string outcome(const MeshJob& job,
                    const std::string& site,
                    const TransferClass& members,
                    const CodecSetting& setting,
                    double error,
                    const GuardRule& rule = kRule) {
  const std::optional<GuardedPlan> next =
      guarded_plan(job, plans_of(job, site, setting), 10, measured(members, error), rule);
  if (!next) {
    return "kept";
  }
  const CodecSetting* codec = next->plan.plan.setting_of(members);
  return codec == nullptr ? "off" : short_text(*codec);
}

std::optional<CodecSetting> tightened(const CodecSetting& setting) {
  const CodecTraits& traits = traits_of(setting.kind);
  return traits.finer == nullptr ? std::nullopt : traits.finer(setting);
}

}  // namespace

TEST_CASE("codecs tighten step by step and end") {
  CHECK(tightened(low_rank(4)) == low_rank(8));
  CHECK(tightened({.kind = CodecKind::top_k, .ratio = 0.25})->ratio == 0.5);
  CHECK(tightened({.kind = CodecKind::random_k, .ratio = 0.5})->ratio == 1.0);
  CHECK_FALSE(tightened({.kind = CodecKind::top_k, .ratio = 0.6}));
  CHECK(tightened({.kind = CodecKind::quantize, .bits = 2})->bits == 3);
  CHECK(tightened({.kind = CodecKind::quantize, .bits = 3})->bits == 4);
  CHECK(tightened({.kind = CodecKind::quantize, .bits = 4})->bits == 8);
  CHECK_FALSE(tightened({.kind = CodecKind::quantize, .bits = 8}));
  CHECK_FALSE(tightened({.kind = CodecKind::cast}));
}

TEST_CASE("a guard tightens what loses too much, and turns off what would not shrink") {
  const MeshJob job = job_of(2, 1);
  const auto boundary = [&](const CodecSetting& setting, double error) {
    return outcome(job, "pipeline_backward", kSteady, setting, error);
  };
  CHECK(boundary(low_rank(4), kMaxError) == "kept");
  CHECK(boundary(low_rank(4), 0.51) == "low_rank 8");
  CHECK(boundary(low_rank(4), std::numeric_limits<double>::quiet_NaN()) == "low_rank 8");
  CHECK(boundary(low_rank(4), INFINITY) == "low_rank 8");
  CHECK(boundary(low_rank(8), 0.51) == "off");  // 16 of 32 x 32 is all of it
  CHECK(boundary({.kind = CodecKind::cast}, 0.51) == "off");
  CHECK(boundary({.kind = CodecKind::top_k, .ratio = 0.2}, 0.51) == "top_k 0.4");
  CHECK(boundary({.kind = CodecKind::top_k, .ratio = 0.3}, 0.51) == "top_k 0.6");
  CHECK(boundary({.kind = CodecKind::top_k, .ratio = 0.49}, 0.51) == "off");  // with indices
  CHECK(boundary({.kind = CodecKind::quantize, .bits = 4}, 0.51) == "quantize 8");
  CHECK(boundary({.kind = CodecKind::quantize, .bits = 8}, 0.51) == "off");
}

// With bf16 factors a matrix of full rank is still smaller than the matrix.
TEST_CASE("a low rank is doubled as long as that sends more, and no further") {
  const MeshJob job = job_of(1, 2);
  CodecSetting factors = low_rank(16);
  factors.error_feedback = ErrorFeedback::immediate;
  factors.factors = DType::bf16;
  const TransferClass gradients{.site = Site::data_gradient, .phase = Phase::tail};
  std::vector<std::string> ranks;
  for (int i = 0; i < 4 && (ranks.empty() || ranks.back() != "off"); ++i) {
    ranks.push_back(outcome(job, "data_gradient", gradients, factors, 0.9));
    factors.rank *= 2;
  }
  CHECK(ranks == std::vector<std::string>{"low_rank 32", "off"});
  CHECK_FALSE(tightened(low_rank(1 << 16)));
}

TEST_CASE("a plan is judged in its fourth step at first, the first plan too") {
  const MeshJob job = job_of(2, 1);
  const PlanHistory plans = plans_of(job, "pipeline_backward", low_rank(4));
  for (std::int64_t step = 1; step <= 5; ++step) {
    CHECK(guarded_plan(job, plans, step, measured(kSteady, 0.9), kRule).has_value() ==
          (step > kStepsToSettle));
  }
}

TEST_CASE("of candidates that are expected to lose less the one that sends least is next") {
  const CodecSetting bytes{.kind = CodecKind::quantize, .bits = 8};
  const CodecSetting cast{.kind = CodecKind::cast};
  const auto next = [&](const CodecSetting& setting, const std::vector<CodecSetting>& candidates) {
    const GuardRule rule{.max_error = kBounds,
                         .candidates = {{Site::pipeline_backward, candidates}}};
    return outcome(job_of(2, 1), "pipeline_backward", kSteady, setting, 0.51, rule);
  };
  const std::vector<CodecSetting> all{cast, bytes, low_rank(8), low_rank(4)};
  // low_rank 4 sends a quarter of 32 x 32 floats, 8 half, bytes a quarter and their scales.
  CHECK(next(low_rank(4), all) == "quantize 8");
  CHECK(next(low_rank(4), {cast, low_rank(8)}) == "cast");
  CHECK(next(low_rank(2), all) == "low_rank 4");
  CHECK(next(low_rank(8), all) == "quantize 8");
  CHECK(next(bytes, all) == "cast");
  CHECK(next(cast, all) == "off");
  CHECK(next(low_rank(4), {low_rank(16), bytes}) == "quantize 8");  // 16 of 32 x 32 is all of it
  CHECK(next(low_rank(2), {low_rank(2)}) == "off");
}

TEST_CASE("of candidates what was measured decides, not what is expected") {
  const CodecSetting cast{.kind = CodecKind::cast};
  GuardRule rule{.max_error = kBounds,
                 .candidates = {{Site::pipeline_backward, {cast, low_rank(6), low_rank(2)}}}};
  const auto measure = [&](const CodecSetting& setting, double error) {
    rule.errors.note_trial({.members = kSteady, .codec = setting, .relative_error = error});
  };
  const auto next = [&] {
    return outcome(job_of(2, 1), "pipeline_backward", kSteady, low_rank(4), 0.6, rule);
  };
  CHECK(next() == "low_rank 6");  // expected to lose less than low_rank 4
  measure(low_rank(4), 0.03);
  CHECK(next() == "cast");  // low_rank 6 is expected to lose 0.9
  measure(low_rank(2), 0.02);
  CHECK(next() == "low_rank 2");  // sends least of both
  measure(low_rank(2), 0.028);
  CHECK(next() == "cast");  // less than 0.03, and likely to owe more than a guard lets pass
}

TEST_CASE("a guard lets a low rank of gradients owe a fifth of the bound, and integers all of it") {
  const MeshJob job = job_of(1, 2);
  const TransferClass gradients{.site = Site::data_gradient, .stage = 0, .phase = Phase::tail};
  const CodecSetting bits{
      .kind = CodecKind::quantize, .error_feedback = ErrorFeedback::lazy, .bits = 4};
  const auto next = [&](const CodecSetting& setting, double owed) {
    return outcome(job, "data_gradient", gradients, setting, owed);
  };
  CHECK(next(low_rank(4), 0.09) == "kept");
  CHECK(next(low_rank(4), 0.11) == "low_rank 8");
  CHECK(next(bits, 0.5) == "kept");
  const auto changed = guarded_plan(
      job, plans_of(job, "data_gradient", low_rank(4)), 10, measured(gradients, 0.11), kRule);
  REQUIRE(changed);
  CHECK_THAT(changed->changes.at(0), Contains("owed share 0.11 above 0.1 in step 10"));
}

TEST_CASE("a guard does not judge sites without a bound") {
  const GuardRule rule{.max_error = {{Site::data_gradient, kMaxError}}};
  CHECK(outcome(job_of(2, 1), "pipeline_backward", kSteady, low_rank(4), 9.0, rule) == "kept");
}

TEST_CASE("a guard sees what a class of gradients sends as a whole") {
  const MeshJob job = job_of(1, 2);
  const TransferClass gradients{.site = Site::data_gradient, .stage = 0, .phase = Phase::tail};
  CHECK(outcome(job, "data_gradient", gradients, low_rank(8), 0.51) == "low_rank 16");
  // low_rank 16 still makes 32 x 128 smaller, but not 32 x 32, which then travels plain.
  CHECK(outcome(job, "data_gradient", gradients, low_rank(16), 0.51) == "off");
}

TEST_CASE("of gradients a candidate counts with what its collective sends") {
  const CodecSetting bytes{.kind = CodecKind::quantize, .bits = 8};
  const CodecSetting cast{.kind = CodecKind::cast};
  const auto next = [](const MeshJob& job, const CodecSetting& candidate) {
    const TransferClass gradients{.site = Site::data_gradient, .stage = 0, .phase = Phase::tail};
    const GuardRule rule{.max_error = kBounds, .candidates = {{Site::data_gradient, {candidate}}}};
    return outcome(job, "data_gradient", gradients, low_rank(2), 0.51, rule);
  };
  // Every rank's bytes go to every other; of eight ranks that is more than the sum of floats.
  CHECK(next(job_of(1, 4), bytes) == "quantize 8");
  CHECK(next(job_of(1, 8), bytes) == "off");
  // zero1's plain sum stops half-way, and so do those of what is cut by rows.
  MeshJob job = job_of(1, 2);
  CHECK(next(job, cast) == "cast");
  job.parallel.data_strategy = DataStrategy::zero1;
  CHECK(next(job, cast) == "cast");
  job.parallel.data = 8;
  CHECK(next(job, bytes) == "quantize 8");
}

TEST_CASE("what a codec of gradients is expected to lose does not depend on the batch") {
  MeshJob job = job_of(1, 2);
  job.micro_batch = {.B = 1, .T = 8};  // rank 8 would be all of a boundary's message
  const TransferClass gradients{.site = Site::data_gradient, .stage = 0, .phase = Phase::tail};
  const GuardRule rule{.max_error = kBounds,
                       .candidates = {{Site::data_gradient, {{.kind = CodecKind::cast}}}}};
  CHECK(outcome(job, "data_gradient", gradients, low_rank(8), 0.51, rule) == "cast");
}

// Layers of several chunks may share a bucket.
TEST_CASE("a guard sees the gradients of every chunk of a rank") {
  MeshJob job = job_of(2, 2);
  job.parallel.schedule = ScheduleName::interleaved;
  job.parallel.chunks = 2;
  for (int stage = 0; stage < 4; ++stage) {
    const TransferClass gradients{
        .site = Site::data_gradient, .stage = stage, .phase = Phase::tail};
    CHECK(outcome(job, "data_gradient", gradients, low_rank(4), 0.51) == "low_rank 8");
  }
}

TEST_CASE("a change leaves other classes alone and says what, where, from when and why") {
  const MeshJob job = job_of(2, 1);
  const PlanHistory plans = plans_of(job, "pipeline_backward", low_rank(4));
  const std::optional<GuardedPlan> next =
      guarded_plan(job, plans, 10, measured(kCooldown, 0.75), kRule);
  REQUIRE(next);
  CHECK(next->plan.from_step == 10 + kStepsToChange);
  CHECK(*next->plan.plan.setting_of(kSteady) == low_rank(4));
  CHECK(*next->plan.plan.setting_of(kCooldown) == low_rank(8));
  REQUIRE(next->changes.size() == 1);
  CHECK(next->changes.front() ==
        "pipeline_backward, stage 1, cooldown: guard: from step 13 low_rank 4 becomes low_rank 8; "
        "owed share 0.75 above 0.5 in step 10");
  for (const CompressionPlan::Class& row : next->plan.plan.classes) {
    CHECK((row.reason.find("guard") != std::string::npos) == (row.members == kCooldown));
  }
}

TEST_CASE("a guard's plan comes into force behind one that was chosen meanwhile") {
  const MeshJob job = job_of(2, 1);
  PlanHistory plans = plans_of(job, "pipeline_backward", low_rank(4));
  plans.push_back(plans.front());
  plans.back().from_step = 10 + kStepsToChange;
  const auto next = guarded_plan(job, plans, 10, measured(kCooldown, 0.75), kRule);
  REQUIRE(next);
  CHECK(next->plan.from_step == 11 + kStepsToChange);
}

TEST_CASE("what a guard has left a class bounds what is chosen later, and the last change counts") {
  const MeshJob job = job_of(2, 1);
  PlanHistory plans = plans_of(job, "pipeline_backward", low_rank(4));
  CHECK(guard_limits(plans).empty());
  plans.push_back(guarded_plan(job, plans, 10, measured(kCooldown, 0.75), kRule)->plan);
  CHECK(guard_limits(plans) == GuardLimits{{kCooldown, low_rank(8)}});
  PlanFromStep chosen = plans.front();  // by somebody else
  chosen.from_step = 20;
  plans.push_back(chosen);
  CHECK(guard_limits(plans) == GuardLimits{{kCooldown, low_rank(8)}});
  plans.back().plan = plans[1].plan;
  plans.push_back(guarded_plan(job, plans, 30, measured(kCooldown, 0.75), kRule)->plan);
  CHECK(guard_limits(plans) == GuardLimits{{kCooldown, std::nullopt}});
}

TEST_CASE("without error feedback what is lost is judged, with it what is still owed") {
  const MeshJob job = job_of(2, 1);
  const auto is_changed = [&](ErrorFeedback error_feedback, double lost, double owed) {
    CodecSetting setting = low_rank(8);
    setting.error_feedback = error_feedback;
    const std::vector<ClassQuality> found = {{.members = kSteady,
                                              .elements = 1,
                                              .relative_error = lost,
                                              .raw_norm = 2.0,
                                              .residual_norm = 2.0 * owed}};
    return guarded_plan(job, plans_of(job, "pipeline_backward", setting), 10, found, kRule)
        .has_value();
  };
  CHECK(is_changed(ErrorFeedback::none, 0.75, 0.0));
  CHECK_FALSE(is_changed(ErrorFeedback::none, 0.25, 0.75));
  CHECK(is_changed(ErrorFeedback::immediate, 0.25, 0.75));
  CHECK_FALSE(is_changed(ErrorFeedback::lazy, 0.75, 0.25));
}

TEST_CASE("residuals are said to be dropped where no codec of the boundary goes on with them") {
  const MeshJob job = job_of(2, 1);
  const PlanHistory plans = plans_of(job, "pipeline_backward", low_rank(8));
  std::vector<ClassQuality> found = measured(kCooldown, 0.75);
  const auto change = [&] { return guarded_plan(job, plans, 10, found, kRule)->changes.at(0); };
  CHECK_THAT(change(), Contains("is turned off;"));
  found.push_back(measured(kSteady, 0.75).front());
  CHECK_THAT(change(), Contains("is turned off and what its residuals owe is dropped;"));
}

TEST_CASE("with immediate feedback no other phase goes on with residuals") {
  const MeshJob job = job_of(2, 1);
  CodecSetting setting = low_rank(8);
  setting.error_feedback = ErrorFeedback::immediate;
  const std::optional<GuardedPlan> next = guarded_plan(
      job, plans_of(job, "pipeline_backward", setting), 10, measured(kCooldown, 0.75), kRule);
  CHECK_THAT(next->changes.at(0), Contains("is turned off and what its residuals owe is dropped;"));
}

TEST_CASE("residuals that another kind of codec does not go on with are said to be dropped") {
  const CodecSetting bytes{.kind = CodecKind::quantize, .bits = 8};
  CodecSetting bytes_at_once = bytes;
  bytes_at_once.error_feedback = ErrorFeedback::immediate;
  const auto change = [](Site site, const TransferClass& members, const CodecSetting& candidate) {
    const MeshJob job = schedule::is_once_a_step(members.phase) ? job_of(1, 2) : job_of(2, 1);
    const GuardRule rule{.max_error = kBounds, .candidates = {{site, {candidate}}}};
    const std::string name = schedule::site_name(site);
    return guarded_plan(job, plans_of(job, name, low_rank(4)), 10, measured(members, 0.75), rule)
        ->changes.at(0);
  };
  const TransferClass gradients{.site = Site::data_gradient, .stage = 0, .phase = Phase::tail};
  const std::string dropped = "becomes quantize 8 and what its residuals owe is dropped;";
  CHECK_THAT(change(Site::data_gradient, gradients, bytes), Contains(dropped));
  CHECK_THAT(change(Site::data_gradient, gradients, bytes_at_once),
             Contains("becomes quantize 8;"));
  // The steady phase goes on with the boundary's lazy residual.
  CHECK_THAT(change(Site::pipeline_backward, kCooldown, bytes), Contains("becomes quantize 8;"));
}

TEST_CASE("a class whose codec has changed since the sampled step waits for the next sample") {
  const MeshJob job = job_of(2, 1);
  PlanHistory plans = plans_of(job, "pipeline_backward", low_rank(2));
  const std::vector<ClassQuality> found = measured(kSteady, 0.75);
  const std::optional<GuardedPlan> first = guarded_plan(job, plans, 10, found, kRule);
  REQUIRE(first);
  plans.push_back(first->plan);
  CHECK_FALSE(guarded_plan(job, plans, 11, found, kRule));
  CHECK_FALSE(guarded_plan(job, plans, 12, found, kRule));
  // What the codec before owed comes with the first messages.
  CHECK_FALSE(guarded_plan(job, plans, first->plan.from_step + kStepsToSettle - 1, found, kRule));
  const std::optional<GuardedPlan> second =
      guarded_plan(job, plans, first->plan.from_step + kStepsToSettle, found, kRule);
  REQUIRE(second);
  CHECK(*second->plan.plan.setting_of(kSteady) == low_rank(8));
}

// 100 x 101 elements of which some are taken: each at most once, and of all columns alike.
TEST_CASE("a sample of gradients takes different elements of every matrix and column") {
  std::vector<float> first(std::size_t{100} * 101);
  std::vector<float> second(std::size_t{100} * 99, 1.0F);
  const Codec::Matrices matrices = {Tensor(std::span(first)).reshaped({100, 101}),
                                    Tensor(std::span(second)).reshaped({100, 99})};
  Stream stream({});
  run_local_ranks(1, {}, [&](Communicator& world) {
    const auto squares = [&](std::size_t matrix) {
      GradientSample sample(matrices);
      sample.take_raw(stream, matrices);
      sample.take_sent(stream, matrices, {});
      sample.add_up(world);
      return sample.sums(matrix);
    };
    CHECK(squares(0).elements + squares(1).elements == GradientSample::kElements);
    CHECK(squares(1).raw == squares(1).elements);
    CHECK(std::abs(squares(0).elements / GradientSample::kElements - 0.505) < 0.01);
    double columns = 0.0;
    for (std::size_t column = 0; column < 101; ++column) {
      std::fill(first.begin(), first.end(), 0.0F);
      for (std::size_t row = 0; row < 100; ++row) {
        first[row * 101 + column] = 1.0F;
      }
      const double taken = squares(0).raw;
      CHECK(taken >= 10.0);  // about 20.5
      CHECK(taken <= 31.0);
      columns += taken;
    }
    CHECK(columns == squares(0).elements);
  });
}

}  // namespace slackline
