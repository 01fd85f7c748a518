#include "tests/core/comm/comm_checks.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <stdexcept>

#include "core/comm/collective_bytes.h"
#include "tests/core/comm/groups_of_ranks.h"
#include "tests/core/comm/rank_values.h"
#include "tests/support/guarded_tensor.h"

namespace slackline::testing {

void expect(bool good, const Communicator& comm, const std::string& what) {
  if (!good) {
    throw std::runtime_error("rank " + std::to_string(comm.rank()) + " of " +
                             std::to_string(comm.size()) + ": " + what);
  }
}

namespace {

// Below, at and above the switches of algorithm, few divisible by a size, 0 and 1 included.
constexpr std::size_t kCounts[] = {0, 1, 2, 7, 64, 1025, 4099};
constexpr std::size_t kBroadcastCounts[] = {0, 1, 7, 4096, 16384, 16387};
constexpr DType kSummed[] = {DType::f32, DType::bf16, DType::f64};
constexpr TransferNote kNote{.what = "a test"};

// Whole numbers small enough that sums of eight are exact even in bf16.
double exact(int rank, std::size_t i) {
  return static_cast<double>((static_cast<std::size_t>(rank) * 7 + i * 3) % 13) - 6.0;
}

// The sums of consecutive runs of addends.
template <typename Wide>
std::vector<Wide> sums_of_runs(const std::vector<Wide>& addends, std::size_t run) {
  std::vector<Wide> sums;
  for (std::size_t i = 0; i < addends.size(); ++i) {
    if (i % run == 0) {
      sums.push_back(addends[i]);
    } else {
      sums.back() += addends[i];
    }
  }
  return sums;
}

// What docs/numerics.md says a sum is, element by element.
template <typename Wide>
double sum_in_order(const std::vector<std::vector<double>>& inputs, std::size_t i, SumOrder order) {
  std::vector<Wide> sums;
  sums.reserve(inputs.size());
  for (const std::vector<double>& input : inputs) {
    sums.push_back(static_cast<Wide>(input[i]));
  }
  for (const int run : order.runs) {
    sums = sums_of_runs(sums, static_cast<std::size_t>(run));
  }
  return static_cast<double>(sums_of_runs(sums, sums.size()).front());
}

// In rank order, in pairs, in groups of two and three, and a tied table's pairs in groups.
constexpr std::array<SumOrder, 5> kOrders = {
    SumOrder{}, {.runs = {2, 1}}, {.runs = {3, 1}}, {.runs = {2, 2}}, {.runs = {2, 3}}};

struct SumCase {
  DType dtype = DType::f32;
  std::size_t count = 0;
  SumOrder order{};
  RankValue value = exact;
};

// Stored inputs of every rank, and the sum as it is to be stored.
std::vector<double> expected_sum(const SumCase& c, int size) {
  std::vector<std::vector<double>> inputs;
  for (int rank = 0; rank < size; ++rank) {
    GuardedTensor stored = make_tensor(c.dtype, c.count);
    stored.set(values_of(c.value, rank, c.count));
    inputs.push_back(stored.values());
  }
  std::vector<double> sums(c.count);
  for (std::size_t i = 0; i < c.count; ++i) {
    sums[i] = c.dtype == DType::f64 ? sum_in_order<double>(inputs, i, c.order)
                                    : sum_in_order<float>(inputs, i, c.order);
  }
  GuardedTensor rounded = make_tensor(c.dtype, c.count);
  rounded.set(sums);
  return rounded.values();
}

void check_sums(Communicator& comm, const SumCase& c) {
  const std::string name = std::string(name_of(c.dtype)) + " x " + std::to_string(c.count);
  const std::vector<double> expected = expected_sum(c, comm.size());
  GuardedTensor data = make_tensor(c.dtype, c.count);
  data.set(values_of(c.value, comm.rank(), c.count));
  comm.all_reduce(data, kNote, c.order).wait();
  expect(data.values() == expected, comm, "all_reduce of " + name);
  expect(data.sentinels_intact(), comm, "all_reduce wrote outside " + name);

  data.set(values_of(c.value, comm.rank(), c.count));
  comm.reduce_scatter(data, kNote, c.order).wait();
  const Slice own = slice_of(c.count, comm.rank(), comm.size());
  const std::vector<double> got = data.values();
  for (std::size_t i = own.begin; i < own.end; ++i) {
    expect(got[i] == expected[i], comm, "reduce_scatter of " + name);
  }
  expect(data.sentinels_intact(), comm, "reduce_scatter wrote outside " + name);
}

void sums_of(Communicator& comm, RankValue value) {
  for (const DType dtype : kSummed) {
    for (const std::size_t count : kCounts) {
      for (const SumOrder order : kOrders) {
        if (order.fits(comm.size())) {
          check_sums(comm, {.dtype = dtype, .count = count, .order = order, .value = value});
        }
      }
    }
  }
}

void exact_sums(Communicator& comm) {
  sums_of(comm, exact);
}

void ordered_sums(Communicator& comm) {
  sums_of(comm, rough);
}

std::vector<double> whole_numbers(std::size_t count, int salt) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<double>((i * 5 + static_cast<std::size_t>(salt) * 3) % 101);
  }
  return values;
}

