// Policy replay: a plan.json gives the plans it was written from; one that is edited, damaged or of
// another layout gives what it says or one clear message.

#include "tools/plan/compression_plans.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file_io.h"
#include "parallel/predict/assumed_costs.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/plan/planned_job.h"
#include "tools/plan/plan_json.h"
#include "tools/plan/plan_text.h"

namespace slackline {

using Catch::Contains;

namespace {

const std::vector<std::string> kMesh = {"parallel.pipeline=4", "parallel.data=2", "batch.micro=1"};

PlanJob job_of(std::vector<std::string> assignments) {
  assignments.insert(assignments.begin(), kMesh.begin(), kMesh.end());
  return planned_job(assignments);
}

std::string plan_json_of(const PlanJob& job) {
  return plan_files(make_step_plan(job, std::nullopt, {})).json;
}

// A plan.json in a directory of its own, and a config that replays it.
class Replay {
 public:
  explicit Replay(const std::string& text) { write_file_atomically(path(), text); }

  [[nodiscard]] std::string path() const { return directory_.file("plan.json"); }

  [[nodiscard]] PlanHistory plans(const std::vector<std::string>& assignments = {}) const {
    std::vector<std::string> all = assignments;
    all.insert(all.end(), {"compress.policy=replay", "compress.plan=" + path()});
    return compression_plans(job_of(all));
  }

  // Without the path that every message begins with.
  [[nodiscard]] std::string refusal(const std::vector<std::string>& assignments = {}) const {
    try {
      static_cast<void>(plans(assignments));
    } catch (const ConfigError& error) {
      const std::string message = error.what();
      const std::string beginning = "compress.plan: " + path() + ": ";
      INFO(message);
      CHECK(message.starts_with(beginning));
      CHECK(message.find('\n') == std::string::npos);
      return message.substr(std::min(beginning.size(), message.size()));
    }
    return "accepted";
  }

