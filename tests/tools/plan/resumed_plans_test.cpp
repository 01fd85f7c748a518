// Plans of a run that is resumed: which go on, and from which step on the config's begin.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tests/support/catch.h"
#include "tests/tools/plan/planned_job.h"
#include "tools/plan/compression_plans.h"

namespace slackline {

using Catch::Contains;

namespace {

const std::vector<std::string> kMesh = {"parallel.pipeline=4", "parallel.data=2", "batch.micro=1"};

PlanJob job_of(std::vector<std::string> assignments) {
  assignments.insert(assignments.begin(), kMesh.begin(), kMesh.end());
  return planned_job(assignments);
}

// The plans of a run that goes on behind this step.
PlanHistory resumed(const PlanHistory& of_config,
                    const std::string& document,
                    const PlanJob& job,
                    std::int64_t step = 5) {
  return resumed_plans(of_config, {.document = document, .step = step}, job).stored.plans;
}

// These plans and, from a step on, the last one of others.
PlanHistory with_last_of(PlanHistory plans, std::int64_t from_step, const PlanHistory& others) {
  plans.push_back({.from_step = from_step, .plan = others.back().plan});
  return plans;
}

}  // namespace

TEST_CASE("a checkpoint's plans of critical_path go on, whatever the config would choose now") {
  const auto of_link = [](double bytes_per_second) {
    const Cluster::Link link{.bytes_per_second = bytes_per_second};
    return compression_plans(
        job_of({"compress.policy=critical_path"}),
        Cluster{.nodes = {{.count = 8, .devices = 1}}, .node_link = link, .network_link = link});
  };
  const PlanHistory slow = of_link(1e4);
  const PlanHistory fast = of_link(1e12);
  REQUIRE(slow != fast);
  const PlanJob job = job_of({"compress.policy=critical_path"});
  CodecErrors errors;
  errors.note_trial({.members = slow[0].plan.classes[0].members,
                     .codec = {.kind = CodecKind::cast},
                     .relative_error = 0.001});
  PlanHistory chosen = slow;
  chosen.push_back({.from_step = 3, .plan = fast[0].plan});
  for (const PlanHistory& plans : {slow, chosen}) {
    const ResumedPlans going_on = resumed_plans(
        fast, {.document = plan_document(plans.back(), plans, errors), .step = 5}, job);
    CHECK(going_on.stored.plans == plans);
    CHECK(going_on.stored.errors == errors);
    CHECK(going_on.go_on);
  }
  // Plans of another policy, or of another layout, do not go on.
  const PlanJob without = job_of({});
  const PlanHistory none = compression_plans(without);
  const PlanHistory stopped = with_last_of(chosen, 6, none);
  CHECK(resumed(none, plan_document(chosen.back(), chosen, errors), without) == stopped);
  const PlanHistory begun = with_last_of(none, 6, fast);
  CHECK(resumed(fast, plan_document(none.back(), none, {}), job) == begun);
  const PlanHistory other =
      compression_plans(job_of({"compress.policy=critical_path", "parallel.pipeline=2"}));
  CHECK(resumed(other, plan_document(chosen.back(), chosen, errors), job) == other);
  CHECK(resumed(fast, "", job) == fast);
  // What the policy has begun behind another one's plans goes on as well, until that comes back.
  const PlanHistory later = with_last_of(with_last_of(begun, 8, slow), 20, none);
  const PlanHistory last(later.begin(), later.end() - 1);
  CHECK(resumed(slow, plan_document(last.back(), last, {}), job, 9) == last);
  CHECK(resumed(slow, plan_document(later.back(), later, {}), job, 25) ==
        with_last_of(later, 26, slow));
}

TEST_CASE("a plan that is edited and replayed counts, not the one that critical_path had chosen") {
  const PlanJob job = job_of({"compress.policy=critical_path"});
  PlanHistory chosen = compression_plans(job);
  chosen.push_back({.from_step = 3, .plan = chosen.back().plan});
  chosen.back().plan.classes[0].codec = CodecSetting{.kind = CodecKind::cast};
  const std::string document = plan_document(chosen.back(), chosen, {});
  PlanHistory edited = chosen;
  edited.back().plan.classes[0].codec = CodecSetting{.kind = CodecKind::quantize, .bits = 8};
  const PlanJob replay = job_of({"compress.policy=replay", "compress.plan=edited.json"});
  CHECK(resumed(edited, document, replay, 2) == edited);
  CHECK(resumed(edited, document, replay, 5) == with_last_of(chosen, 6, edited));
  CHECK(resumed(compression_plans(job), document, job) == chosen);
}

TEST_CASE("a chosen plan goes on where the data strategy leaves its codecs a choice") {
  const PlanJob job = job_of({"compress.policy=critical_path"});
  PlanHistory chosen = compression_plans(job);
  chosen.push_back({.from_step = 3, .plan = chosen.back().plan});
  constexpr ErrorFeedback kOwed = ErrorFeedback::immediate;
  const CodecSetting cast{.kind = CodecKind::cast, .error_feedback = kOwed};
  const CodecSetting low_rank{.error_feedback = kOwed, .rank = 8, .factors = DType::bf16};
  const auto [site, codec, goes_on] = GENERATE_COPY(table<schedule::Site, CodecSetting, bool>(
      {{schedule::Site::data_gradient, cast, true},
       {schedule::Site::data_gradient, low_rank, false},  // of no pass by default
       {schedule::Site::embedding, cast, false}}));       // no codec sits on it in passes
  for (CompressionPlan::Class& row : chosen.back().plan.classes) {
    if (row.members.site == site) {
      row.codec = codec;
    }
  }
  const std::string document = plan_document(chosen.back(), chosen, {});
  CHECK(resumed(compression_plans(job), document, job) == chosen);
  for (const char* strategy : {"zero2", "zero3"}) {
    const PlanJob apart = job_of(
        {"compress.policy=critical_path", std::string("parallel.data_strategy=") + strategy});
    const PlanHistory anew = compression_plans(apart);
    REQUIRE(anew.front().plan.members() == chosen.front().plan.members());
    // A table that ranks take apart is coded in no step of such a layout.
    const bool fits = site != schedule::Site::embedding;
    CHECK(resumed(anew, document, apart) == (goes_on ? chosen
                                             : fits  ? with_last_of(chosen, 6, anew)
                                                     : anew));
  }
}

TEST_CASE("a checkpoint's history that is out of order is refused") {
  const PlanJob job = job_of({"compress.policy=critical_path"});
  const PlanHistory own = compression_plans(job);
  PlanHistory later = own;
  later.push_back({.from_step = 1, .plan = own.back().plan});
  CHECK_THROWS_WITH(resumed(own, plan_document(own.back(), later, {}), job),
                    Contains("in order of from_step"));
  later.erase(later.begin(), std::prev(later.end()));
  later.front().from_step = 5;
  CHECK_THROWS_WITH(resumed(own, plan_document(own.back(), later, {}), job),
                    Contains("the first from step 1"));
}

TEST_CASE("a chosen plan goes on in passes, whatever candidates there are now") {
  const auto of_bits = [](int bits) {
    return job_of({"parallel.data_strategy=zero2",
                   fmt::format(R"(compress={{"policy": "critical_path", "data_gradient":
                               {{"candidates": [{{"codec": "quantize", "bits": {}}}]}}}})",
                               bits)});
  };
  PlanHistory chosen = compression_plans(of_bits(4));
  chosen.push_back({.from_step = 3, .plan = chosen.back().plan});
  for (CompressionPlan::Class& row : chosen.back().plan.classes) {
    if (row.members.site == schedule::Site::data_gradient) {
      row.codec = CodecSetting{.kind = CodecKind::quantize, .bits = 4};
    }
  }
  const PlanHistory now = compression_plans(of_bits(8));
  CHECK(resumed(now, plan_document(chosen.back(), chosen, {}), of_bits(8)) == chosen);
}

