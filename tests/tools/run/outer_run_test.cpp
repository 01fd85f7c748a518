// Runs in outer rounds: what they write, how they go on and end.

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/support/ended.h"
#include "tests/tools/run/metrics_lines.h"
#include "tests/tools/run/outer_runs.h"
#include "tests/tools/run/training_run.h"

namespace slackline {

using Catch::Contains;
using testing::require_done;
using testing::require_refusal;

namespace {

// A run of twelve steps.
struct Form {
  std::string outer{};
  int ranks = 2;
  std::vector<std::string> more{};
};

// A run that goes on from one of these steps ends with the bits of the run that made them.
void require_same_bits(const TrainingRun& run, const Form& form, const std::vector<int>& steps) {
  INFO(form.outer);
  const auto settings = [&](const std::string& name) {
    return workers(form.outer, with(form.more, {"run.dir=" + run.path(name)}));
  };
  std::filesystem::remove_all(run.path("whole"));
  require_trained(run, form.ranks, settings("whole"));
  const std::string whole = run.weights_sha256(run.checkpoint(12, "whole"));
  for (const int step : steps) {
    std::filesystem::remove_all(run.path("resumed"));
    require_trained(
        run,
        form.ranks,
        with(settings("resumed"), {"checkpoint.resume_from=" + run.checkpoint(step, "whole")}));
    CHECK(run.weights_sha256(run.checkpoint(12, "resumed")) == whole);
  }
}

}  // namespace

TEST_CASE("a run in outer rounds goes on with the same bits from any step of a round") {
  const TrainingRun run;
  const std::vector<Form> forms = {
      {R"({"method": "co2", "period": 3, "penalty": "gap"})"},
      {R"({"method": "slowmo", "period": 8})"},  // of which none has ended at first
      {R"({"method": "co2", "period": 4, "penalty": "gap_per_tensor", "reach": "measured"})",
       4,
       {"parallel.pipeline=2", "run.eval_every=3"}},
      {R"({"method": "co2", "period": 4, "clip": 0.01, "ending": "mean"})",
       4,
       {"parallel.data=4", "parallel.group=2", "precision=bf16", "run.eval_every=5"}},
      {R"({"method": "diloco", "period": 4})", 4, {"parallel.tensor=2", "precision=bf16"}},
      {R"({"method": "co2", "period": 3})",
       8,
       {"parallel.data=4",
        "parallel.group=2",
        "parallel.pipeline=2",
        "parallel.data_strategy=zero1",
        R"(compress={"policy": "all", "data_gradient":
        {"codec": "low_rank", "rank": 2, "error_feedback": "immediate"}})"}},
      {R"({"method": "co2", "period": 3, "eager": true})",
       4,
       {"parallel.data=4",
        "parallel.group=2",
        "parallel.data_strategy=zero2",
        R"(compress={"policy": "all", "outer": {"codec": "top_k", "ratio": 0.02}})"}},
      {R"({"method": "diloco", "period": 6, "fragments": 3})",
       4,
       {"parallel.pipeline=2",
        R"(compress={"policy": "all", "warmup_steps": 4,
        "outer": {"codec": "low_rank", "rank": 2}})"}}};
  for (const Form& form : forms) {
    require_same_bits(run, form, {5, 10});  // in the middle of rounds, with one under way
  }
}

// Of what was sent before the checkpoint the text alone tells.
TEST_CASE("distances of workers go on behind a checkpoint") {
  const TrainingRun run;
  for (const char* outer : {R"({"method": "diloco", "period": 4})",
                            R"({"method": "co2", "period": 4})",
                            R"({"method": "co2", "period": 4, "eager": true})"}) {
    INFO(outer);
    const auto distance = [&](const std::string& name) {
      for (const nlohmann::json& line : step_lines(run.path(name))) {
        if (line.at("step") == 8) {
          return line.at("outer").at("distance").get<double>();
        }
      }
      return -1.0;
    };
    for (const char* name : {"whole", "resumed"}) {
      std::filesystem::remove_all(run.path(name));
    }
    require_trained(run, 2, workers(outer, {"run.dir=" + run.path("whole")}));
    require_trained(run,
                    2,
                    workers(outer,
                            {"run.dir=" + run.path("resumed"),
                             "checkpoint.resume_from=" + run.checkpoint(5, "whole")}));
    CHECK(distance("whole") > 0.0);
    CHECK(distance("resumed") == Approx(distance("whole")).epsilon(1e-6));
  }
}

// Rounds in the background send end points, coded ones differences.
TEST_CASE("a distance that squares of the other kind were saved for is null") {
  const TrainingRun run;
  const std::string outer = R"({"method": "co2", "period": 4})";
  const std::string codec =
      R"(compress={"policy": "all", "outer": {"codec": "quantize", "bits": 4}})";
  require_trained(run, 2, workers(outer, {"run.dir=" + run.path("plain"), "run.save_every=1"}));
  const auto goes_on = [&](const std::string& from, const std::string& name) {
    return workers(
        outer,
        {codec, "run.save_every=1", "run.dir=" + run.path(name), "checkpoint.resume_from=" + from});
  };
  require_trained(run, 2, goes_on(run.checkpoint(5, "plain"), "coded"));
  require_trained(run, 2, goes_on(run.checkpoint(6, "coded"), "again"));
  for (const char* name : {"coded", "again"}) {
    INFO(name);
    int ends = 0;
    for (const nlohmann::json& line : step_lines(run.path(name))) {
      if (line.contains("outer")) {
        const nlohmann::json& distance = line.at("outer").at("distance");
        CHECK(distance.is_null() == (line.at("step") == 8));
        CHECK((distance.is_null() || distance.get<double>() > 0.0));
        ++ends;
      }
    }
    CHECK(ends == 2);
  }
}

TEST_CASE("a run that is shortened to the middle of a round says that its end is missing") {
  const TrainingRun run;
  const std::string outer = R"({"method": "co2", "period": 4})";
  const std::vector<std::string> settings = workers(outer, {"run.dir=" + run.path("run")});
  require_trained(run, 2, settings);
  std::filesystem::remove_all(run.checkpoint(12, "run"));
  const auto resume_to = [&](const std::string& steps) {
    return run.train(with(settings, {"run.steps=" + steps}), {"--ranks", "2", "--resume"});
  };
  const ProcessResult shortened = resume_to("10");
  CHECK(shortened.exit_code == 0);
  CHECK_THAT(shortened.error, Contains("lacks the end of a round"));
  CHECK(resume_to("12").exit_code == 0);
  CHECK_THAT(resume_to("12").error, !Contains("lacks the end of a round"));
}

// Every method on every layout, and each of the two with nearly every codec.
TEST_CASE("a state of rounds that no run can have made is refused") {
  const TrainingRun run;
  const std::string outer = R"({"method": "diloco", "period": 4, "fragments": 2})";
  require_trained(run, 2, workers(outer, {"run.dir=" + run.path("whole")}));
  const std::string manifest = run.checkpoint(10, "whole") + "/manifest.json";
  const nlohmann::ordered_json whole = nlohmann::ordered_json::parse(read_file(manifest));
  REQUIRE(whole.at("outer").at("last_end") == 10);
  const std::vector<std::pair<const char*, std::int64_t>> numbers = {{"last_end", 11},
                                                                     {"last_end", -1},
                                                                     {"before", 11},
                                                                     {"before", -5},
                                                                     {"period", 0},
                                                                     {"fragment", 2},
                                                                     {"fragment", -1}};
  for (const auto& [key, number] : numbers) {
    INFO(key << " " << number);
    nlohmann::ordered_json edited = whole;
    edited["outer"][key] = number;
    edited.erase("xxh3");
    write_file_atomically(manifest, edited.dump());
    require_refusal(run.train(workers(outer,
                                      {"run.dir=" + run.path("edited"),
                                       "checkpoint.resume_from=" + run.checkpoint(10, "whole")}),
                              {"--ranks", "2"}),
                    3,
                    std::string("outer.") + key);
  }
}

TEST_CASE("methods, layouts and codecs of rounds go together, and go on with the same bits",
          "[slow]") {
  const std::vector<std::string> methods = {
      R"({"method": "co2", "period": 3})",
      R"({"method": "co2", "period": 4, "penalty": "gap_per_tensor", "clip": 0.01})",
      R"({"method": "co2", "period": 3, "penalty": "gap", "reach": "measured", "eager": true,
          "clip": 0.1, "clip_kind": "norm"})",
      R"({"method": "slowmo", "period": 4})",
      R"({"method": "diloco", "period": 3})",
      R"({"method": "diloco", "period": 4, "fragments": 2, "mix": 0.25})"};
  const std::vector<Form> layouts = {
      {"", 2, {}},
      {"", 4, {"parallel.tensor=2"}},
      {"", 4, {"parallel.pipeline=2", "precision=bf16"}},
      {"", 4, {"parallel.data=4", "parallel.group=2", "parallel.data_strategy=NNI"}},
      {"", 4, {"parallel.data=4", "parallel.group=2", "parallel.data_strategy=NII"}},
      {"",
       4,
       {"parallel.data=4", "parallel.group=2", "parallel.data_strategy=III", "precision=bf16"}},
      {"",
       8,
       {"parallel.data=4",
        "parallel.group=2",
        "parallel.pipeline=2",
        "parallel.data_strategy=NNI"}}};
  const std::vector<std::string> codecs = {"",
                                           R"({"codec": "quantize", "bits": 4})",
                                           R"({"codec": "quantize", "bits": 2})",
                                           R"({"codec": "top_k", "ratio": 0.03})",
                                           R"({"codec": "random_k", "ratio": 0.1})",
                                           R"({"codec": "low_rank", "rank": 2})",
                                           R"({"codec": "cast"})"};
  const TrainingRun run;
  for (std::size_t m = 0; m < methods.size(); ++m) {
    for (std::size_t l = 0; l < layouts.size(); ++l) {
      Form form = layouts[l];
      form.outer = methods[m];
      const std::string& codec = codecs[(m + l) % codecs.size()];
      if (!codec.empty()) {
        form.more.push_back(R"(compress={"policy": "all", "outer": )" + codec + "}");
      }
      INFO("layout " << l << ", codec " << codec);
      require_same_bits(run, form, {5});
    }
  }
}