 private:
  TemporaryDirectory directory_;
};

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

// A plan of one row.
std::string one_row(const std::string& members, const std::string& codec) {
  return R"([{"from_step": 1, "classes": [{)" + members + R"(, "codec": )" + codec + "}]}]";
}

}  // namespace

TEST_CASE("a run's plan.json read back gives its plans, class by class and reason by reason") {
  for (const std::vector<std::string>& assignments : std::vector<std::vector<std::string>>{
           {},
           {"compress.policy=optimus_cc"},
           {"compress.policy=optimus_cc", "compress.warmup_steps=3", "compress.stages=1"},
           {R"(compress.pipeline_forward={"codec": "quantize", "bits": 4, "scale": "group"})",
            R"(compress.data_gradient={"codec": "top_k", "ratio": 0.01, "values": "bf16"})",
            R"(compress.embedding={"codec": "random_k", "ratio": 0.3, "always": true})",
            "compress.policy=all",
            "parallel.data_strategy=zero1"},
           {"compress.policy=optimus_cc", "parallel.schedule=zb_h1"},
           {"compress.policy=optimus_cc", "parallel.pipeline=1"},
       }) {
    const PlanJob job = job_of(assignments);
    const Replay replay(plan_json_of(job));
    std::vector<std::string> layout;
    for (const std::string& assignment : assignments) {
      if (assignment.starts_with("parallel.")) {
        layout.push_back(assignment);
      }
    }
    CHECK(replay.plans(layout) == compression_plans(job));
  }
}

TEST_CASE("a plan that replays another is written as it was") {
  const Replay replay(plan_json_of(job_of({"compress.policy=optimus_cc"})));
  CHECK(plan_json_of(job_of({"compress.policy=replay", "compress.plan=" + replay.path()})) ==
        read_file(replay.path()));
}

TEST_CASE("warm-up steps of a run that replays a plan compress nothing") {
  const std::string row = R"({"from_step": )";
  const std::string classes = R"(, "classes": [{"site": "data_gradient", "stage": 2,
      "phase": "step", "codec": {"codec": "quantize", "bits": )";
  const Replay replay("[" + row + "1" + classes + "8}}]}, " + row + "4" + classes + "4}}]}, " +
                      row + "9" + classes + "2}}]}]");
  const auto bits_from = [&](int warmup_steps) {
    std::map<std::int64_t, int> bits;
    for (const PlanFromStep& one :
         replay.plans({"compress.warmup_steps=" + std::to_string(warmup_steps)})) {
      const auto setting =
          one.plan.setting_of({schedule::Site::data_gradient, 2, schedule::Phase::step});
      bits[one.from_step] = setting ? setting->bits : 0;
    }
    return bits;
  };
  using Bits = std::map<std::int64_t, int>;
  CHECK(bits_from(0) == Bits{{1, 8}, {4, 4}, {9, 2}});
  CHECK(bits_from(2) == Bits{{1, 0}, {3, 8}, {4, 4}, {9, 2}});
  CHECK(bits_from(3) == Bits{{1, 0}, {4, 4}, {9, 2}});
  CHECK(bits_from(5) == Bits{{1, 0}, {6, 4}, {9, 2}});
  CHECK(bits_from(20) == Bits{{1, 0}, {21, 2}});
  const Replay warmed(
      plan_json_of(job_of({"compress.policy=optimus_cc", "compress.warmup_steps=3"})));
  CHECK(warmed.plans({"compress.warmup_steps=3"}) == warmed.plans());
  CHECK(warmed.plans({"compress.warmup_steps=2"}) == warmed.plans());
}

TEST_CASE("a job whose links or costs do not fit its layout cannot run") {
  const TemporaryDirectory directory;
  write_file_atomically(directory.file("four.json"),
                        R"({"nodes": [{"devices": 4}],
                            "links": [{"scope": "node", "bytes_per_second": 1e9}]})");
  const std::string links = "network.links=" + directory.file("four.json");
  const std::vector<std::string> layout = {"parallel.data=1", "parallel.pipeline=4", links};
  CHECK_NOTHROW(require_runnable(job_of(layout)));
  CHECK_THROWS_WITH(require_runnable(job_of({"parallel.data=2", "parallel.pipeline=4", links})),
                    Contains("four.json") && Contains("got 4"));
  write_file_atomically(directory.file("costs.json"),
                        R"({"ops": [{"stage": 0, "kind": "forward", "seconds": 1},
                  {"stage": 0, "kind": "backward", "seconds": 2}]})");
  CHECK_THROWS_WITH(require_runnable(job_of({"device=rehearsal",
                                             "parallel.pipeline=4",
                                             "rehearsal.costs=" + directory.file("costs.json")})),
                    Contains("costs.json") && Contains("4 virtual stages"));
}

TEST_CASE("an edited codec is the one that is replayed") {
  const std::string text = plan_json_of(job_of({"compress.policy=optimus_cc"}));
  const Replay replay(replaced(text, R"("rank": 16)", R"("rank": 3)"));
  const PlanHistory plans = replay.plans();
  const auto rank_of_stage = [&](int stage) {
    return plans.back()
        .plan.setting_of({schedule::Site::pipeline_backward, stage, schedule::Phase::cooldown})
        ->rank;
  };
  CHECK(rank_of_stage(1) == 3);
  CHECK(rank_of_stage(2) == 16);
}

TEST_CASE("classes that a replayed plan leaves out stay plain") {
  const Replay replay(
      one_row(R"("site": "data_gradient", "stage": 2, "phase": "step")", R"({"codec": "cast"})"));
  const PlanHistory plans = replay.plans();
  REQUIRE(plans.size() == 1);
  CHECK(plans[0].plan.classes.size() == compression_plans(job_of({}))[0].plan.classes.size());
  for (const CompressionPlan::Class& row : plans[0].plan.classes) {
    const bool named = row.members.site == schedule::Site::data_gradient && row.members.stage == 2;
    CHECK(row.codec.has_value() == named);
    CHECK(row.reason == (named ? "" : "not in the replayed plan"));
  }
}