TEST_CASE("a plan in units of moments does not go on where ranks share out the moments") {
  const std::vector<std::string> policy = {"compress.policy=critical_path", "parallel.data=2"};
  const PlanJob job = job_of(policy);
  PlanHistory chosen = compression_plans(job);
  chosen.push_back({.from_step = 3, .plan = chosen.back().plan});
  for (CompressionPlan::Class& row : chosen.back().plan.classes) {
    if (row.members.site == schedule::Site::data_gradient) {
      row.codec = {.kind = CodecKind::quantize, .bits = 2, .units = Units::moments};
    }
  }
  const std::string document = plan_document(chosen.back(), chosen, {});
  CHECK(resumed(compression_plans(job), document, job) == chosen);
  const PlanJob sharded =
      job_of({"compress.policy=critical_path", "parallel.data=2", "parallel.data_strategy=zero1"});
  const PlanHistory anew = compression_plans(sharded);
  CHECK(resumed(anew, document, sharded) == anew);
}

TEST_CASE("plans that a guard has changed go on as long as the config makes what they began with") {
  const PlanJob job = job_of({"compress.policy=optimus_cc"});
  const PlanHistory begun = compression_plans(job);
  PlanHistory guarded = begun;
  guarded.push_back({.from_step = 9, .plan = begun.back().plan});
  guarded.back().plan.classes[0].reason = "guard: from step 9";
  const std::string document = plan_document(guarded.back(), guarded, {});
  CHECK(resumed(begun, document, job) == guarded);
  const PlanHistory changed =
      compression_plans(job_of({"compress.policy=optimus_cc", "compress.stages=1"}));
  CHECK(resumed(changed, document, job, 8) == with_last_of(begun, 9, changed));
  const PlanHistory twice = with_last_of(guarded, 11, changed);
  CHECK(resumed(changed, document, job, 10) == twice);
  // The next resume with the same config has nothing to change, a guard's next plan included.
  PlanHistory guarded_twice = with_last_of(twice, 20, twice);
  guarded_twice.back().plan.classes[0].reason = "guard: from step 20";
  for (const PlanHistory& stored : {twice, guarded_twice}) {
    CHECK(resumed(changed, plan_document(stored.back(), stored, {}), job, 30) == stored);
  }
  CHECK(resumed(begun, plan_document(twice.back(), twice, {}), job, 30) ==
        with_last_of(twice, 31, begun));
}

