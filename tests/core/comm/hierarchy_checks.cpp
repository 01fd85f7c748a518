#include "tests/core/comm/hierarchy_checks.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string>

#include "core/comm/collective_bytes.h"
#include "core/comm/hierarchy.h"
#include "tests/core/comm/groups_of_ranks.h"
#include "tests/core/comm/rank_values.h"
#include "tests/support/guarded_tensor.h"

namespace slackline::testing {

namespace {

using Kind = TransferRecord::Kind;
using Way = Hierarchy::Way;

constexpr TransferNote kNote{.what = "a test"};

// Whole numbers, few enough that their sums are exact in bf16 over 64 ranks.
double exact(int rank, std::size_t i) {
  return static_cast<double>((static_cast<std::size_t>(rank) + i) % 3) - 1.0;
}

struct HierarchyCase {
  DType dtype = DType::f32;
  std::size_t count = 0;
  SumOrder order{};
  RankValue value = exact;

  [[nodiscard]] std::string name() const {
    return std::string(name_of(dtype)) + " x " + std::to_string(count);
  }
};

// A communicator that goes through groups, beside one of the same ranks that goes directly.
class GroupedRank {
 public:
  GroupedRank(Communicator& direct, std::unique_ptr<Communicator> grouped)
      : direct_(direct), grouped_(std::move(grouped)) {}

  void check(const Hierarchy& hierarchy, const HierarchyCase& c) {
    grouped_->set_hierarchy(hierarchy);
    sum_everywhere(c);
    scatter_sum(c);
    gather(c);
  }

  // What all_reduce makes of the case, each way.
  [[nodiscard]] std::vector<std::byte> sum_of(const HierarchyCase& c, Communicator& comm) const {
    GuardedTensor data = make_tensor(c.dtype, c.count);
    data.set(values_of(c.value, comm.rank(), c.count));
    comm.all_reduce(data, kNote, c.order).wait();
    expect(data.sentinels_intact(), comm, "an all_reduce wrote outside " + c.name());
    return data.bytes();
  }

  [[nodiscard]] Communicator& grouped() const { return *grouped_; }

 private:
  // Also holds what was sent against the formulas.
  template <typename Call>
  void counted(Kind kind, const HierarchyCase& c, const Call& call) {
    const std::size_t sent_before = grouped_->bytes_sent();
    const std::size_t across_before = grouped_->bytes_sent_across();
    call();
    const CollectiveCall described{.kind = kind,
                                   .elements = c.count,
                                   .element_size = size_of(c.dtype),
                                   .order = c.order,
                                   .hierarchy = grouped_->hierarchy()};
    const std::string what = std::string(name_of(kind)) + " of " + c.name();
    expect(grouped_->bytes_sent() - sent_before ==
               bytes_sent_by(described, grouped_->rank(), grouped_->size()),
           *grouped_,
           "bytes of " + what);
    expect(grouped_->bytes_sent_across() - across_before ==
               bytes_sent_across_by(described, grouped_->rank(), grouped_->size()),
           *grouped_,
           "bytes between groups of " + what);
  }

  void sum_everywhere(const HierarchyCase& c) {
    const std::vector<std::byte> expected = sum_of(c, direct_);
    if (c.value == exact) {
      expect(expected == exact_sum(c), *grouped_, "the sum of exact numbers of " + c.name());
    }
    counted(Kind::all_reduce, c, [&] {
      expect(sum_of(c, *grouped_) == expected, *grouped_, "all_reduce of " + c.name());
    });
  }

  [[nodiscard]] std::vector<std::byte> exact_sum(const HierarchyCase& c) const {
    std::vector<double> sums(c.count, 0.0);
    for (int rank = 0; rank < direct_.size(); ++rank) {
      for (std::size_t i = 0; i < c.count; ++i) {
        sums[i] += exact(rank, i);
      }
    }
    GuardedTensor stored = make_tensor(c.dtype, c.count);
    stored.set(sums);
    return stored.bytes();
  }