TEST_CASE("compressed rounds send fewer bytes, and lines say what they stand for") {
  const TrainingRun run;
  const std::string outer = R"({"method": "co2", "period": 3})";
  require_trained(run, 2, workers(outer, {"run.dir=" + run.path("plain")}));
  require_trained(
      run,
      2,
      workers(outer,
              {"run.dir=" + run.path("coded"),
               R"(compress={"policy": "all", "outer": {"codec": "quantize", "bits": 4}})"}));
  const auto total = [&](const std::string& name, const char* bytes) {
    double sum = 0.0;
    for (const nlohmann::json& line : step_lines(run.path(name))) {
      sum += line.at("axes").at("outer").at(bytes).get<double>();
    }
    return sum;
  };
  CHECK(total("plain", "raw_bytes") == total("plain", "sent_bytes"));
  CHECK(total("coded", "sent_bytes") < total("plain", "sent_bytes") / 5);
  const double stands_for = total("coded", "raw_bytes");
  CHECK(std::abs(stands_for - total("plain", "raw_bytes")) < 1e-3 * stands_for);
}

TEST_CASE("compressed fragments stand for as many bytes as they are plain, each by itself") {
  const TrainingRun run;
  const std::string outer = R"({"method": "diloco", "period": 4, "fragments": 4})";
  require_trained(run, 2, workers(outer, {"run.dir=" + run.path("plain")}));
  require_trained(
      run,
      2,
      workers(outer,
              {"run.dir=" + run.path("coded"),
               R"(compress={"policy": "all", "outer": {"codec": "quantize", "bits": 4}})"}));
  const std::vector<nlohmann::json> plain = step_lines(run.path("plain"));
  const std::vector<nlohmann::json> coded = step_lines(run.path("coded"));
  REQUIRE(plain.size() == 12);
  REQUIRE(coded.size() == 12);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    INFO("step " << i + 1);
    const nlohmann::json& expected = plain[i].at("axes").at("outer");
    const nlohmann::json& found = coded[i].at("axes").at("outer");
    CHECK(expected.at("raw_bytes") == expected.at("sent_bytes"));
    CHECK(found.at("sent_bytes").get<double>() < expected.at("sent_bytes").get<double>());
    CHECK(found.at("raw_bytes").get<double>() ==
          Approx(expected.at("raw_bytes").get<double>()).epsilon(1e-3));
  }
}

