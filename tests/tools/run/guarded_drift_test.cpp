// Steps that drift after a guard has changed the plan: links and costs are measured anew, and what
// is chosen then stays within what the guard left.

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/comm/forwarding_communicator.h"
#include "core/comm/world.h"
#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/support/unowned.h"
#include "tests/tools/run/training_run.h"
#include "tools/run/trainer.h"

namespace slackline::testing {

namespace {

using Json = nlohmann::json;

constexpr int kLastUsualStep = 30;

// A world in which every step after the last usual one takes longer.
class SlowedCommunicator final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;

  [[nodiscard]] Transfer submit(Operation operation) override {
    if (std::string(operation.note.what) == "agreement on the step" && ++steps_ > kLastUsualStep) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    return real().submit(std::move(operation));
  }

 private:
  int steps_ = 0;
};

// Two ranks, a node each.
Cluster slow_cluster() {
  const Cluster::Link link{.latency_seconds = 1e-5, .bytes_per_second = 2e6};
  return {.nodes = {{.count = 2, .devices = 1}}, .node_link = link, .network_link = link};
}

void train_slowed(const TrainConfig& config) {
  const WorldOptions options{.links = slow_cluster()};
  run_local_ranks(2, options, [&](Communicator& world) {
    SlowedCommunicator slowed(unowned(world));
    Groups groups(slowed, config.parallel, config.model.tie_embeddings);
    Trainer trainer(config, {.resolved_config = "{}", .links = slow_cluster()}, groups);
    static_cast<void>(trainer.run());
  });
}

}  // namespace

TEST_CASE("steps that drift after a guard's change are planned anew, within what it left") {
  const TrainingRun run;
  JsonReader document = JsonReader::parse(read_file(run.path("config.json")), "config");
  for (const std::string assignment :
       {"run.steps=52",
        "run.save_every=25",
        "run.keep=9",
        "run.eval_every=0",
        "parallel.data=2",
        "batch.micro=1",
        R"(compress={"policy": "critical_path", "guard": {"max_error": 0.3}, "data_gradient": {
            "candidates": [{"codec": "low_rank", "rank": 1, "error_feedback": "none"},
                           {"codec": "cast", "error_feedback": "none"}]}})"}) {
    document.set(assignment);
  }
  train_slowed(read_train_config(document));

  const Json plans = Json::parse(read_file(run.run_dir() + "/plan.json"));
  const auto codec_from = [&](int step) {
    Json codec;
    for (const Json& plan : plans) {
      if (plan["from_step"] == step) {
        codec = plan["classes"].at(0)["codec"];
      }
    }
    return codec;
  };
  INFO(plans.dump(1));
  // A rank of one loses more than the bound of the message that was tried in step 2, less in step
  // 7, and more of all messages in step 13.
  REQUIRE(codec_from(10)["codec"] == "low_rank");
  REQUIRE(codec_from(16)["codec"] == "cast");  // the guard's, of step 13
  for (const Json& plan : plans) {
    const Json codec = plan["classes"].at(0)["codec"];
    CHECK((plan["from_step"] < 16 || codec.is_null() || codec["codec"] == "cast"));
  }
  namespace fs = std::filesystem;
  CHECK(fs::last_write_time(run.run_dir() + "/costs.json") >
        fs::last_write_time(run.checkpoint(25) + "/manifest.json"));
}

}  // namespace slackline::testing
