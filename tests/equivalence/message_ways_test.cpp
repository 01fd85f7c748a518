// Both ends of every message between stages give it work beside compute, or none does: transports
// of device memory go by that, and have another way for each.

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/comm/forwarding_communicator.h"
#include "core/comm/world.h"
#include "parallel/plan/pipeline_boundaries.h"
#include "tests/equivalence/mesh_run.h"
#include "tests/equivalence/sampled_step.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

struct Ends {
  std::vector<bool> sent_by_worker{};
  std::vector<bool> received_by_worker{};
};

// Messages from one pipeline rank to another, in one direction.
class Record {
 public:
  void add(int from, int to, bool sends, const TransferWork& work) {
    const std::lock_guard lock(mutex_);
    Ends& ends = ends_[{from, to}];
    (sends ? ends.sent_by_worker : ends.received_by_worker).push_back(work.worker != nullptr);
  }

  [[nodiscard]] const std::map<std::pair<int, int>, Ends>& ends() const { return ends_; }

 private:
  std::mutex mutex_;
  std::map<std::pair<int, int>, Ends> ends_;
};

class RecordedCommunicator final : public ForwardingCommunicator {
 public:
  RecordedCommunicator(std::unique_ptr<Communicator> real, Record& record)
      : ForwardingCommunicator(std::move(real)), record_(&record) {}

  Transfer submit(Operation operation) override {
    if (operation.kind == Kind::send) {
      record_->add(rank(), operation.peer, true, operation.work);
    } else if (operation.kind == Kind::receive) {
      record_->add(operation.peer, rank(), false, operation.work);
    }
    return real().submit(std::move(operation));
  }

 private:
  Record* record_;
};

// `records`: of forward messages, and of backward ones.
void run_recorded(const MeshRun& run, std::array<Record, 2>& records) {
  run_local_ranks(run.parallel.num_ranks(), {.timeout_seconds = 60.0}, [&](Communicator& world) {
    Groups groups(world, run.parallel, run.model.tie_embeddings);
    groups.forward = std::make_unique<RecordedCommunicator>(std::move(groups.forward), records[0]);
    groups.backward =
        std::make_unique<RecordedCommunicator>(std::move(groups.backward), records[1]);
    MeshModel model(run.options(), groups);
    model.initialize(kSeed);
    RankBatches batches(run, model, 1);
    static_cast<void>(model.make_gradients(batches.micro_batches()));
  });
}

}  // namespace

TEST_CASE("both ends of a message between stages have work for it, or none has") {
  const std::vector<CodecSetting> codecs = {
      {.kind = CodecKind::top_k, .ratio = 0.1},
      {.kind = CodecKind::random_k, .ratio = 0.1},
      {.kind = CodecKind::quantize, .bits = 8, .scale = ScaleOf::token},
  };
  for (const auto& [schedule, chunks] : {std::pair{ScheduleName::one_f_one_b, 1},
                                         {ScheduleName::gpipe, 1},
                                         {ScheduleName::zb_h1, 1},
                                         {ScheduleName::interleaved, 2}}) {
    for (const char* site : {"pipeline_forward", "pipeline_backward"}) {
      for (const CodecSetting& codec : codecs) {
        INFO(site << ", schedule " << static_cast<int>(schedule) << ", codec "
                  << static_cast<int>(codec.kind));
        std::array<Record, 2> records;
        run_recorded(
            compressed(
                one_step({.pipeline = 2, .schedule = schedule, .chunks = chunks}), site, codec),
            records);
        int by_workers = 0;
        for (const Record& record : records) {
          REQUIRE_FALSE(record.ends().empty());
          for (const auto& [ranks, ends] : record.ends()) {
            REQUIRE(ends.sent_by_worker == ends.received_by_worker);
            by_workers += ends.sent_by_worker.front() ? 1 : 0;
          }
        }
        REQUIRE(by_workers > 0);
      }
    }
  }
}

// Candidates are tried on what is kept.
TEST_CASE("kept messages have the shape that codecs code, whatever cuts a boundary") {
  for (const auto& [tensor, sequence_parallel] : {std::pair{1, false}, {2, false}, {2, true}}) {
    INFO("tensor " << tensor << (sequence_parallel ? ", sequence parallel" : ""));
    const MeshRun run =
        one_step({.tensor = tensor, .pipeline = 2, .sequence_parallel = sequence_parallel});
    const std::int64_t tokens = run.micro_batch * run.model.sequence;
    const MatrixShape share = share_shape(tokens, run.model.hidden, tensor);
    std::vector<int> kept(static_cast<std::size_t>(run.parallel.num_ranks()), 0);
    std::vector<int> of_codecs = kept;
    run_local_ranks(run.parallel.num_ranks(), {.timeout_seconds = 60.0}, [&](Communicator& world) {
      Groups groups(world, run.parallel, run.model.tie_embeddings);
      MeshModel model(run.options(), groups);
      model.initialize(kSeed);
      model.keep_messages(true);
      RankBatches batches(run, model, 1);
      static_cast<void>(model.make_gradients(batches.micro_batches()));
      const auto rank = static_cast<std::size_t>(world.rank());
      for (const KeptMessages::Message& message : model.kept_messages().all()) {
        if (message.site == schedule::Site::pipeline_forward ||
            message.site == schedule::Site::pipeline_backward) {
          ++kept[rank];
          of_codecs[rank] += message.whole == share ? 1 : 0;
        }
      }
    });
    CHECK(std::ranges::min(kept) > 0);
    CHECK(of_codecs == kept);
  }
}

}  // namespace slackline::testing