  void scatter_sum(const HierarchyCase& c) {
    GuardedTensor expected = make_tensor(c.dtype, c.count);
    expected.set(values_of(c.value, direct_.rank(), c.count));
    direct_.all_reduce(expected, kNote, c.order).wait();
    GuardedTensor data = make_tensor(c.dtype, c.count);
    data.set(values_of(c.value, direct_.rank(), c.count));
    counted(
        Kind::reduce_scatter, c, [&] { grouped_->reduce_scatter(data, kNote, c.order).wait(); });
    const Slice own = own_slice(c.count);
    const std::vector<double> sums = expected.values();
    const std::vector<double> got = data.values();
    for (std::size_t i = own.begin; i < own.end; ++i) {
      expect(got[i] == sums[i], *grouped_, "reduce_scatter of " + c.name());
    }
    expect(data.sentinels_intact(), *grouped_, "a reduce_scatter wrote outside " + c.name());
  }

  void gather(const HierarchyCase& c) {
    const std::vector<double> all = values_of(exact, 1, c.count);
    const Slice own = own_slice(c.count);
    std::vector<double> brought(c.count, 7.0);
    for (std::size_t i = own.begin; i < own.end; ++i) {
      brought[i] = all[i];
    }
    GuardedTensor data = make_tensor(c.dtype, c.count);
    data.set(brought);
    counted(Kind::all_gather, c, [&] { grouped_->all_gather(data, kNote).wait(); });
    expect(data.values() == all, *grouped_, "all_gather of " + c.name());
    expect(data.sentinels_intact(), *grouped_, "an all_gather wrote outside " + c.name());
  }

  [[nodiscard]] Slice own_slice(std::size_t count) const {
    return slice_of(count, grouped_->rank(), grouped_->size());
  }

