#include "tests/parallel/schedule/validator.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <tuple>

#include "parallel/schedule/printer.h"
#include "parallel/schedule/slots.h"
#include "tests/parallel/schedule/formulas.h"

namespace slackline::schedule {

namespace {

using Messages = std::vector<std::string>;

constexpr std::size_t kKinds = static_cast<std::size_t>(OpKind::wait) + 1;
constexpr int kAbsent = -1;

using schedule::index;

std::size_t index(OpKind kind) {
  return static_cast<std::size_t>(kind);
}

// Where the ops of one micro-batch on one chunk stand in their rank's list, and how often.
struct Places {
  Places() { position.fill(kAbsent); }

  [[nodiscard]] int at(OpKind kind) const { return position[index(kind)]; }

  [[nodiscard]] int count_of(OpKind kind) const { return count[index(kind)]; }

  [[nodiscard]] bool splits_backward() const { return count_of(OpKind::backward_input) > 0; }

  std::array<int, kKinds> position{};
  std::array<int, kKinds> count{};
};

class Validator {
 public:
  explicit Validator(const Schedule& schedule)
      : schedule_(schedule),
        places_(index(schedule.num_stages()),
                std::vector<Places>(index(schedule.num_micro_batches))) {}

  [[nodiscard]] Messages run() {
    for (const auto check : {&Validator::check_places,
                             &Validator::check_counts,
                             &Validator::check_order,
                             &Validator::check_matching,
                             &Validator::check_deadlock,
                             &Validator::check_in_flight}) {
      (this->*check)();
      if (!messages_.empty()) {
        break;
      }
    }
    return messages_;
  }

 private:
  [[nodiscard]] std::string name(int rank, const Op& op) const {
    return op_text(schedule_, op) + " of rank " + std::to_string(rank);
  }

  [[nodiscard]] std::string name(OpKind kind, int chunk, int micro_batch) const {
    return name(schedule_.rank_of(chunk), {kind, chunk, micro_batch});
  }

  void check_places() {
    if (schedule_.ranks.size() != index(schedule_.num_ranks)) {
      messages_.push_back("lists of " + std::to_string(schedule_.ranks.size()) + " ranks, not of " +
                          std::to_string(schedule_.num_ranks));
      return;
    }
    for (int rank = 0; rank < schedule_.num_ranks; ++rank) {
      const std::vector<Op>& ops = schedule_.ranks[index(rank)];
      for (std::size_t i = 0; i < ops.size(); ++i) {
        record(rank, ops[i], static_cast<int>(i));
      }
    }
  }

  void record(int rank, const Op& op, int position) {
    if (op.kind == OpKind::wait) {
      return;
    }
    if (op.chunk < 0 || op.chunk >= schedule_.num_stages() || op.micro_batch < 0 ||
        op.micro_batch >= schedule_.num_micro_batches) {
      messages_.push_back(name(rank, op) + " is of a chunk or micro-batch that does not exist");
      return;
    }
    if (schedule_.rank_of(op.chunk) != rank) {
      messages_.push_back(name(rank, op) + " belongs to rank " +
                          std::to_string(schedule_.rank_of(op.chunk)));
      return;
    }
    Places& places = places_[index(op.chunk)][index(op.micro_batch)];
    places.position[index(op.kind)] = position;
    ++places.count[index(op.kind)];
  }

  void check_counts() {
    for (int chunk = 0; chunk < schedule_.num_stages(); ++chunk) {
      const int before = schedule_.has_transfer_before(chunk) ? 1 : 0;
      const int after = schedule_.has_transfer_after(chunk) ? 1 : 0;
      for (int k = 0; k < schedule_.num_micro_batches; ++k) {
        const int split = places_[index(chunk)][index(k)].splits_backward() ? 1 : 0;
        expect_count(OpKind::forward, chunk, k, 1);
        expect_count(OpKind::backward, chunk, k, 1 - split);
        expect_count(OpKind::backward_input, chunk, k, split);
        expect_count(OpKind::backward_weight, chunk, k, split);
        expect_count(OpKind::receive_forward, chunk, k, before);
        expect_count(OpKind::send_backward, chunk, k, before);
        expect_count(OpKind::receive_backward, chunk, k, after);
        expect_count(OpKind::send_forward, chunk, k, after);
      }
    }
  }

