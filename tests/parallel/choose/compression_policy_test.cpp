#include "parallel/choose/compression_policy.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>

#include "compress/codec_setting_json.h"
#include "core/error.h"
#include "core/file_io.h"
#include "parallel/schedule/make_schedule.h"
#include "tests/parallel/schedule/members_of.h"
#include "tests/support/catch.h"
#include "tests/support/refusal.h"

namespace slackline {

namespace {

using schedule::members_of;
using schedule::Phase;
using schedule::Schedule;
using schedule::Site;
using schedule::TransferClass;
using schedule::TransferId;

CompressConfig read(const std::string& section) {
  return read_compress_config(
      JsonReader::parse(R"({"compress": )" + section + "}", "run.json").section("compress"));
}

MeshJob job_of(const ParallelConfig& parallel, int num_micro_batches, bool tied = true) {
  return {.model = {.layers = 16,
                    .hidden = 48,
                    .heads = 6,
                    .sequence = 8,
                    .vocab = 50,
                    .ffn = 96,
                    .tie_embeddings = tied},
          .parallel = parallel,
          .micro_batch = {.B = 1, .T = 8},
          .num_micro_batches = num_micro_batches};
}

Schedule schedule_of(const MeshJob& job) {
  return make_schedules(job)->training;
}

// " x 16" messages of a class of the pipeline, nothing of the others.
std::string count_text(const Schedule& schedule, const TransferClass& members) {
  return schedule::is_once_a_step(members.phase)
             ? ""
             : " x " + std::to_string(members_of(schedule, members).size());
}

// What stands in the golden files: a row a class, whose codec and reason follow.
std::string plans_text(const PlanHistory& plans, const Schedule& schedule) {
  std::string text;
  for (const PlanFromStep& row : plans) {
    text += "from step " + std::to_string(row.from_step) + "\n";
    for (const CompressionPlan::Class& of : row.plan.classes) {
      text += "  " + schedule::site_name(of.members.site) + " " + std::to_string(of.members.stage) +
              " " + schedule::phase_name(of.members.phase) + count_text(schedule, of.members) +
              ": " + (of.codec ? codec_setting_json(*of.codec) : "plain") + " (" + of.reason +
              ")\n";
    }
  }
  return text;
}

struct GoldenLayout {
  const char* file = "";
  ParallelConfig parallel{};
  int num_micro_batches = 1;
  bool tied = true;
};

const std::vector<GoldenLayout> kLayouts = {
    {"1f1b_4x16_tied.txt", {.pipeline = 4, .data = 2}, 16},
    {"1f1b_4x2_untied.txt", {.pipeline = 4, .data = 2}, 2, false},
    {"gpipe_3x4.txt", {.pipeline = 3, .schedule = ScheduleName::gpipe}, 4},
    {"interleaved_2x2x4.txt",
     {.pipeline = 2, .data = 2, .schedule = ScheduleName::interleaved, .chunks = 2},
     4},
    {"zb_h1_4x8.txt", {.pipeline = 4, .schedule = ScheduleName::zb_h1}, 8},
    {"data_4.txt", {.data = 4}, 2},
};

// A section for every policy that compresses; the site is one that the layout has.
std::vector<std::string> golden_policies(const GoldenLayout& layout) {
  const bool pipeline = layout.parallel.pipeline > 1;
  const std::string site = pipeline ? "pipeline_backward" : "data_gradient";
  const std::string set = ", \"" + site + R"(": {"codec": "quantize", "bits": 4})";
  return {R"({"policy": "all")" + set + "}",
          R"({"policy": "list", "classes": [{"site": ")" + site + R"(", "stage": )" +
              (pipeline ? "1" : "0") + R"(, "codec": {"codec": "cast"}}]})",
          R"({"policy": "optimus_cc"})"};
}

// Messages of a boundary's backward direction that the last plan compresses.
std::vector<TransferId> compressed(const PlanHistory& plans, const Schedule& schedule, int stage) {
  std::vector<TransferId> all;
  for (const Phase phase : {Phase::warmup, Phase::steady, Phase::cooldown}) {
    const TransferClass members{Site::pipeline_backward, stage, phase};
    if (plans.back().plan.setting_of(members) != nullptr) {
      const std::vector<TransferId> some = members_of(schedule, members);
      all.insert(all.end(), some.begin(), some.end());
    }
  }
  return all;
}

// Stages whose gradients a plan compresses, in all their phases.
std::vector<int> gradient_stages(const std::string& section, const MeshJob& job) {
  std::set<int> compressed;
  std::set<int> plain;
  const PlanHistory plans = make_compression_plans(read(section), job);
  for (const CompressionPlan::Class& row : plans.back().plan.classes) {
    if (row.members.site == Site::data_gradient) {
      (row.codec ? compressed : plain).insert(row.members.stage);
    }
  }
  std::vector<int> stages;
  std::set_difference(
      compressed.begin(), compressed.end(), plain.begin(), plain.end(), std::back_inserter(stages));
  return stages;
}

std::string refusal(const std::string& section, const MeshJob& job) {
  return testing::refusal_of<ConfigError>(
      [&] { return make_compression_plans(read(section), job); });
}

}  // namespace

