#include "core/comm/engine/engine_communicator.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "core/check.h"
#include "core/comm/collective_bytes.h"
#include "core/comm/engine/collective_moves.h"
#include "core/joined_text.h"

namespace slackline {

namespace {

using Kind = TransferRecord::Kind;

class FlightState final : public Transfer::State {
 public:
  FlightState(std::shared_ptr<Engine> engine, std::shared_ptr<Flight> flight)
      : engine_(std::move(engine)), flight_(std::move(flight)) {}

  void wait() override { engine_->wait(*flight_); }

  [[nodiscard]] std::function<void()> wait_begins() const override {
    return [engine = std::weak_ptr(engine_), flight = flight_] {
      if (const std::shared_ptr<Engine> running = engine.lock()) {
        running->note_wait(*flight);
      }
    };
  }

  [[nodiscard]] bool done() const override {
    return flight_->status.load(std::memory_order_acquire) != Flight::under_way;
  }

  [[nodiscard]] const std::shared_ptr<Flight>& flight() const { return flight_; }

 private:
  std::shared_ptr<Engine> engine_;  // a handle may outlive every communicator
  std::shared_ptr<Flight> flight_;  // the engine holds it too while it is under way
};

// Null where nothing is under way.
std::shared_ptr<Flight> flight_of(const Transfer* transfer) {
  const auto* state =
      transfer == nullptr ? nullptr : dynamic_cast<const FlightState*>(transfer->state());
  return state == nullptr ? nullptr : state->flight();
}

// What the members of a new group tell each other.
struct Proposal {
  std::uint64_t id = 0;
  std::uint64_t hash = 0;  // of the call, to find members that do not agree
};

// Nodes of these world ranks, numbered anew in the order they appear.
std::vector<int> nodes_of(const std::vector<int>& members, const std::vector<int>& world_nodes) {
  std::vector<int> seen;
  std::vector<int> nodes;
  for (const int member : members) {
    const int node = world_nodes[static_cast<std::size_t>(member)];
    auto place = std::find(seen.begin(), seen.end(), node);
    if (place == seen.end()) {
      place = seen.insert(seen.end(), node);
    }
    nodes.push_back(static_cast<int>(place - seen.begin()));
  }
  return nodes;
}

// Takes the slice of an all-to-all that goes nowhere.
void take_own_slice(const Tensor& from, const Tensor& to, int rank, int size) {
  SL_CHECK_EQ(from.bytes(), to.bytes());
  const Slice own = slice_of(from.bytes(), rank, size);
  if (own.count() > 0 && from.raw() != to.raw()) {
    std::memcpy(static_cast<std::byte*>(to.raw()) + own.begin,
                static_cast<const std::byte*>(from.raw()) + own.begin,
                own.count());
  }
}

}  // namespace

EngineCommunicator::EngineCommunicator(std::shared_ptr<Endpoint> endpoint, Membership membership)
    : endpoint_(std::move(endpoint)),
      membership_(std::make_shared<const Membership>(std::move(membership))),
      nodes_(nodes_of(membership_->members, endpoint_->nodes)),
      hosts_(nodes_of(membership_->members, endpoint_->hosts)),
      direct_(membership_->members.size()),
      setup_(membership_->members.size()) {}

Transfer EngineCommunicator::begin(TransferRecord record,
                                   std::uint32_t sequence,
                                   Moves moves,
                                   const TransferWork& work) {
  const bool nothing = std::all_of(
      moves.steps.begin(), moves.steps.end(), [](const Step& step) { return step.pieces.empty(); });
  if (nothing) {
    SL_CHECK(work.worker == nullptr && !work.ended, "work of a transfer of nothing");
    return {};
  }
  if (membership_->urgency == Urgency::background) {
    cut(moves, endpoint_->engine->longest_background());
  }
  auto flight = std::make_shared<Flight>();
  record.bytes_sent = moves.bytes_sent();
  const std::size_t across = moves.bytes_sent_across(rank(), hierarchy_.ranks_in_group);
  flight->sequence = sequence;
  flight->moves = std::move(moves);
  return begin(std::move(flight), record, across, work);
}

Transfer EngineCommunicator::begin(std::shared_ptr<Flight> flight,
                                   TransferRecord record,
                                   std::size_t bytes_across,
                                   const TransferWork& work) {
  SL_CHECK(work.worker != nullptr || (!work.before && !work.after), "work without a worker");
  SL_CHECK(work.before || !work.beside, "work beside nothing");
  SL_CHECK(work.after || !work.start_after, "a start of nothing");
  bytes_sent_ += record.bytes_sent;
  bytes_sent_across_ += bytes_across;
  flight->group = membership_;
  flight->record = record;
  flight->work = work;
  flight->follows = flight_of(std::exchange(flight->work.follows, nullptr));
  if (recording_) {
    recorded_.push_back(flight);
  }
  endpoint_->engine->submit(flight);
  return Transfer(std::make_unique<FlightState>(endpoint_->engine, std::move(flight)));
}

Transfer EngineCommunicator::direct(Piece piece,
                                    const TransferNote& note,
                                    std::vector<Count>& counts,
                                    const TransferWork& work) {
  SL_CHECK(piece.peer >= 0 && piece.peer < size() && piece.peer != rank(),
           "rank " + std::to_string(rank()) + " of " + std::to_string(size()) + " and rank " +
               std::to_string(piece.peer));
  if (piece.bytes == 0) {
    SL_CHECK(work.worker == nullptr && !work.ended, "work of a transfer of nothing");
    return {};
  }
  const bool sends = piece.way == Message::Way::send;
  Count& count = counts[static_cast<std::size_t>(piece.peer)];
  const std::uint32_t sequence = sends ? count.sent++ : count.received++;
  const TransferRecord record{
      .kind = sends ? Kind::send : Kind::receive, .peer = piece.peer, .note = note};
  Step step;
  const std::size_t longest = work.part_bytes == 0 ? piece.bytes : work.part_bytes;
  for (std::size_t begin = 0; begin < piece.bytes; begin += longest) {
    Piece& part = step.pieces.emplace_back(piece);
    part.data = piece.data + begin;
    part.bytes = std::min(longest, piece.bytes - begin);
  }
  Moves moves;
  moves.steps.push_back(std::move(step));
  return begin(record, sequence, std::move(moves), work);
}

// A sum that stands for a larger tensor's goes that one's way, which the formulas of bytes do not
// know.
Transfer EngineCommunicator::background_sum(Operation operation) {
  const Tensor data = operation.data;
  const TransferWork work = std::exchange(operation.work, {});
  check_sum(data, operation.order, size());
  const auto make = [operation,
                     rank = rank(),
                     size = size(),
                     scratch = endpoint_->engine->scratch(),
                     hierarchy = hierarchy_,
                     longest = endpoint_->engine->longest_background()] {
    Moves moves = moves_of(operation, rank, size, scratch, hierarchy);
    cut(moves, longest);
    return moves;
  };
  TransferRecord record{.kind = operation.kind, .note = operation.note};
  std::size_t across = 0;
  auto flight = std::make_shared<Flight>();
  flight->sequence = collectives_++;
  flight->sum_bytes = data.bytes();
  if (operation.note.whole_bytes > 0) {
    const auto made = std::make_shared<Moves>(make());  // a function is copied
    record.bytes_sent = made->bytes_sent();
    across = made->bytes_sent_across(rank(), hierarchy_.ranks_in_group);
    flight->make_moves = [made] { return std::move(*made); };
  } else {
    const CollectiveCall call{.kind = operation.kind,
                              .elements = data.num_elements(),
                              .element_size = size_of(data.dtype()),
                              .order = operation.order,
                              .hierarchy = hierarchy_};
    record.bytes_sent = bytes_sent_by(call, rank(), size());
    across = bytes_sent_across_by(call, rank(), size());
    flight->make_moves = make;
  }
  return begin(std::move(flight), record, across, work);
}

Transfer EngineCommunicator::submit(Operation operation) {
  const Kind kind = operation.kind;
  const Tensor& data = operation.data;
  const TransferWork& work = operation.work;
  if (kind == Kind::send || kind == Kind::receive) {
    return direct({.way = kind == Kind::send ? Message::Way::send : Message::Way::receive,
                   .lane = Lane::direct,
                   .peer = operation.peer,
                   .data = static_cast<std::byte*>(data.raw()),
                   .bytes = data.bytes()},
                  operation.note,
                  direct_,
                  work);
  }
  SL_CHECK(work.worker == nullptr || size() > 1, "work of a group of one");
  SL_CHECK(kind != Kind::broadcast || (operation.peer >= 0 && operation.peer < size()),
           "root " + std::to_string(operation.peer));
  if (kind == Kind::all_to_all && work.worker == nullptr) {
    take_own_slice(data, operation.to, rank(), size());
  }
  if (size() == 1) {
    return {};
  }
  const bool sums = kind == Kind::all_reduce || kind == Kind::reduce_scatter;
  if (sums && membership_->urgency == Urgency::background && data.num_elements() > 0) {
    return background_sum(std::move(operation));
  }
  return begin({.kind = kind, .note = operation.note},
               collectives_++,
               moves_of(operation, rank(), size(), endpoint_->engine->scratch(), hierarchy_),
               work);
}

std::uint32_t EngineCommunicator::agree_on_id(const std::string& axis,
                                              const std::vector<int>& members) {
  const std::string call = axis + " " + joined(members, " ");
  Proposal own{.id = endpoint_->next_communicator, .hash = std::hash<std::string>()(call)};
  std::vector<Proposal> proposals(members.size());
  std::vector<Transfer> transfers;
  const TransferNote note{.what = "a new group"};
  const std::size_t counted = bytes_sent_;
  const std::size_t counted_across = bytes_sent_across_;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i] == rank()) {
      continue;
    }
    Piece piece{.way = Message::Way::receive,
                .lane = Lane::setup,
                .peer = members[i],
                .data = reinterpret_cast<std::byte*>(&proposals[i]),
                .bytes = sizeof(Proposal)};
    transfers.push_back(direct(piece, note, setup_));
    piece.way = Message::Way::send;
    piece.data = reinterpret_cast<std::byte*>(&own);
    transfers.push_back(direct(piece, note, setup_));
  }
  bytes_sent_ = counted;  // not payload
  bytes_sent_across_ = counted_across;
  std::uint64_t id = own.id;
  wait_for_all(transfers);
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i] != rank()) {
      SL_CHECK(proposals[i].hash == own.hash, "members of group '" + call + "' do not agree");
      id = std::max(id, proposals[i].id);
    }
  }
  return static_cast<std::uint32_t>(id);
}