  void expect_count(OpKind kind, int chunk, int micro_batch, int expected) {
    const int count = places_[index(chunk)][index(micro_batch)].count_of(kind);
    if (count != expected) {
      messages_.push_back(name(kind, chunk, micro_batch) + " stands " + std::to_string(count) +
                          " times, not " + std::to_string(expected));
    }
  }

  void check_order() {
    for (int chunk = 0; chunk < schedule_.num_stages(); ++chunk) {
      for (int k = 0; k < schedule_.num_micro_batches; ++k) {
        const bool split = places_[index(chunk)][index(k)].splits_backward();
        const OpKind back = split ? OpKind::backward_input : OpKind::backward;
        expect_before(OpKind::receive_forward, OpKind::forward, chunk, k);
        expect_before(OpKind::forward, OpKind::send_forward, chunk, k);
        expect_before(OpKind::forward, back, chunk, k);
        expect_before(OpKind::receive_backward, back, chunk, k);
        expect_before(back, OpKind::send_backward, chunk, k);
        expect_before(back, OpKind::backward_weight, chunk, k);
        if (k > 0) {
          expect_ascending(back, chunk, k);
          expect_ascending(OpKind::backward_weight, chunk, k);
        }
      }
    }
  }

  // Holds where one of the two is absent.
  void expect_before(OpKind first, OpKind second, int chunk, int micro_batch) {
    const Places& places = places_[index(chunk)][index(micro_batch)];
    if (places.at(first) != kAbsent && places.at(second) != kAbsent &&
        places.at(first) > places.at(second)) {
      messages_.push_back(name(first, chunk, micro_batch) + " stands after " +
                          name(second, chunk, micro_batch));
    }
  }

  void expect_ascending(OpKind kind, int chunk, int micro_batch) {
    const int earlier = places_[index(chunk)][index(micro_batch - 1)].at(kind);
    const int later = places_[index(chunk)][index(micro_batch)].at(kind);
    if (earlier != kAbsent && later != kAbsent && earlier > later) {
      messages_.push_back(name(kind, chunk, micro_batch) + " runs before micro-batch " +
                          std::to_string(micro_batch - 1) + " of its chunk");
    }
  }

  // The messages of each (from, to, direction), named by (sending chunk, micro-batch).
  using Stream = std::tuple<int, int, bool>;
  using Boundary = std::pair<int, int>;

  void check_matching() {
    std::map<Stream, std::vector<Boundary>> sent;
    std::map<Stream, std::vector<Boundary>> received;
    for (int rank = 0; rank < schedule_.num_ranks; ++rank) {
      for (const Op& op : schedule_.ranks[index(rank)]) {
        const bool forward = is_forward_transfer(op.kind);
        if (is_send(op.kind)) {
          const int peer = schedule_.rank_of(peer_chunk(op));
          sent[{rank, peer, forward}].emplace_back(op.chunk, op.micro_batch);
        } else if (is_receive(op.kind)) {
          const int peer = schedule_.rank_of(peer_chunk(op));
          received[{peer, rank, forward}].emplace_back(peer_chunk(op), op.micro_batch);
        }
      }
    }
    for (const auto& [stream, boundaries] : sent) {
      compare_streams(stream, boundaries, received[stream]);
    }
  }

  void compare_streams(const Stream& stream,
                       const std::vector<Boundary>& sent,
                       const std::vector<Boundary>& received) {
    const auto& [from, to, forward] = stream;
    const OpKind kind = forward ? OpKind::send_forward : OpKind::send_backward;
    for (std::size_t i = 0; i < sent.size(); ++i) {
      if (i >= received.size() || sent[i] != received[i]) {
        messages_.push_back(name(kind, sent[i].first, sent[i].second) + " is message " +
                            std::to_string(i) + " to rank " + std::to_string(to) +
                            ", which receives another one there");
        return;
      }
    }
  }

  // Whether the transfer into or out of `chunk` that `kind` names has been posted at both ends.
  [[nodiscard]] bool arrived(const Op& post, const std::vector<std::size_t>& next) const {
    const int peer = peer_chunk(post);
    const auto other = [&] {
      switch (post.kind) {
        case OpKind::receive_forward:
          return OpKind::send_forward;
        case OpKind::send_forward:
          return OpKind::receive_forward;
        case OpKind::receive_backward:
          return OpKind::send_backward;
        default:
          return OpKind::receive_backward;
      }
    }();
    return done(post.kind, post.chunk, post.micro_batch, next) &&
           done(other, peer, post.micro_batch, next);
  }