void gathers(Communicator& comm) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::u8, DType::i64}) {
    for (const std::size_t count : kCounts) {
      const std::vector<double> all = whole_numbers(count, 1);
      std::vector<double> own(count, 0.0);
      const Slice slice = slice_of(count, comm.rank(), comm.size());
      for (std::size_t i = slice.begin; i < slice.end; ++i) {
        own[i] = all[i];
      }
      GuardedTensor data = make_tensor(dtype, count);
      data.set(own);
      comm.all_gather(data, kNote).wait();
      expect(data.values() == all, comm, "all_gather of " + std::to_string(count));
      expect(data.sentinels_intact(), comm, "all_gather wrote outside");
    }
  }
}

void exchanges(Communicator& comm) {
  const auto size = static_cast<std::size_t>(comm.size());
  for (const std::size_t each : {0, 1, 5, 3001}) {
    const std::size_t count = each * size;
    GuardedTensor from = make_tensor(DType::f32, count);
    GuardedTensor to = make_tensor(DType::f32, count);
    const std::vector<double> sent = whole_numbers(count, comm.rank());
    from.set(sent);
    comm.all_to_all(from, to, kNote).wait();
    std::vector<double> expected(count);
    for (int rank = 0; rank < comm.size(); ++rank) {
      const std::vector<double> theirs = whole_numbers(count, rank);
      for (std::size_t i = 0; i < each; ++i) {
        expected[static_cast<std::size_t>(rank) * each + i] =
            theirs[static_cast<std::size_t>(comm.rank()) * each + i];
      }
    }
    expect(to.values() == expected, comm, "all_to_all of " + std::to_string(count));
    expect(from.values() == sent && to.sentinels_intact(), comm, "all_to_all wrote elsewhere");
  }
}

void broadcasts(Communicator& comm) {
  for (int root = 0; root < comm.size(); ++root) {
    for (const std::size_t count : kBroadcastCounts) {
      GuardedTensor data = make_tensor(DType::f32, count);
      const std::vector<double> expected = whole_numbers(count, root);
      data.set(comm.rank() == root ? expected : std::vector<double>(count, -1.0));
      comm.broadcast(data, root, kNote).wait();
      expect(data.values() == expected,
             comm,
             "broadcast of " + std::to_string(count) + " from " + std::to_string(root));
      expect(data.sentinels_intact(), comm, "broadcast wrote outside");
    }
  }
}

void directs(Communicator& comm) {
  for (const std::size_t count : kCounts) {
    for (int distance = 1; distance < comm.size(); ++distance) {
      const int to = (comm.rank() + distance) % comm.size();
      const int from = (comm.rank() + comm.size() - distance) % comm.size();
      GuardedTensor out = make_tensor(DType::f32, count);
      GuardedTensor in = make_tensor(DType::f32, count);
      out.set(whole_numbers(count, comm.rank()));
      Transfer sent = comm.send(out, to, kNote);
      Transfer received = comm.receive(in, from, kNote);
      received.wait();
      sent.wait();
      expect(in.values() == whole_numbers(count, from), comm, "send and receive");
      expect(in.sentinels_intact(), comm, "receive wrote outside");
    }
  }
}