TEST_CASE("a round under way keeps to what it began with") {
  const TrainingRun run;
  require_trained(run, 2, workers(R"({"method": "co2", "period": 3, "eager": true})", {}));
  const auto goes_on = [&](const std::string& outer, const std::string& checkpoint) {
    std::filesystem::remove_all(run.path("next"));
    return run.train(
        workers(outer, {"run.dir=" + run.path("next"), "checkpoint.resume_from=" + checkpoint}),
        {"--ranks", "2"});
  };
  require_refusal(goes_on(R"({"method": "co2", "period": 3})", run.checkpoint(5)),
                  2,
                  "outer.eager: must stay true");
  std::filesystem::remove_all(run.path("run"));
  require_trained(run, 2, workers(R"({"method": "diloco", "period": 4, "fragments": 2})", {}));
  require_refusal(goes_on(R"({"method": "diloco", "period": 4})", run.checkpoint(5)),
                  2,
                  "outer.fragments: must stay 2");
  std::filesystem::remove_all(run.path("run"));
  require_trained(run, 2, workers(R"({"method": "co2", "period": 3})", {}));
  require_refusal(goes_on(R"({"method": "co2", "period": 3, "delay": 0})", run.checkpoint(5)),
                  2,
                  "outer.delay: must stay 1");
}