TEST_CASE("plans of all, list and optimus_cc equal their golden text") {
  for (const GoldenLayout& layout : kLayouts) {
    const MeshJob job = job_of(layout.parallel, layout.num_micro_batches, layout.tied);
    std::string text;
    for (const std::string& policy : golden_policies(layout)) {
      text += policy + "\n" +
              plans_text(make_compression_plans(read(policy), job), schedule_of(job)) + "\n";
    }
    INFO(layout.file);
    CHECK(text ==
          read_file(std::string(SL_SOURCE_DIR) + "/tests/golden/compression/" + layout.file));
  }
}

TEST_CASE("optimus_cc compresses the last min(m, p - s) backward messages of each boundary") {
  for (const schedule::Transfers transfers :
       {schedule::Transfers::asynchronous, schedule::Transfers::blocking}) {
    for (int p = 2; p <= 8; ++p) {
      for (int m = 1; m <= 12; ++m) {
        const MeshJob job = job_of({.pipeline = p, .transfers = transfers}, m);
        const PlanHistory plans = make_compression_plans(read(R"({"policy": "optimus_cc"})"), job);
        const Schedule schedule = schedule_of(job);
        for (int s = 1; s < p; ++s) {
          INFO("p " << p << ", m " << m << ", boundary " << s << " -> " << s - 1);
          const int count = std::min(m, p - s);
          std::vector<TransferId> last;
          for (int k = m - count; k < m; ++k) {
            last.push_back({Site::pipeline_backward, s, k});
          }
          CHECK(compressed(plans, schedule, s) == last);
        }
      }
    }
  }
}

TEST_CASE("optimus_cc without epilogue_only compresses every backward message and no forward one") {
  const MeshJob job = job_of({.pipeline = 4, .data = 2}, 16);
  const PlanHistory plans =
      make_compression_plans(read(R"({"policy": "optimus_cc", "epilogue_only": false})"), job);
  for (int s = 1; s < 4; ++s) {
    CHECK(compressed(plans, schedule_of(job), s).size() == 16);
  }
  for (const CompressionPlan::Class& row : plans.back().plan.classes) {
    if (row.members.site == Site::pipeline_forward || row.members.site == Site::embedding) {
      CHECK_FALSE(row.codec);
    }
  }
}

TEST_CASE("optimus_cc takes the paper's ranks unless sites are set") {
  const MeshJob job = job_of({.pipeline = 2, .data = 2}, 4);
  const TransferClass boundary{Site::pipeline_backward, 1, Phase::cooldown};
  const TransferClass gradient{Site::data_gradient, 0, Phase::tail};
  const PlanHistory paper = make_compression_plans(read(R"({"policy": "optimus_cc"})"), job);
  CHECK(*paper.back().plan.setting_of(boundary) ==
        CodecSetting{.error_feedback = ErrorFeedback::lazy, .always = true, .rank = 16});
  CHECK(*paper.back().plan.setting_of(gradient) ==
        CodecSetting{.error_feedback = ErrorFeedback::immediate, .always = true, .rank = 128});
  const PlanHistory set = make_compression_plans(
      read(R"({"policy": "optimus_cc", "pipeline_backward": {"codec": "low_rank", "rank": 3},
               "embedding": {"codec": "cast"}})"),
      job);
  CHECK(*set.back().plan.setting_of(boundary) == CodecSetting{.rank = 3});
  CHECK(set.back().plan.setting_of(gradient)->rank == 128);
  CHECK(set.back().plan.setting_of({Site::embedding, 0, Phase::tail})->kind == CodecKind::cast);
}