// Every rank waits for a receive that can only come after all its own sends, posted later.
void receives_first(Communicator& comm) {
  constexpr int kMessages = 12;
  constexpr std::size_t kElements = 5003;
  std::vector<GuardedTensor> in;
  std::vector<GuardedTensor> out;
  for (int i = 0; i < kMessages; ++i) {
    in.push_back(make_tensor(DType::f32, kElements));
    out.push_back(make_tensor(DType::f32, kElements));
    out.back().set(whole_numbers(kElements, i + comm.rank()));
  }
  const int to = (comm.rank() + 1) % comm.size();
  const int from = (comm.rank() + comm.size() - 1) % comm.size();
  if (comm.size() == 1) {
    return;
  }
  std::vector<Transfer> transfers;
  transfers.reserve(in.size() + out.size());
  for (GuardedTensor& tensor : in) {
    transfers.push_back(comm.receive(tensor, from, kNote));
  }
  for (GuardedTensor& tensor : out) {
    transfers.push_back(comm.send(tensor, to, kNote));
  }
  for (Transfer& transfer : transfers) {
    transfer.wait();
  }
  for (int i = 0; i < kMessages; ++i) {
    expect(in[static_cast<std::size_t>(i)].values() == whole_numbers(kElements, i + from),
           comm,
           "messages between two ranks keep their order");
  }
}

// Many at once, waited for in the reverse order, large and small mixed.
void many_at_once(Communicator& comm) {
  std::vector<GuardedTensor> tensors;
  std::vector<SumCase> cases;
  for (int i = 0; i < 12; ++i) {
    cases.push_back({.dtype = kSummed[i % 3],
                     .count = static_cast<std::size_t>(i % 4 == 0 ? 15013 : 10 + i),
                     .value = rough});
    tensors.push_back(make_tensor(cases.back().dtype, cases.back().count));
    tensors.back().set(values_of(rough, comm.rank(), cases.back().count));
  }
  std::vector<Transfer> transfers;
  for (GuardedTensor& tensor : tensors) {
    transfers.push_back(comm.all_reduce(tensor, kNote));
    transfers.push_back(comm.barrier(kNote));
  }
  while (!transfers.empty()) {
    transfers.back().wait();
    transfers.pop_back();
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    expect(
        tensors[i].values() == expected_sum(cases[i], comm.size()), comm, "all_reduce in a crowd");
  }
}

// Two ways to cut the ranks, both in use at the same time as the whole.
void sub_groups(Communicator& comm) {
  std::vector<int> halves[2];
  std::vector<int> backwards;
  for (int rank = 0; rank < comm.size(); ++rank) {
    halves[rank % 2].push_back(rank);
    backwards.insert(backwards.begin(), rank);
  }
  const std::vector<int>& own_half = halves[comm.rank() % 2];
  const auto half = comm.group("half", own_half, Urgency::background);
  const auto reversed = comm.group("reversed", backwards);
  expect(
      half->axis() == "half" && half->size() == static_cast<int>(own_half.size()), comm, "group");
  expect(reversed->rank() == comm.size() - 1 - comm.rank(), comm, "order of a group");
  constexpr std::size_t kElements = 9001;
  GuardedTensor a = make_tensor(DType::f32, kElements);
  GuardedTensor b = make_tensor(DType::f32, kElements);
  GuardedTensor c = make_tensor(DType::f32, kElements);
  for (GuardedTensor* tensor : {&a, &b, &c}) {
    tensor->set(values_of(exact, comm.rank(), kElements));
  }
  Transfer in_half = half->all_reduce(a, kNote);
  Transfer in_reversed = reversed->all_reduce(b, kNote);
  Transfer in_all = comm.all_reduce(c, kNote);
  in_all.wait();
  in_reversed.wait();
  in_half.wait();
  expect(b.values() == c.values(), comm, "sum of exact numbers in reverse order");
  std::vector<double> expected(kElements, 0.0);
  for (const int rank : own_half) {
    for (std::size_t i = 0; i < kElements; ++i) {
      expected[i] += exact(rank, i);
    }
  }
  expect(a.values() == expected, comm, "sum over half of the ranks");
}

