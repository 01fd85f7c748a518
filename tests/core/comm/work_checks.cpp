#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <thread>

#include "tests/core/comm/comm_checks.h"
#include "tests/support/guarded_tensor.h"

namespace slackline::testing {

namespace {

constexpr TransferNote kNote{.what = "a test"};

GuardedTensor numbers(std::size_t count) {
  return {DType::f32, Shape{static_cast<std::int64_t>(count)}};
}

// Round the ring: what is sent is made late, what arrives is taken before wait() returns.
void made_and_taken(Communicator& comm) {
  if (comm.size() == 1) {
    return;
  }
  const auto worker = std::make_shared<Worker>();
  const int to = (comm.rank() + 1) % comm.size();
  const int from = (comm.rank() + comm.size() - 1) % comm.size();
  constexpr int kMessages = 5;
  std::vector<GuardedTensor> sent;
  std::vector<GuardedTensor> received;
  std::vector<Transfer> transfers;
  std::vector<int> taken(kMessages, 0);
  std::vector<int> settled(kMessages, 0);
  sent.reserve(kMessages);
  received.reserve(kMessages);
  for (int i = 0; i < kMessages; ++i) {
    GuardedTensor& data = sent.emplace_back(numbers(1000));
    GuardedTensor& arrived = received.emplace_back(numbers(1000));
    const bool plain = i == 2;  // among made ones: in its place all the same
    const double value = comm.rank() * 10.0 + i;
    data.fill(plain ? value : -1.0);
    TransferWork making{.worker = plain ? nullptr : worker};
    TransferWork taking{.worker = worker};
    if (!plain) {
      making.before = [&data, value, comm_rank = comm.rank()] {
        std::this_thread::sleep_for(std::chrono::milliseconds(comm_rank % 2));
        data.fill(value);
      };
      making.beside = [&settled, i] { settled[static_cast<std::size_t>(i)] = 1; };
    }
    taking.after = [&arrived, &taken, i] {
      taken[static_cast<std::size_t>(i)] = static_cast<int>(arrived.values().back());
    };
    transfers.push_back(comm.send(data, to, kNote, making));
    transfers.push_back(comm.receive(arrived, from, kNote, taking));
  }
  for (Transfer& transfer : transfers) {
    transfer.wait();
  }
  worker->finish();
  for (int i = 0; i < kMessages; ++i) {
    expect(taken[static_cast<std::size_t>(i)] == from * 10 + i, comm, "a message that was made");
    expect(settled[static_cast<std::size_t>(i)] == (i == 2 ? 0 : 1), comm, "work beside a message");
  }
}

// Sums of sums: each round is made of the one before, several chains at once.
void chained_sums(Communicator& comm) {
  if (comm.size() == 1) {
    return;
  }
  const auto worker = std::make_shared<Worker>();
  constexpr std::size_t kChains = 3;
  constexpr std::size_t kElements = 2000;
  std::vector<GuardedTensor> first;
  std::vector<GuardedTensor> second;
  std::vector<double> ends(kChains, 0.0);
  std::vector<Transfer> transfers;
  first.reserve(kChains);
  second.reserve(kChains);
  transfers.reserve(3 * kChains);
  for (std::size_t c = 0; c < kChains; ++c) {
    GuardedTensor& a = first.emplace_back(numbers(kElements));
    GuardedTensor& b = second.emplace_back(numbers(kElements));
    transfers.push_back(
        comm.all_reduce(a, kNote, SumOrder::ranks, {.worker = worker, .before = [&a, c, &comm] {
                                                      a.fill(static_cast<double>(c) + comm.rank());
                                                    }}));
    transfers.push_back(comm.all_reduce(b,
                                        kNote,
                                        SumOrder::ranks,
                                        {.worker = worker,
                                         .before = [&a, &b] { b.fill(a.values().front() + 1.0); },
                                         .after = [&b, &ends, c] { ends[c] = b.values().back(); },
                                         .follows = &transfers.back()}));
  }
  const double size = comm.size();
  for (Transfer& transfer : transfers) {
    transfer.wait();
  }
  for (std::size_t c = 0; c < kChains; ++c) {
    const double sum = size * static_cast<double>(c) + size * (size - 1.0) / 2.0;
    expect(ends[c] == size * (sum + 1.0), comm, "a sum of sums");
  }
}

// Owners make something of the slice whose sum they have, and all get that.
void gathered_sums(Communicator& comm) {
  if (comm.size() == 1) {
    return;
  }
  const auto worker = std::make_shared<Worker>();
  constexpr std::size_t kChains = 3;
  constexpr std::size_t kElements = 2001;
  const Slice own = slice_of(kElements, comm.rank(), comm.size());
  std::vector<GuardedTensor> tensors;
  std::vector<Transfer> transfers;
  tensors.reserve(kChains);
  transfers.reserve(2 * kChains);
  for (std::size_t c = 0; c < kChains; ++c) {
    GuardedTensor& a = tensors.emplace_back(numbers(kElements));
    a.fill(static_cast<double>(c) + comm.rank());
    transfers.push_back(comm.reduce_scatter(a, kNote, SumOrder::ranks, {.worker = worker}));
    transfers.push_back(comm.all_gather(a,
                                        kNote,
                                        {.worker = worker,
                                         .before =
                                             [&a, own, &comm] {
                                               std::vector<double> values = a.values();
                                               for (std::size_t i = own.begin; i < own.end; ++i) {
                                                 values[i] = 2.0 * values[i] + comm.rank();
                                               }
                                               a.set(values);
                                             },
                                         .follows = &transfers.back()}));
  }
  for (Transfer& transfer : transfers) {
    transfer.wait();
  }
  const double size = comm.size();
  for (std::size_t c = 0; c < kChains; ++c) {
    const double sum = size * static_cast<double>(c) + size * (size - 1.0) / 2.0;
    const std::vector<double> values = tensors[c].values();
    for (int rank = 0; rank < comm.size(); ++rank) {
      const Slice slice = slice_of(kElements, rank, comm.size());
      expect(values[slice.begin] == 2.0 * sum + rank && values[slice.end - 1] == 2.0 * sum + rank,
             comm,
             "what an owner made of a sum");
    }
  }
}

// What work makes is exchanged; each rank's own slice stays with it.
void made_exchanges(Communicator& comm) {
  if (comm.size() == 1) {
    return;
  }
  const auto worker = std::make_shared<Worker>();
  const auto size = static_cast<std::size_t>(comm.size());
  constexpr std::size_t kEach = 1500;
  const auto value_of = [](int from, int to) { return 10.0 * from + to; };
  GuardedTensor sent = numbers(kEach * size);
  GuardedTensor arrived = numbers(kEach * size);
  std::vector<double> taken;
  sent.fill(-1.0);
  arrived.fill(-2.0);
  const TransferWork work{.worker = worker,
                          .before =
                              [&] {
                                std::vector<double> values;
                                for (int to = 0; to < comm.size(); ++to) {
                                  values.insert(values.end(), kEach, value_of(comm.rank(), to));
                                }
                                sent.set(values);
                              },
                          .after = [&] { taken = arrived.values(); }};
  comm.all_to_all(sent, arrived, kNote, work).wait();
  for (int from = 0; from < comm.size(); ++from) {
    const auto last = (static_cast<std::size_t>(from) + 1) * kEach - 1;
    const bool own = from == comm.rank();
    expect(own || taken[last] == value_of(from, comm.rank()), comm, "an exchange that was made");
    expect(sent.values()[last] == value_of(comm.rank(), from), comm, "what was exchanged");
  }
  expect(arrived.sentinels_intact() && sent.sentinels_intact(), comm, "an exchange wrote outside");
}

// A transfer that follows one that has ended begins at once.
void follows_what_has_ended(Communicator& comm) {
  GuardedTensor data = numbers(10);
  data.fill(1.0);
  Transfer before = comm.all_reduce(data, kNote);
  while (!before.done()) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  comm.all_reduce(data, kNote, SumOrder::ranks, {.follows = &before}).wait();
  before.wait();
  comm.all_reduce(data, kNote, SumOrder::ranks, {.follows = &before}).wait();
  expect(data.values().front() == std::pow(comm.size(), 3), comm, "a sum after a sum");
}

}  // namespace

const std::vector<CommCheck>& work_checks() {
  static const std::vector<CommCheck> checks = {
      {"what is sent is made beside, what arrives is taken before the wait ends", made_and_taken},
      {"a sum may be made of the sum before it", chained_sums},
      {"a gather may be made of the slices of a sum", gathered_sums},
      {"an all-to-all may be made and taken by work", made_exchanges},
      {"a transfer may follow one that has ended", follows_what_has_ended},
  };
  return checks;
}

}  // namespace slackline::testing