TEST_CASE("a row step of a plan means the tail, too, unless a row names that") {
  using schedule::Phase;
  const auto codec_of_tail = [](const std::string& rows) -> std::string {
    const Replay replay(R"([{"from_step": 1, "classes": [)" + rows + "]}]");
    const PlanHistory plans = replay.plans();
    const CodecSetting* codec =
        plans.front().plan.setting_of({schedule::Site::data_gradient, 1, Phase::tail});
    return codec == nullptr ? "plain" : name_of(codec->kind);
  };
  const std::string step =
      R"({"site": "data_gradient", "stage": 1, "phase": "step", "codec": {"codec": "cast"}})";
  CHECK(codec_of_tail(step) == "cast");
  CHECK(codec_of_tail(step + R"(, {"site": "data_gradient", "stage": 1, "phase": "tail"})") ==
        "plain");
  CHECK(codec_of_tail(step + R"(, {"site": "data_gradient", "stage": 0, "phase": "tail"})") ==
        "cast");
}

TEST_CASE("a plan of another layout is refused where it compresses, else taken as plain") {
  const Replay compressed(plan_json_of(job_of({"compress.policy=optimus_cc"})));
  CHECK_THAT(compressed.refusal({"parallel.pipeline=2"}),
             Contains("no transfers of class") && Contains("layout and schedule"));
  CHECK_THAT(compressed.refusal({"parallel.data=1"}), Contains("data_gradient, stage 0, step"));
  CHECK_THAT(compressed.refusal({"parallel.schedule=gpipe"}), Contains("accepted"));
  const Replay plain(plan_json_of(job_of({})));
  CHECK(plain.plans({"parallel.pipeline=2"})[0].plan.classes.size() ==
        compression_plans(job_of({"parallel.pipeline=2"}))[0].plan.classes.size());
  CHECK_NOTHROW(make_step_plan(
      job_of({"parallel.pipeline=2", "compress.policy=replay", "compress.plan=" + plain.path()}),
      std::nullopt,
      {}));
}

TEST_CASE("a plan's codecs for a table that the data strategy takes apart are refused") {
  const Replay replay(
      one_row(R"("site": "data_gradient", "stage": 0, "phase": "tail")", R"({"codec": "cast"})"));
  CHECK(replay.plans({"parallel.data_strategy=zero1"}).size() == 1);
  CHECK(replay.plans({"parallel.data_strategy=zero2"}).size() == 1);
  const Replay table(
      one_row(R"("site": "embedding", "stage": 0, "phase": "tail")", R"({"codec": "cast"})"));
  CHECK_THAT(table.refusal({"parallel.data_strategy=zero2"}),
             Contains("tied table") && Contains("zero2"));
  // Gradients of groups are added up in passes where there is one group alone.
  for (const std::string strategy : {"NIG", "NII", "III"}) {
    INFO(strategy);
    const std::vector<std::string> layout = {
        "parallel.pipeline=1", "parallel.data=4", "parallel.data_strategy=" + strategy};
    const auto in_groups = [&](const char* of) {
      std::vector<std::string> all = layout;
      all.push_back(std::string("parallel.group=") + of);
      return table.refusal(all);
    };
    CHECK_THAT(in_groups("4"), Contains("tied table") && Contains(strategy));
    CHECK(in_groups("2") == "accepted");
  }
}

TEST_CASE("a plan that cannot be read is a config error with the path") {
  const PlanJob missing = job_of({"compress.policy=replay", "compress.plan=/nowhere/plan.json"});
  CHECK_THROWS_AS(compression_plans(missing), ConfigError);
  CHECK_THROWS_WITH(compression_plans(missing),
                    Catch::StartsWith("compress.plan: /nowhere/plan.json"));
  for (const char* text : {"", "{", "no plan", "[]]", "[{\"from_step\": 1},]"}) {
    CHECK_THAT(Replay(text).refusal(), Contains("line 1"));
  }
  CHECK_THAT(Replay(R"({"from_step": 1})").refusal(), Contains("list"));
  CHECK_THAT(Replay(R"([1])").refusal(), Contains("object"));
  CHECK_THAT(Replay(R"([], "more": 1)").refusal(), Contains("more"));
}