TEST_CASE("plans of another section begin behind the steps that are completed") {
  const auto plans_of = [](const std::vector<std::string>& section) {
    return compression_plans(job_of(section));
  };
  const std::vector<std::string> all = {
      "compress.policy=all", R"(compress.data_gradient={"codec": "low_rank", "rank": 2})"};
  const auto all_after = [&](int warmup_steps) {
    std::vector<std::string> section = all;
    section.push_back(fmt::format("compress.warmup_steps={}", warmup_steps));
    return section;
  };
  const auto switched = [&](const std::vector<std::string>& from,
                            const std::vector<std::string>& to,
                            std::int64_t step) {
    const PlanHistory stored = plans_of(from);
    const ResumedPlans result =
        resumed_plans(plans_of(to),
                      {.document = plan_document(stored.back(), stored, {}), .step = step},
                      job_of(to));
    std::vector<std::pair<std::int64_t, bool>> codes;
    for (const PlanFromStep& row : result.stored.plans) {
      codes.emplace_back(row.from_step, row.plan.compresses_anything());
    }
    return codes;
  };
  using Codes = std::vector<std::pair<std::int64_t, bool>>;
  CHECK(switched(all, {}, 3) == Codes{{1, true}, {4, false}});
  CHECK(switched({}, all, 3) == Codes{{1, false}, {4, true}});
  CHECK(switched(all, all, 3) == Codes{{1, true}});
  CHECK(switched(all_after(3), all_after(3), 3) == Codes{{1, false}, {4, true}});
  // Warm-up steps are the run's first ones, whenever it is resumed.
  CHECK(switched(all, all_after(10), 3) == Codes{{1, true}, {4, false}, {11, true}});
  CHECK(switched(all, all_after(2), 3) == Codes{{1, true}});
  CHECK(switched(all_after(10), all_after(20), 3) == Codes{{1, false}, {21, true}});
  CHECK(switched(all_after(10), all, 3) == Codes{{1, false}, {4, true}});
}

TEST_CASE("on another layout plans begin behind plain steps") {
  const std::vector<std::string> all = {"compress.policy=all",
                                        R"(compress.data_gradient={"codec": "cast"})"};
  const PlanHistory stored = compression_plans(job_of(all));
  const std::string document = plan_document(stored.back(), stored, {});
  std::vector<std::string> other = all;
  other.emplace_back("parallel.pipeline=2");
  const PlanHistory of_other = compression_plans(job_of(other));
  // So it is where stages have the same numbers and other layers.
  for (const bool same_stages : {true, false}) {
    const ResumedPlans result =
        resumed_plans(same_stages ? of_other : stored,
                      {.document = document, .step = 3, .same_stages = same_stages},
                      job_of(same_stages ? other : all));
    const PlanHistory& plans = result.stored.plans;
    REQUIRE(plans.size() == 2);
    CHECK(plans[0].from_step == 1);
    CHECK_FALSE(plans[0].plan.compresses_anything());
    CHECK(plans[1].from_step == 4);
    CHECK(plans[1].plan == (same_stages ? of_other : stored).back().plan);
    CHECK_FALSE(result.go_on);
  }
  const PlanHistory plain = compression_plans(job_of({"parallel.pipeline=2"}));
  CHECK(resumed(plain, document, job_of({"parallel.pipeline=2"})) == plain);
}

}  // namespace slackline