std::unique_ptr<Communicator> EngineCommunicator::group(const std::string& axis,
                                                        const std::vector<int>& members,
                                                        Urgency urgency) {
  Membership membership{.rank = -1, .axis = axis, .urgency = urgency};
  for (std::size_t i = 0; i < members.size(); ++i) {
    SL_CHECK(members[i] >= 0 && members[i] < size(), "member " + std::to_string(members[i]));
    membership.members.push_back(membership_->members[static_cast<std::size_t>(members[i])]);
    if (members[i] == rank()) {
      membership.rank = static_cast<int>(i);
    }
  }
  SL_CHECK(membership.rank >= 0, "a rank makes a group that it is not in");
  membership.id = agree_on_id(axis, members);
  endpoint_->next_communicator = membership.id + 1;
  if (members.size() > 1) {
    endpoint_->engine->open_group(membership.id, membership.members);
  }
  return std::make_unique<EngineCommunicator>(endpoint_, std::move(membership));
}

void EngineCommunicator::record_transfers(bool on) {
  recording_ = on;
}

std::vector<TransferRecord> EngineCommunicator::take_records() {
  std::vector<TransferRecord> records;
  std::deque<std::shared_ptr<Flight>> rest;
  for (std::shared_ptr<Flight>& flight : recorded_) {
    if (!flight->waited) {
      rest.push_back(std::move(flight));
    } else if (flight->status.load(std::memory_order_acquire) == Flight::finished) {
      records.push_back(flight->record);
      records.back().wait_end = flight->wait_end;
    }
  }
  recorded_ = std::move(rest);
  return records;
}

bool EngineCommunicator::has_failed() const {
  return endpoint_->engine->has_failed();
}

void EngineCommunicator::set_links(const Cluster& links) {
  endpoint_->engine->set_links(links, endpoint_->nodes);
}

void EngineCommunicator::set_hierarchy(const Hierarchy& hierarchy) {
  SL_CHECK(hierarchy.fits(size()),
           "groups of " + std::to_string(hierarchy.ranks_in_group) + " ranks must divide " +
               std::to_string(size()));
  hierarchy_ = hierarchy;
}

void EngineCommunicator::fail(const std::string& reason) {
  endpoint_->engine->fail("world rank " + std::to_string(membership_->world_rank()) +
                          " failed: " + reason);
}

void EngineCommunicator::abort(const std::string& reason, int code) {
  endpoint_->engine->abort(
      "world rank " + std::to_string(membership_->world_rank()) + " failed: " + reason, code);
}

}  // namespace slackline