TEST_CASE("rounds go on over other layouts of a worker, and rounds that warm up travel plain") {
  const TrainingRun run;
  const std::string codec = R"("outer": {"codec": "low_rank", "rank": 2})";
  const std::string outer = R"({"method": "co2", "period": 3, "eager": true})";
  require_trained(run,
                  4,
                  workers(outer,
                          {"parallel.tensor=2",
                           "run.dir=" + run.path("first"),
                           R"(compress={"policy": "all", "warmup_steps": 3, )" + codec + "}"}));
  std::vector<double> sent;
  for (const nlohmann::json& line : step_lines(run.path("first"))) {
    const double bytes = line.at("axes").at("outer").at("sent_bytes");
    if (bytes > 0.0) {
      sent.push_back(bytes);
    }
  }
  REQUIRE(sent.size() == 4);
  CHECK(sent[0] > 2.0 * sent[1]);
  CHECK(sent[1] == sent[2]);
  const std::string from = "checkpoint.resume_from=" + run.checkpoint(5, "first");
  const std::vector<std::vector<std::string>> layouts = {
      {"parallel.pipeline=2"}, {"parallel.data=4", "parallel.group=2"}, {"parallel.tensor=1"}};
  for (const std::vector<std::string>& layout : layouts) {
    INFO(layout.front());
    const int ranks = layout.front() == "parallel.tensor=1" ? 2 : 4;
    std::filesystem::remove_all(run.path("next"));
    require_trained(run,
                    ranks,
                    workers(outer,
                            with(layout,
                                 {from,
                                  "run.dir=" + run.path("next"),
                                  R"(compress={"policy": "all", )" + codec + "}"})));
    // Data ranks share out samples among workers in another way.
    const double expected = run.metric("loss", "first")[5];
    const double bound = layout.front() == "parallel.data=4" ? 1e-2 : 1e-4;
    CHECK(run.metric("loss", "next").front() == Approx(expected).epsilon(bound));
  }
}

TEST_CASE("lines of ends of rounds have all workers' losses, all lines the outer axis") {
  const TrainingRun run;
  require_trained(run, 2, workers(R"({"method": "co2", "period": 5})", {}));
  const std::vector<nlohmann::json> lines = step_lines(run.path("run"));
  REQUIRE(lines.size() == 12);
  double sent = 0.0;
  for (const nlohmann::json& line : lines) {
    const int step = line.at("step");
    const bool ends = step % 5 == 0 || step == 12;
    CHECK(line.contains("worker_losses") == ends);
    const nlohmann::json& axis = line.at("axes").at("outer");
    sent += axis.at("sent_bytes").get<double>();
    CHECK(axis.at("across_bytes") == axis.at("sent_bytes"));  // workers are groups
    if (ends) {
      CHECK(line.at("worker_losses").size() == 2);
      CHECK(line.at("worker_losses")[0] == line.at("loss"));
      CHECK(line.at("worker_losses")[1] != line.at("loss"));  // of other samples
      CHECK(line.at("outer").at("left_out") == false);
      CHECK(line.at("outer").at("distance").get<double>() >= 0.0);
    }
    if (ends && step > 5) {  // a round has arrived, which was sent with the end before
      CHECK(line.at("outer").at("sent_step") == (step == 10 ? 5 : 10));
      CHECK(line.at("outer").at("round_seconds").get<double>() > 0.0);
      CHECK(line.at("outer").at("period_seconds").get<double>() > 0.0);
    } else if (ends) {
      CHECK_FALSE(line.at("outer").contains("round_seconds"));
    }
  }
  // Three rounds, of all workers; each sends what a step of ranks that step together does.
  require_trained(
      run, 2, workers(R"({"method": "none"})", {"parallel.group=2", "run.dir=" + run.path("sum")}));
  const nlohmann::json together = step_lines(run.path("sum"))[0].at("axes").at("data");
  CHECK(std::abs(sent - 3.0 * together.at("sent_bytes").get<double>()) <= 0.01 * sent);
  CHECK(lines[11].at("outer").at("distance").get<double>() > 0.0);
  // The last end also waits for the round that it sends.
  CHECK(lines[11].at("outer").at("wait_seconds").get<double>() > 0.0);
  CHECK(run.train({"run.dir=" + run.path("plain")}).exit_code == 0);
  CHECK_FALSE(step_lines(run.path("plain"))[0].at("axes").contains("outer"));
}

