#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "core/comm/engine/collective_moves.h"
#include "tests/core/comm/groups_of_ranks.h"
#include "tests/core/comm/rank_values.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

using Kind = TransferRecord::Kind;
using Way = Hierarchy::Way;

// Carries out the moves of all ranks as a library does that has no tags and queues a step's
// messages at once, as NCCL: those of two ranks match by their order in the step alone.
class Lockstep {
 public:
  explicit Lockstep(std::vector<Moves> of_ranks) : of_ranks_(std::move(of_ranks)) {}

  void run() {
    for (const Moves& moves : of_ranks_) {
      REQUIRE(moves.steps.size() == of_ranks_.front().steps.size());
    }
    for (std::size_t step = 0; step < of_ranks_.front().steps.size(); ++step) {
      deliver(step);
      for (const Moves& moves : of_ranks_) {
        for (const OrderedSum& sum : moves.steps[step].sums) {
          sum.run();
        }
      }
    }
  }

 private:
  [[nodiscard]] std::vector<Piece> pieces(std::size_t step,
                                          std::size_t rank,
                                          std::size_t peer,
                                          Message::Way way) const {
    std::vector<Piece> found;
    for (const Piece& piece : of_ranks_[rank].steps[step].pieces) {
      if (piece.way == way && piece.peer == static_cast<int>(peer)) {
        found.push_back(piece);
      }
    }
    return found;
  }

  // Sends are read before anything is received: no order of messages may be needed.
  void deliver(std::size_t step) const {
    struct Arrival {
      std::byte* to;
      std::vector<std::byte> data;
    };

    std::vector<Arrival> arrivals;
    for (std::size_t from = 0; from < of_ranks_.size(); ++from) {
      for (std::size_t to = 0; to < of_ranks_.size(); ++to) {
        const std::vector<Piece> sent = pieces(step, from, to, Message::Way::send);
        const std::vector<Piece> received = pieces(step, to, from, Message::Way::receive);
        REQUIRE(sent.size() == received.size());
        for (std::size_t i = 0; i < sent.size(); ++i) {
          REQUIRE(sent[i].bytes == received[i].bytes);
          arrivals.push_back({received[i].data, {sent[i].data, sent[i].data + sent[i].bytes}});
        }
      }
    }
    for (const Arrival& arrival : arrivals) {
      std::memcpy(arrival.to, arrival.data.data(), arrival.data.size());
    }
  }

  std::vector<Moves> of_ranks_;
};

struct Setting {
  int groups = 1;
  int places = 1;
  DType dtype = DType::f32;
  std::size_t count = 0;
};

// Returns the tensors of all ranks after a sum or gather, which goes as the hierarchy says.
std::vector<std::vector<std::byte>> after(Kind kind,
                                          const Setting& setting,
                                          const Hierarchy& hierarchy = {}) {
  const auto pool = std::make_shared<ScratchPool>();
  const int ranks = setting.groups * setting.places;
  std::vector<GuardedTensor> tensors;
  for (int rank = 0; rank < ranks; ++rank) {
    tensors.push_back(make_tensor(setting.dtype, setting.count));
    tensors.back().set(values_of(rough, rank, setting.count));
  }
  std::vector<Moves> moves;
  moves.reserve(tensors.size());
  for (int rank = 0; rank < ranks; ++rank) {
    moves.push_back(moves_of({.kind = kind,
                              .data = tensors[static_cast<std::size_t>(rank)].view(),
                              .order = {.runs = {setting.places, 1}}},
                             rank,
                             ranks,
                             pool,
                             hierarchy));
  }
  Lockstep(std::move(moves)).run();
  std::vector<std::vector<std::byte>> bytes;
  bytes.reserve(tensors.size());
  for (const GuardedTensor& tensor : tensors) {
    REQUIRE(tensor.sentinels_intact());
    bytes.push_back(tensor.bytes());
  }
  return bytes;
}

// All operations in both ways through groups, against the direct one.
void require_ways_match(const Setting& setting) {
  const int ranks = setting.groups * setting.places;
  const auto sum = after(Kind::all_reduce, setting);
  for (const std::vector<std::byte>& bytes : sum) {
    REQUIRE(bytes == sum.front());
  }
  const auto gathered = after(Kind::all_gather, setting);
  for (const Way way : {Way::sequential, Way::overlapped}) {
    const Hierarchy hierarchy = hierarchy_of(setting.places, way);
    CHECK(after(Kind::all_reduce, setting, hierarchy) == sum);
    CHECK(after(Kind::all_gather, setting, hierarchy) == gathered);
    const auto scattered = after(Kind::reduce_scatter, setting, hierarchy);
    for (int rank = 0; rank < ranks; ++rank) {
      const Slice own = slice_of(setting.count, rank, ranks);
      const auto part = [&](const std::vector<std::byte>& bytes) {
        const auto at = [&](std::size_t element) {
          return bytes.begin() + static_cast<std::ptrdiff_t>(element * size_of(setting.dtype));
        };
        return std::vector<std::byte>(at(own.begin), at(own.end));
      };
      CHECK(part(scattered[static_cast<std::size_t>(rank)]) == part(sum.front()));
    }
  }
}

}  // namespace

TEST_CASE("moves of all ranks match step by step and in order, and all ways give the same bits") {
  // Fewer elements than ranks, a rest, and more than go all to all.
  for (const std::size_t count : {std::size_t{3}, std::size_t{61}, std::size_t{2500}}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (Setting setting : {Setting{2, 2}, Setting{2, 4}, {3, 2}, {4, 3}, {5, 2}}) {
        setting.dtype = dtype;
        setting.count = count;
        INFO(setting.groups << " groups of " << setting.places << ", " << count << " of "
                            << name_of(dtype));
        require_ways_match(setting);
      }
    }
  }
}

}  // namespace slackline::testing
