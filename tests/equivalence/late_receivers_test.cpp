// What is being sent must not be written. Ranks that are quick to receive hide a wait that is left
// out, because their messages are copied at once; ranks that receive late show it.

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "core/comm/forwarding_communicator.h"
#include "tests/equivalence/mesh_run.h"
#include "tests/support/catch.h"
#include "tests/support/unowned.h"

namespace slackline::testing {

namespace {

// Receives messages between stages late. A program that waits for its sends gives the same bits,
// however long this takes; one that does not has time to write over them.
class LateReceiver final : public ForwardingCommunicator {
 public:
  explicit LateReceiver(Communicator& real) : ForwardingCommunicator(unowned(real)) {}

  explicit LateReceiver(std::unique_ptr<Communicator> real)
      : ForwardingCommunicator(std::move(real)) {}

  [[nodiscard]] Transfer submit(Operation operation) override {
    if (operation.kind == Kind::receive && axis() == "pipeline") {
      std::this_thread::sleep_for(kDelay);
    }
    return real().submit(std::move(operation));
  }

  [[nodiscard]] std::unique_ptr<Communicator> group(const std::string& name,
                                                    const std::vector<int>& members,
                                                    Urgency urgency) override {
    return std::make_unique<LateReceiver>(real().group(name, members, urgency));
  }

 private:
  // Several passes of the model below take less.
  static constexpr std::chrono::milliseconds kDelay{10};
};

MeshRun two_stages(ScheduleName schedule) {
  MeshRun run{
      .model = {.layers = 2, .hidden = 16, .heads = 2, .sequence = 8, .vocab = 29, .ffn = 32},
      .micro_batch = 2,
      .steps = 1};
  run.parallel.pipeline = 2;
  run.parallel.schedule = schedule;
  return run;
}

}  // namespace

TEST_CASE("stages that receive late get what was sent") {
  for (const ScheduleName schedule :
       {ScheduleName::gpipe, ScheduleName::one_f_one_b, ScheduleName::zb_h1}) {
    INFO(static_cast<int>(schedule));
    const MeshRun run = two_stages(schedule);
    const MeshRunResult prompt = run_mesh(run);
    const MeshRunResult late = run_mesh(
        run, {.world = [](Communicator& world) { return std::make_unique<LateReceiver>(world); }});
    CHECK(late.losses == prompt.losses);
    CHECK(late.evaluation == prompt.evaluation);
    CHECK(late.gradients == prompt.gradients);
    CHECK(late.weights == prompt.weights);
  }
}

}  // namespace slackline::testing