  [[nodiscard]] bool done(OpKind kind,
                          int chunk,
                          int micro_batch,
                          const std::vector<std::size_t>& next) const {
    const int position = places_[index(chunk)][index(micro_batch)].at(kind);
    return position != kAbsent && index(position) < next[index(schedule_.rank_of(chunk))];
  }

  [[nodiscard]] bool takes_slot(const Op& op) const {
    return op.kind == OpKind::receive_forward ||
           (op.kind == OpKind::forward && !schedule_.has_transfer_before(op.chunk));
  }

  // Whether everything that was sent from the op's input slot has arrived.
  [[nodiscard]] bool slot_is_free(int rank,
                                  const Op& op,
                                  const std::vector<std::size_t>& next) const {
    const std::vector<Op>& ops = schedule_.ranks[index(rank)];
    const int slot = inputs_.slot_of(op.chunk, op.micro_batch);
    return std::all_of(ops.begin(),
                       ops.begin() + static_cast<std::ptrdiff_t>(next[index(rank)]),
                       [&](const Op& earlier) {
                         return !is_send(earlier.kind) ||
                                inputs_.slot_of(earlier.chunk, earlier.micro_batch) != slot ||
                                arrived(earlier, next);
                       });
  }

  // Whether the next op of `rank` can run to its end; next[r] counts the ops rank r has behind it.
  [[nodiscard]] bool can_run(int rank, const std::vector<std::size_t>& next) const {
    const std::vector<Op>& ops = schedule_.ranks[index(rank)];
    const Op& op = ops[next[index(rank)]];
    if (op.kind == OpKind::wait) {
      for (std::size_t i = 0; i < next[index(rank)]; ++i) {
        if ((is_send(ops[i].kind) || is_receive(ops[i].kind)) && !arrived(ops[i], next)) {
          return false;
        }
      }
      return true;
    }
    const int k = op.micro_batch;
    if (takes_slot(op) && !slot_is_free(rank, op, next)) {
      return false;
    }
    if (op.kind == OpKind::forward && op.chunk > 0) {
      return schedule_.has_transfer_before(op.chunk)
                 ? arrived({OpKind::receive_forward, op.chunk, k}, next)
                 : done(OpKind::forward, op.chunk - 1, k, next);
    }
    if (makes_input_gradient(op.kind) && op.chunk + 1 < schedule_.num_stages()) {
      return schedule_.has_transfer_after(op.chunk)
                 ? arrived({OpKind::receive_backward, op.chunk, k}, next)
                 : done(OpKind::backward, op.chunk + 1, k, next) ||
                       done(OpKind::backward_input, op.chunk + 1, k, next);
    }
    return true;
  }

  void check_deadlock() {
    inputs_ = input_slots(schedule_);
    std::vector<std::size_t> next(index(schedule_.num_ranks), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < schedule_.num_ranks; ++rank) {
        while (next[index(rank)] < schedule_.ranks[index(rank)].size() && can_run(rank, next)) {
          ++next[index(rank)];
          moved = true;
        }
      }
    }
    for (int rank = 0; rank < schedule_.num_ranks; ++rank) {
      const std::vector<Op>& ops = schedule_.ranks[index(rank)];
      if (next[index(rank)] < ops.size()) {
        messages_.push_back("deadlock: " + name(rank, ops[next[index(rank)]]) + ", op " +
                            std::to_string(next[index(rank)]) + " there, never ends");
      }
    }
  }

  void check_in_flight() {
    for (int rank = 0; rank < schedule_.num_ranks; ++rank) {
      const int held = most_in_flight(schedule_, rank);
      const int bound = in_flight_bound(schedule_, rank);
      if (held > bound) {
        messages_.push_back("rank " + std::to_string(rank) + " holds " + std::to_string(held) +
                            " micro-batches at once, not " + std::to_string(bound) + " at most");
      }
    }
  }

  const Schedule& schedule_;
  std::vector<std::vector<Places>> places_;  // [chunk][micro_batch]
  SlotMap inputs_{};                         // once the order is known to be right
  Messages messages_;
};

}  // namespace

std::vector<std::string> violations(const Schedule& schedule) {
  return Validator(schedule).run();
}

int most_in_flight(const Schedule& schedule, int rank) {
  int held = 0;
  int most = 0;
  for (const Op& op : schedule.ranks[index(rank)]) {
    if (op.kind == OpKind::forward) {
      most = std::max(most, ++held);
    } else if (ends_activations(op.kind)) {
      --held;
    }
  }
  return most;
}

}  // namespace slackline::schedule