TEST_CASE("plans have to follow each other from step 1 on") {
  const std::string rule = "order of from_step, the first from step 1";
  CHECK_THAT(Replay("[]").refusal(), Contains(rule));
  CHECK_THAT(Replay(R"([{"from_step": 2}])").refusal(), Contains(rule));
  CHECK_THAT(Replay(R"([{"from_step": 1}, {"from_step": 1}])").refusal(), Contains(rule));
  CHECK_THAT(Replay(R"([{"from_step": 1}, {"from_step": 9}, {"from_step": 5}])").refusal(),
             Contains(rule));
  CHECK_THAT(Replay(R"([{"from_step": 0}])").refusal(), Contains("plans.0.from_step"));
  CHECK_THAT(Replay(R"([{}])").refusal(), Contains("plans.0.from_step"));
}

TEST_CASE("rows of a plan are read as strictly as a config") {
  const std::string row = R"("site": "embedding", "stage": 0, "phase": "step")";
  const std::string where = "plans.0.classes.0.";
  CHECK_THAT(Replay(one_row(row, R"({"codec": "low_rank", "rank": 0})")).refusal(),
             Contains(where + "codec.rank"));
  CHECK_THAT(Replay(one_row(row, R"({"codec": "cast", "rank": 2})")).refusal(),
             Contains(where + "codec.rank"));
  CHECK_THAT(Replay(one_row(row, R"({"codec": "zip"})")).refusal(), Contains("random_k"));
  CHECK_THAT(Replay(one_row(row + R"(, "codecs": {})", "null")).refusal(),
             Contains(where + "codecs"));
  CHECK_THAT(Replay(one_row(R"("site": "outer", "stage": 0, "phase": "step")", "null")).refusal(),
             Contains(where + "site"));
  CHECK_THAT(Replay(one_row(R"("site": "embedding", "phase": "step")", "null")).refusal(),
             Contains(where + "stage"));
  CHECK_THAT(Replay(one_row(R"("site": "parameter_gather", "stage": 0, "phase": "step")",
                            R"({"codec": "cast"})"))
                 .refusal(),
             Contains("no transfers of class parameter_gather"));
  CHECK_THAT(Replay(one_row(R"("site": "parameter_gather", "stage": 0, "phase": "steady")",
                            R"({"codec": "top_k", "ratio": 0.1})"))
                 .refusal(),
             Contains(where + "codec.codec: must be \"quantize\" or \"cast\""));
  const std::string twice = R"({"site": "embedding", "stage": 0, "phase": "tail"})";
  CHECK_THAT(Replay(R"([{"from_step": 1, "classes": [)" + twice + ", " + twice + "]}]").refusal(),
             Contains("embedding, stage 0, tail stands there twice"));
}

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
    const StoredPlans resumed =
        resumed_plans(fast, plan_document(plans.back(), plans, errors), job);
    CHECK(resumed.plans == plans);
    CHECK(resumed.errors == errors);
  }
  // Plans of another policy, or of another layout, do not go on.
  const PlanJob without = job_of({});
  const PlanHistory none = compression_plans(without);
  CHECK(resumed_plans(none, plan_document(chosen.back(), chosen, errors), without).plans == none);
  CHECK(resumed_plans(fast, plan_document(none.back(), none, {}), job).plans == fast);
  const PlanHistory other =
      compression_plans(job_of({"compress.policy=critical_path", "parallel.pipeline=2"}));
  CHECK(resumed_plans(other, plan_document(chosen.back(), chosen, errors), job).plans == other);
  CHECK(resumed_plans(fast, "", job).plans == fast);
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
  CHECK(resumed_plans(edited, document, replay).plans == edited);
  const PlanHistory shortened = {chosen.front()};
  CHECK(resumed_plans(shortened, document, replay).plans == shortened);
  CHECK(resumed_plans(compression_plans(job), document, job).plans == chosen);
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
  CHECK(resumed_plans(compression_plans(job), document, job).plans == chosen);
  for (const char* strategy : {"zero2", "zero3"}) {
    const PlanJob apart = job_of(
        {"compress.policy=critical_path", std::string("parallel.data_strategy=") + strategy});
    const PlanHistory anew = compression_plans(apart);
    REQUIRE(anew.front().plan.members() == chosen.front().plan.members());
    CHECK(resumed_plans(anew, document, apart).plans == (goes_on ? chosen : anew));
  }
}