TEST_CASE("other numbers of workers go on from the anchor, and the run says so") {
  const TrainingRun run;
  const std::string outer = R"({"method": "co2", "period": 3})";
  require_trained(run, 2, workers(outer, {}));
  const std::string from = "checkpoint.resume_from=" + run.checkpoint(5);

  struct Other {
    std::string name{};
    int ranks = 1;
    std::vector<std::string> settings{};
  };

  const std::vector<Other> others = {{"four", 4, {"parallel.data=4"}},
                                     {"none", 2, {"outer.method=none"}},
                                     {"one", 1, {"outer.method=none", "parallel.data=1"}}};
  for (const Other& other : others) {
    INFO(other.name);
    const ProcessResult result = require_done(
        run.train(workers(outer, with(other.settings, {from, "run.dir=" + run.path(other.name)})),
                  {"--ranks", std::to_string(other.ranks)}));
    CHECK_THAT(result.error, Contains("made by 2 workers"));
    std::vector<int> ends;  // rounds go on where the run has workers
    for (const nlohmann::json& line : step_lines(run.path(other.name))) {
      if (line.contains("worker_losses")) {
        ends.push_back(line.at("step"));
      }
    }
    CHECK(ends == (other.name == "four" ? std::vector<int>{6, 9, 12} : std::vector<int>{}));
    // What was learned is kept: the first step's loss is not that of initial weights.
    CHECK(run.metric("loss", other.name).front() < run.metric("loss").front());
  }
  // One rank and two that step together start from the same numbers.
  const double two = run.metric("loss", "none").front();
  CHECK(std::abs(run.metric("loss", "one").front() - two) <= 1e-6 * two);
}

// Its momentum is in units of the rate, which a schedule may end without.
TEST_CASE("the last round of SlowMo enters the anchor though the last step has no rate") {
  const TrainingRun run;
  const auto last_loss = [&](const std::string& outer, const std::string& name) {
    require_trained(
        run, 2, workers(outer, {"run.steps=6", "run.eval_every=6", "run.dir=" + run.path(name)}));
    return run.metric("eval_loss", name).back();
  };
  // Both leave the mean of what workers have learned.
  const double slowmo =
      last_loss(R"({"method": "slowmo", "period": 6, "lr": 1, "momentum": 0})", "slowmo");
  const double mean =
      last_loss(R"({"method": "co2", "period": 6, "delay": 0, "lr": 1, "momentum": 0})", "mean");
  CHECK(std::abs(slowmo - mean) <= 1e-6 * mean);
  CHECK(mean < 0.99 * run.metric("loss", "mean").front());
}

TEST_CASE("a bound by norm holds the round that other numbers of workers owe") {
  const TrainingRun run;
  const auto first_loss = [&](const std::string& clip, const std::string& name) {
    const std::string outer = R"({"method": "co2", "period": 3, "lr": 1)" + clip + "}";
    const std::vector<std::string> more = {"optimizer.lr=1e-2"};
    require_trained(run, 2, workers(outer, with(more, {"run.dir=" + run.path(name)})));
    const std::string on = name + "-on";
    require_trained(run,
                    1,
                    workers(outer,
                            with(more,
                                 {"outer.method=none",
                                  "parallel.data=1",
                                  "checkpoint.resume_from=" + run.checkpoint(5, name),
                                  "run.dir=" + run.path(on)})));
    return run.metric("loss", on).front();
  };
  // The first round has arrived that the anchor lacks: so bounded, it leaves the initial weights.
  const double bounded = first_loss(R"(, "clip_kind": "norm", "clip": 1e-9)", "bounded");
  const double free = first_loss("", "free");
  const double initial = run.metric("loss", "bounded").front();
  CHECK(std::abs(bounded - initial) <= 0.01);  // of other sequences
  CHECK(free < initial - 0.1);
}

TEST_CASE("a worker whose loss is not finite ends all with 5 at the end of the round") {
  const TrainingRun run;
  require_refusal(run.train(workers(R"({"method": "co2", "period": 4})", {"optimizer.lr=1e30"}),
                            {"--ranks", "2"}),
                  5,
                  "stopped at the end of the outer round");
}

TEST_CASE("no checkpoint is made of a worker that trains no further") {
  const TrainingRun run;
  require_refusal(run.train(workers(R"({"method": "co2", "period": 12})", {"optimizer.lr=1e30"}),
                            {"--ranks", "2"}),
                  5,
                  "step 5: stopped before a checkpoint");
  CHECK_FALSE(std::filesystem::exists(run.checkpoint(5)));
}

}  // namespace slackline