// Cut where the world has a small longest_background, and more than its window lets through at
// once; what is cut in one place is put together in another.
void in_the_background(Communicator& comm) {
  const auto group = comm.group("background", everyone(comm), Urgency::background);
  constexpr int kSums = 40;
  const auto count_of = [](int i) { return static_cast<std::size_t>(1 + 9973 * i % 20'000); };
  std::vector<GuardedTensor> sums;
  std::vector<Transfer> transfers;
  sums.reserve(kSums);
  std::size_t bytes = 0;
  for (int i = 0; i < kSums; ++i) {
    const std::size_t count = count_of(i);
    GuardedTensor& data = sums.emplace_back(make_tensor(DType::f32, count));
    data.set(values_of(exact, comm.rank() + i, count));
    transfers.push_back(i % 3 == 0 ? group->reduce_scatter(data, kNote)
                                   : group->all_reduce(data, kNote));
    const auto kind =
        i % 3 == 0 ? TransferRecord::Kind::reduce_scatter : TransferRecord::Kind::all_reduce;
    bytes += bytes_sent_by({.kind = kind, .elements = count}, comm.rank(), comm.size());
  }
  expect(group->bytes_sent() == bytes, comm, "bytes of sums in parts");
  for (int i = kSums - 1; i >= 0; --i) {  // the youngest first
    transfers[static_cast<std::size_t>(i)].wait();
    std::vector<double> expected(count_of(i), 0.0);
    for (int rank = 0; rank < comm.size(); ++rank) {
      const std::vector<double> values = values_of(exact, rank + i, count_of(i));
      std::transform(
          values.begin(), values.end(), expected.begin(), expected.begin(), std::plus<>());
    }
    std::vector<double> got = sums[static_cast<std::size_t>(i)].values();
    if (i % 3 == 0) {
      const Slice own = slice_of(count_of(i), comm.rank(), comm.size());
      const auto cut_out = [&](std::vector<double>& list) {
        list.assign(list.begin() + static_cast<std::ptrdiff_t>(own.begin),
                    list.begin() + static_cast<std::ptrdiff_t>(own.end));
      };
      cut_out(got);
      cut_out(expected);
    }
    expect(got == expected, comm, "a sum in parts");
  }
}

void records(Communicator& comm) {
  comm.record_transfers(true);
  GuardedTensor data = make_tensor(DType::f32, 3000);
  data.fill(1.0);
  const std::size_t before = comm.bytes_sent();
  comm.all_reduce(data, {.what = "gradients", .stage = 2, .micro_batch = 5}).wait();
  comm.barrier({.what = "end"}).wait();
  comm.record_transfers(false);
  const std::vector<TransferRecord> got = comm.take_records();
  if (comm.size() == 1) {
    expect(got.empty(), comm, "records of nothing");
    return;
  }
  expect(got.size() == 2, comm, "one record for each transfer");
  expect(got[0].kind == TransferRecord::Kind::all_reduce && got[0].note.stage == 2 &&
             got[0].note.micro_batch == 5 && std::string(got[0].note.what) == "gradients",
         comm,
         "a record says what it was");
  expect(got[0].bytes_sent == comm.bytes_sent() - before && got[1].bytes_sent == 0, comm, "bytes");
  expect(got[0].submitted <= got[0].finished && got[0].finished <= comm.now(), comm, "times");
  expect(comm.take_records().empty(), comm, "records are taken once");
}

}  // namespace

const std::vector<CommCheck>& comm_checks() {
  static const std::vector<CommCheck> checks = [] {
    std::vector<CommCheck> all = {
        {"sums of exact numbers are exact", exact_sums},
        {"sums run in rank order, one rounding at the end", ordered_sums},
        {"all_gather puts every slice in its place", gathers},
        {"all_to_all transposes slices", exchanges},
        {"broadcast reaches every rank from every root", broadcasts},
        {"sends meet receives", directs},
        {"a blocked receive holds up no send", receives_first},
        {"many operations at once keep apart", many_at_once},
        {"groups work side by side", sub_groups},
        {"long sums in the background come together again", in_the_background},
        {"records tell transfers", records},
    };
    all.insert(all.end(), work_checks().begin(), work_checks().end());
    return all;
  }();
  return checks;
}

}  // namespace slackline::testing