  Communicator& direct_;
  std::unique_ptr<Communicator> grouped_;
};

// Fewer elements than ranks, rests of one and of nearly all, and a sum long enough for the thread
// that adds. Many ranks take turns on few cores, so they get less.
std::vector<HierarchyCase> cases_of(int size) {
  const auto ranks = static_cast<std::size_t>(size);
  if (size > 16) {
    return {{.count = 1, .value = rough},
            {.dtype = DType::bf16, .count = 3 * ranks - 1, .value = rough}};
  }
  std::vector<HierarchyCase> cases;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    for (const std::size_t count : {ranks - 1, 3 * ranks + 1}) {
      cases.push_back({.dtype = dtype, .count = count, .value = rough});
    }
    cases.push_back({.dtype = dtype, .count = 201, .value = exact});
  }
  for (const std::size_t count : {0, 1, 40'009}) {
    cases.push_back({.count = count, .value = rough});
  }
  return cases;
}

// Those that add whole groups first, and for one that does not, which has to go directly.
std::vector<SumOrder> orders_of(int ranks_in_group) {
  std::vector<SumOrder> orders = {SumOrder{.runs = {ranks_in_group, 1}}, SumOrder::ranks};
  if (ranks_in_group == 4) {
    orders.push_back({.runs = {2, ranks_in_group / 2}});
  }
  return orders;
}

template <typename Check>
void with_every_group_size(Communicator& comm, const Check& check) {
  for (int ranks = 1; ranks <= comm.size(); ++ranks) {
    if (comm.size() % ranks == 0) {
      check(ranks);
    }
  }
}

void every_group_size(Communicator& comm) {
  with_every_group_size(comm, [&](int ranks) { check_groups_of(comm, ranks); });
}

// Also proves that the numbers can tell one order from another.
void order_shows(Communicator& comm) {
  with_every_group_size(comm, [&](int ranks) {
    if (ranks == 1 || ranks == comm.size()) {
      return;
    }
    GroupedRank rank(comm, comm.group("grouped", everyone(comm)));
    rank.grouped().set_hierarchy(hierarchy_of(ranks, Way::overlapped));
    const HierarchyCase in_groups{.count = 1025, .order = {.runs = {ranks, 1}}, .value = rough};
    const HierarchyCase in_rank_order{.count = 1025, .value = rough};
    expect(rank.sum_of(in_groups, rank.grouped()) != rank.sum_of(in_rank_order, rank.grouped()),
           comm,
           "the order of a sum shows in its bits");
  });
}

// Long messages that are cut, several operations of both ways at once, made and taken by work.
void many_at_once(Communicator& comm) {
  if (comm.size() == 1) {
    return;
  }
  with_every_group_size(comm, [&](int ranks) {
    const auto worker = std::make_shared<Worker>();
    const auto grouped = comm.group("grouped", everyone(comm), Urgency::background);
    constexpr std::size_t kCount = 10'001;
    constexpr std::size_t kSums = 4;
    std::vector<GuardedTensor> sums;
    std::vector<Transfer> transfers;
    std::vector<double> taken(kSums, 0.0);
    sums.reserve(kSums);
    for (std::size_t i = 0; i < kSums; ++i) {
      GuardedTensor& data = sums.emplace_back(make_tensor(DType::f32, kCount));
      grouped->set_hierarchy(hierarchy_of(ranks, i % 2 == 0 ? Way::overlapped : Way::sequential));
      transfers.push_back(grouped->all_reduce(
          data,
          kNote,
          {.runs = {ranks, 1}},
          {.worker = worker,
           .before = [&data, &comm, i] { data.fill(comm.rank() + static_cast<double>(i)); },
           .after = [&data, &taken, i] { taken[i] = data.values().back(); },
           .follows = i == 3 ? &transfers[1] : nullptr}));
    }
    const double size = comm.size();
    for (std::size_t i = 0; i < kSums; ++i) {
      transfers[i].wait();
      const double expected = size * (size - 1.0) / 2.0 + size * static_cast<double>(i);
      expect(taken[i] == expected && sums[i].values() == std::vector<double>(kCount, expected),
             comm,
             "a sum through groups that work makes and takes");
    }
  });
}

// One communicator inside the groups and one between them: what strategies are made of that keep a
// group's share of something. Each level takes its slice of what the one before left.
void two_levels(Communicator& comm) {
  constexpr std::size_t kCount = 1003;
  with_every_group_size(comm, [&](int ranks) {
    const int group = comm.rank() / ranks;
    const int place = comm.rank() % ranks;
    std::vector<int> of_group;
    std::vector<int> of_place;
    for (int rank = 0; rank < comm.size(); ++rank) {
      if (rank / ranks == group) {
        of_group.push_back(rank);
      }
      if (rank % ranks == place) {
        of_place.push_back(rank);
      }
    }
    const auto inside = comm.group("inside", of_group);
    const auto between = comm.group("between", of_place);
    GuardedTensor data = make_tensor(DType::f32, kCount);
    data.set(values_of(rough, comm.rank(), kCount));
    const Slice shared = slice_of(kCount, place, ranks);
    const Tensor part(std::span(data.view().data<float>() + shared.begin, shared.count()));
    Transfer first = inside->reduce_scatter(data, kNote);
    Transfer second = between->reduce_scatter(part, kNote, SumOrder::ranks, {.follows = &first});
    second.wait();
    first.wait();
    GuardedTensor expected = make_tensor(DType::f32, kCount);
    expected.set(values_of(rough, comm.rank(), kCount));
    comm.all_reduce(expected, kNote, {.runs = {ranks, 1}}).wait();
    const Slice own = slice_of(shared.count(), group, comm.size() / ranks);
    const std::vector<double> sums = expected.values();
    const std::vector<double> got = data.values();
    for (std::size_t i = shared.begin + own.begin; i < shared.begin + own.end; ++i) {
      expect(got[i] == sums[i], comm, "a sum inside the groups, then between them");
    }
  });
}

// In the background long messages are cut.
void check_groups(Communicator& comm, int ranks_in_group, Urgency urgency) {
  GroupedRank rank(comm, comm.group("grouped", everyone(comm), urgency));
  for (const Way way : {Way::sequential, Way::overlapped}) {
    const Hierarchy hierarchy = hierarchy_of(ranks_in_group, way);
    for (HierarchyCase c : cases_of(comm.size())) {
      for (const SumOrder order : orders_of(ranks_in_group)) {
        c.order = order;
        rank.check(hierarchy, c);
      }
    }
  }
}

}  // namespace

void check_groups_of(Communicator& comm, int ranks_in_group) {
  check_groups(comm, ranks_in_group, Urgency::now);
  check_groups(comm, ranks_in_group, Urgency::background);
}

const std::vector<CommCheck>& hierarchy_checks() {
  static const std::vector<CommCheck> checks = {
      {"what goes through groups has the bits of what goes directly", every_group_size},
      {"another order of a sum through groups shows in its bits", order_shows},
      {"sums through groups keep apart, made and taken by work", many_at_once},
      {"two communicators, one after the other, make the sums that go through groups", two_levels},
  };
  return checks;
}

}  // namespace slackline::testing