TEST_CASE("optimus_cc compresses gradients of the first stages: three quarters, rounded up") {
  const MeshJob job = job_of({.pipeline = 4, .data = 2}, 4);
  CHECK(gradient_stages(R"({"policy": "optimus_cc"})", job) == std::vector<int>{0, 1, 2});
  CHECK(gradient_stages(R"({"policy": "optimus_cc", "stages": 0})", job).empty());
  CHECK(gradient_stages(R"({"policy": "optimus_cc", "stages": 1})", job) == std::vector<int>{0});
  CHECK(gradient_stages(R"({"policy": "optimus_cc", "stages": 9})", job).size() == 4);
  const std::vector<std::size_t> expected = {1, 2, 3, 3, 4, 5, 6, 6};
  for (int p = 1; p <= 8; ++p) {
    CHECK(gradient_stages(R"({"policy": "optimus_cc"})", job_of({.pipeline = p, .data = 2}, 4))
              .size() == expected[static_cast<std::size_t>(p - 1)]);
  }
  // Chunks of one pipeline rank go together.
  CHECK(gradient_stages(
            R"({"policy": "optimus_cc", "stages": 1})",
            job_of({.pipeline = 2, .data = 2, .schedule = ScheduleName::interleaved, .chunks = 2},
                   4)) == std::vector<int>{0, 2});
}

TEST_CASE("of the rows of a list the first that names a class counts") {
  const MeshJob job = job_of({.pipeline = 4}, 8);
  const CompressionPlan plan =
      make_compression_plans(
          read(R"({"policy": "list", "pipeline_backward": {"codec": "low_rank", "rank": 2},
                   "classes": [{"site": "pipeline_backward", "stage": 2, "phase": "steady"},
                               {"site": "pipeline_backward", "phase": "cooldown",
                                "codec": {"codec": "cast"}},
                               {"site": "pipeline_backward", "stage": 2,
                                "codec": {"codec": "quantize", "bits": 8}}]})"),
          job)
          .back()
          .plan;
  CHECK(plan.setting_of({Site::pipeline_backward, 2, Phase::steady})->rank == 2);
  CHECK(plan.setting_of({Site::pipeline_backward, 2, Phase::cooldown})->kind == CodecKind::cast);
  CHECK(plan.setting_of({Site::pipeline_backward, 1, Phase::cooldown})->kind == CodecKind::cast);
  CHECK(plan.setting_of({Site::pipeline_backward, 1, Phase::steady}) == nullptr);
  CHECK(plan.setting_of({Site::pipeline_forward, 2, Phase::steady}) == nullptr);
}

TEST_CASE("the last sums of a stage are a class of their own, which a listed step stands for too") {
  // Wide enough for several buckets a stage.
  MeshJob job = job_of({.pipeline = 2, .data = 2}, 24);
  job.model.hidden = 1024;
  job.model.ffn = 4096;
  const auto codec_of = [&](const std::string& rows, Phase phase) -> std::string {
    const CompressionPlan plan =
        make_compression_plans(read(R"({"policy": "list", "classes": [)" + rows + "]}"), job)
            .back()
            .plan;
    CHECK(plan.classes.size() == 9);  // four of the pipeline, two of each stage, the table
    const CodecSetting* codec = plan.setting_of({Site::data_gradient, 1, phase});
    return codec == nullptr ? "plain" : name_of(codec->kind);
  };
  const std::string step =
      R"({"site": "data_gradient", "phase": "step", "codec": {"codec": "cast"}})";
  const std::string tail =
      R"({"site": "data_gradient", "stage": 1, "phase": "tail",
          "codec": {"codec": "quantize", "bits": 8}})";
  CHECK(codec_of(step, Phase::step) == "cast");
  CHECK(codec_of(step, Phase::tail) == "cast");
  CHECK(codec_of(step + ", " + tail, Phase::step) == "cast");
  CHECK(codec_of(step + ", " + tail, Phase::tail) == "quantize");
  CHECK(codec_of(tail, Phase::step) == "plain");
  CHECK(codec_of(tail, Phase::tail) == "quantize");
}

TEST_CASE("warm-up steps come first and plain, where there is anything to compress") {
  const MeshJob job = job_of({.pipeline = 2, .data = 2}, 4);
  const PlanHistory plans =
      make_compression_plans(read(R"({"policy": "optimus_cc", "warmup_steps": 5})"), job);
  REQUIRE(plans.size() == 2);
  CHECK_FALSE(plan_at(plans, 5).plan.compresses_anything());
  CHECK(plan_at(plans, 5).plan.classes.front().reason == "warm-up steps");
  CHECK(plan_at(plans, 6).plan.compresses_anything());
  CHECK(make_compression_plans(read(R"({"warmup_steps": 5})"), job).size() == 1);
}

TEST_CASE("policy none compresses nothing, whatever is set") {
  const PlanHistory plans = make_compression_plans(read(R"({"data_gradient": {"codec": "cast"}})"),
                                                   job_of({.pipeline = 2, .data = 2}, 4));
  REQUIRE(plans.size() == 1);
  CHECK(plans[0].from_step == 1);
  CHECK_FALSE(plans[0].plan.compresses_anything());
  // Of messages four; of each stage its last bucket and those before; the table.
  CHECK(plans[0].plan.classes.size() == 9);
}

