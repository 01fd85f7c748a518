#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/comm/engine/moves.h"
#include "core/comm/engine/sum_window.h"
#include "core/comm/transfer_work.h"

namespace slackline {

// Who a communicator is, the same object for all its operations.
struct Membership {
  std::uint32_t id = 0;
  int rank = 0;
  std::vector<int> members{};  // their ranks in the world
  std::string axis{};
  Urgency urgency = Urgency::now;

  [[nodiscard]] int world_rank() const { return members[static_cast<std::size_t>(rank)]; }
};

// One operation from submission to its end. The submitter fills the first part, whoever has the
// turn owns the second, and the third is how they meet: `status` is written last and read first.
struct Flight {
  enum Status : int { under_way, finished, failed };
  enum class Stage {
    held,       // until the one it follows has ended
    making,     // its data: work.before
    posting,    // a step's messages; a sum in the background first waits for its window
    receiving,  // them
    summing,    // what arrived
    taking,     // all that arrived: work.after
  };

  std::shared_ptr<const Membership> group;  // outlives its communicator while it is under way
  TransferRecord record{};
  std::uint32_t sequence = 0;
  Moves moves{};
  // Makes the moves in place of the submitter once the sum may begin (SumWindow); empty: it is no
  // sum in the background, or they are made.
  std::function<Moves()> make_moves{};
  std::size_t sum_bytes = 0;        // of the tensor, where there is make_moves
  TransferWork work{};              // without `follows`
  std::shared_ptr<Flight> follows;  // null: none; shared with its submitter and the engine

  Stage stage = Stage::held;
  std::vector<Flight*> followers{};  // that are held
  std::size_t step = 0;
  std::size_t left = 0;                       // messages of this step that are not done
  std::size_t slot = 0;                       // place in the engine's list
  std::uint64_t number = 0;                   // in order of submission
  std::optional<SumWindow::Ticket> ticket{};  // of a sum in the background
  bool advancing = false;
  bool ready = false;  // stands in the engine's list of flights to look at

  // The submitter's again: it has waited, until when.
  bool waited = false;
  double wait_end = 0.0;

  std::atomic<double> wait_begin{0.0};
  std::string failure{};
  std::atomic<int> status{under_way};

  // "world rank 5 (axis data, rank 1 of 4): all_reduce of gradients, stage 2, micro-batch 3"
  [[nodiscard]] std::string describe() const;

  // ", waiting for world ranks 2, 3", of the step under way. Within a turn.
  [[nodiscard]] std::string missing_peers() const;
};

}  // namespace slackline