TEST_CASE("a checkpoint's history that is out of order is refused") {
  const PlanJob job = job_of({"compress.policy=critical_path"});
  const PlanHistory own = compression_plans(job);
  PlanHistory later = own;
  later.push_back({.from_step = 1, .plan = own.back().plan});
  CHECK_THROWS_WITH(resumed_plans(own, plan_document(own.back(), later, {}), job),
                    Contains("in order of from_step"));
  later.erase(later.begin(), std::prev(later.end()));
  later.front().from_step = 5;
  CHECK_THROWS_WITH(resumed_plans(own, plan_document(own.back(), later, {}), job),
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
  CHECK(resumed_plans(now, plan_document(chosen.back(), chosen, {}), of_bits(8)).plans == chosen);
}

TEST_CASE("transfers within passes have no seconds of their own in a plan") {
  Cluster links{.nodes = {{.count = 4, .devices = 1}}};
  links.network_link.bytes_per_second = 1e6;
  const PlanJob job = planned_job({"parallel.data=4",
                                   "parallel.data_strategy=zero3",
                                   R"(compress={"policy": "all",
      "data_gradient": {"codec": "quantize", "bits": 4},
      "parameter_gather": {"codec": "quantize", "bits": 8}})"});
  const StepPlan plan = make_step_plan(job, assumed_costs(job.mesh.model, {}), links);
  const nlohmann::json row = [&] {
    const nlohmann::json rows = nlohmann::json::parse(plan_files(plan).json)[0]["classes"];
    const auto found = std::ranges::find_if(rows, [](const nlohmann::json& candidate) {
      return candidate["site"] == "parameter_gather" && candidate["phase"] == "steady";
    });
    REQUIRE(found != rows.end());
    return *found;
  }();
  CHECK(row["raw_bytes"].get<std::size_t>() > row["sent_bytes"].get<std::size_t>());
  CHECK(row["sent_bytes"].get<std::size_t>() > 0);
  CHECK(row["raw_seconds"].is_null());
  CHECK(row["slack_seconds"].is_null());
  const std::string text = plan_text(plan);
  const std::string line = text.substr(text.find("parameter_gather  0     steady"));
  CHECK_THAT(line.substr(0, line.find('\n')), Contains("           -           - "));
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
  CHECK(resumed_plans(compression_plans(job), document, job).plans == chosen);
  const PlanJob sharded =
      job_of({"compress.policy=critical_path", "parallel.data=2", "parallel.data_strategy=zero1"});
  const PlanHistory anew = compression_plans(sharded);
  CHECK(resumed_plans(anew, document, sharded).plans == anew);
}

TEST_CASE("plans that a guard has changed go on as long as the config makes what they began with") {
  const PlanJob job = job_of({"compress.policy=optimus_cc"});
  const PlanHistory begun = compression_plans(job);
  PlanHistory guarded = begun;
  guarded.push_back({.from_step = 9, .plan = begun.back().plan});
  guarded.back().plan.classes[0].reason = "guard: from step 9";
  const std::string document = plan_document(guarded.back(), guarded, {});
  CHECK(resumed_plans(begun, document, job).plans == guarded);
  const PlanHistory changed =
      compression_plans(job_of({"compress.policy=optimus_cc", "compress.stages=1"}));
  CHECK(resumed_plans(changed, document, job).plans == changed);
}

}  // namespace slackline