TEST_CASE("units of moments are for gradients of ranks that have the optimizer's state") {
  using Catch::Contains;
  const std::string all = R"({"policy": "all", ")";
  const std::string moments = R"(": {"codec": "quantize", "bits": 2, "units": "moments"}})";
  const MeshJob whole = job_of({.pipeline = 2, .data = 2}, 4);
  CHECK(refusal(all + "data_gradient" + moments, whole) == "accepted");
  CHECK(refusal(all + "embedding" + moments, whole) == "accepted");
  CHECK_THAT(refusal(all + "pipeline_backward" + moments, whole),
             Catch::StartsWith("compress.pipeline_backward: ") && Contains("are of gradients"));
  const MeshJob sharded =
      job_of({.pipeline = 2, .data = 2, .data_strategy = DataStrategy::zero1}, 4);
  CHECK_THAT(refusal(all + "data_gradient" + moments, sharded),
             Catch::StartsWith("compress.data_gradient: ") && Contains("zero1 shares out"));
  CHECK_THAT(refusal(R"({"policy": "list", "classes": [{"site": "embedding", "codec": )"
                     R"({"codec": "quantize", "bits": 2, "units": "moments"}}]})",
                     sharded),
             Catch::StartsWith("compress.classes.0: "));
  CHECK_THAT(
      refusal(R"({"policy": "critical_path", "data_gradient": {"candidates": )"
              R"([{"codec": "cast"}, {"codec": "quantize", "bits": 2, "units": "moments"}]}})",
              sharded),
      Catch::StartsWith("compress.data_gradient.candidates.1: "));
}

TEST_CASE("a site or class that the layout lacks is a config error that says why") {
  using Catch::Contains;
  const MeshJob alone = job_of({}, 4);
  const std::string all = R"({"policy": "all", ")";
  const std::string cast = R"(": {"codec": "cast"}})";
  CHECK_THAT(
      refusal(all + "pipeline_backward" + cast, alone),
      Catch::StartsWith("compress.pipeline_backward: ") && Contains("parallel.pipeline is 1"));
  CHECK_THAT(refusal(all + "pipeline_forward" + cast, alone), Contains("parallel.pipeline is 1"));
  CHECK_THAT(refusal(all + "data_gradient" + cast, alone), Contains("parallel.data is 1"));
  CHECK_THAT(refusal(all + "embedding" + cast, alone), Contains("one rank holds"));
  CHECK_THAT(refusal(all + "embedding" + cast, job_of({.pipeline = 2}, 4, false)),
             Contains("model.tie_embeddings is false"));
  CHECK_THAT(refusal(all + "embedding" + cast,
                     job_of({.pipeline = 2, .embedding_sync = EmbeddingSync::separate}, 4)),
             Contains("use fused"));
  CHECK(refusal(R"({"data_gradient": {"codec": "cast"}})", alone) == "accepted");
  const auto gathers = [&](const char* letters, int group) {
    const ParallelConfig mesh{
        .data = 4, .group = group, .data_strategy = *data_strategy_named(letters)};
    return refusal(all + "parameter_gather" + cast, job_of(mesh, 4));
  };
  CHECK_THAT(gathers("NNG", 2), Contains("whole on every rank"));
  for (const char* letters : {"III", "ING", "IGG"}) {
    INFO(letters);
    CHECK_THAT(
        gathers(letters, 1),
        Catch::StartsWith("compress.parameter_gather: ") && Contains("in groups of one data rank"));
    CHECK(gathers(letters, 2) == "accepted");
    CHECK(gathers(letters, 0) == "accepted");  // one group
  }
  CHECK(gathers("GGG", 1) == "accepted");
  const std::string list = R"({"policy": "list", "classes": [{"codec": {"codec": "cast"}, )";
  CHECK_THAT(refusal(list + R"("site": "data_gradient"}]})", alone),
             Catch::StartsWith("compress.classes.0.site: ") && Contains("parallel.data is 1"));
  const MeshJob two = job_of({.pipeline = 2}, 4);
  CHECK_THAT(refusal(list + R"("site": "pipeline_backward", "stage": 2}]})", two),
             Catch::StartsWith("compress.classes.0: ") && Contains("got stage 2, phase any"));
  CHECK_THAT(refusal(list + R"("site": "pipeline_backward", "phase": "step"}]})", two),
             Contains("got stage any, phase step"));
}

}  // namespace slackline
