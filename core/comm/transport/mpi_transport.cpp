// Only the C interface: the old C++ one would have to be linked.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <sched.h>
#include <string>
#include <thread>
#include <vector>

#include <mpi.h>

#include "core/comm/links/cluster.h"
#include "core/comm/transport/bell.h"
#include "core/comm/transport/mpi_world.h"
#include "core/error.h"

namespace slackline {

namespace {

using std::chrono::milliseconds;

constexpr unsigned kLaneBits = 3;
// The largest tag that every MPI takes has 15 bits, by the standard; 12 of them keep 4096
// operations of a group apart by their sequence. UCX offers 23 bits, TCP and shared memory 31.
constexpr int kLargestTagOfAll = 32767;
// A tag of no message, since it names no lane.
constexpr int kOpeningTag = 7;
constexpr std::size_t kLongest = std::size_t{1} << 30U;  // bytes; MPI counts in int
constexpr std::size_t kNoticeBytes = 2048;               // of a failure's text
constexpr milliseconds kNoticeTime{200};
constexpr int kClockRounds = 32;
// Bytes of a message that MPI's transports within a host send without the receiver's help, of which
// they use some for themselves.
constexpr int kShortOnHost = 2048;

void check(int result, const char* call) {
  if (result == MPI_SUCCESS) {
    return;
  }
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(result, text.data(), &length);
  throw CommError(std::string(call) + " failed: " + text.data());
}

double seconds() {
  return std::chrono::duration<double>(Transport::Clock::now().time_since_epoch()).count();
}

void find_nodes(MPI_Comm comm, MpiWorld& world) {
  constexpr std::size_t kName = MPI_MAX_PROCESSOR_NAME;
  const auto size = static_cast<std::size_t>(world.size);
  std::vector<char> names(kName * size);
  std::array<char, kName> own{};
  int length = 0;
  check(MPI_Get_processor_name(own.data(), &length), "MPI_Get_processor_name");
  check(MPI_Allgather(own.data(), kName, MPI_CHAR, names.data(), kName, MPI_CHAR, comm),
        "MPI_Allgather");
  std::vector<std::string> seen;
  for (std::size_t rank = 0; rank < size; ++rank) {
    const std::string name(names.data() + rank * kName);
    const auto place = std::find(seen.begin(), seen.end(), name);
    world.nodes.push_back(static_cast<int>(place - seen.begin()));
    if (place == seen.end()) {
      seen.push_back(name);
    }
  }
}

// The one of several exchanges with rank 0 that has the shortest round trip bounds the offset best:
// to half that trip. Ranks on rank 0's node read the same clock.
void find_clock(MPI_Comm comm, MpiWorld& world) {
  for (int rank = 1; rank < world.size; ++rank) {
    const bool other_clock = world.nodes[static_cast<std::size_t>(rank)] != world.nodes[0];
    if (!other_clock || (world.rank != 0 && world.rank != rank)) {
      continue;
    }
    double shortest = 1e9;
    for (int round = 0; round < kClockRounds; ++round) {
      double theirs = 0.0;
      if (world.rank == 0) {
        check(MPI_Recv(&theirs, 1, MPI_DOUBLE, rank, 0, comm, MPI_STATUS_IGNORE), "MPI_Recv");
        theirs = seconds();
        check(MPI_Send(&theirs, 1, MPI_DOUBLE, rank, 0, comm), "MPI_Send");
        continue;
      }
      const double begin = seconds();
      check(MPI_Send(&begin, 1, MPI_DOUBLE, 0, 0, comm), "MPI_Send");
      check(MPI_Recv(&theirs, 1, MPI_DOUBLE, 0, 0, comm, MPI_STATUS_IGNORE), "MPI_Recv");
      const double end = seconds();
      if (end - begin < shortest) {
        shortest = end - begin;
        world.clock_offset = theirs - 0.5 * (begin + end);
      }
    }
  }
}

class MpiTransport final : public Transport {
 public:
  MpiTransport(MessageListener& listener, MpiWorld& world) : listener_(listener) {
    int level = 0;
    // Read by Open MPI's MPI_Init, unless the user has set them.
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);  // also in MPI_Finalize
    // Its put protocol over TCP halves exchanges in both directions of messages above 64 KiB.
    setenv("OMPI_MCA_btl_tcp_flags", "send,inplace", 0);
    // Messages up to this go at once, without asking whether the receive is posted: ranks answer
    // late while they compute, and most receives are posted early.
    setenv("OMPI_MCA_btl_tcp_eager_limit", std::to_string(kEagerBytes).c_str(), 0);
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
    if (level < MPI_THREAD_SERIALIZED) {
      throw CommError("MPI must let threads call it in turn (MPI_THREAD_SERIALIZED)");
    }
    check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_rank(comm_, &world.rank), "MPI_Comm_rank");
    check(MPI_Comm_size(comm_, &world.size), "MPI_Comm_size");
    rank_ = world.rank;
    size_ = world.size;
    end_seconds_ = world.end_seconds;
    find_tag_bits();
    open_world();
    find_nodes(comm_, world);
    find_clock(comm_, world);
    share(world.num_shared ? world.num_shared(world.size) : 0, world);
    expect_notice();
  }

  void open_group(std::uint32_t id, const std::vector<int>& members) override;

  void post(const Message& message) override {
    if (message.bytes <= kLongest) {
      post_part(message, message.data, message.bytes, nullptr);
      return;
    }
    const auto parts = std::make_shared<std::size_t>((message.bytes + kLongest - 1) / kLongest);
    for (std::size_t begin = 0; begin < message.bytes; begin += kLongest) {
      post_part(message, message.data + begin, std::min(kLongest, message.bytes - begin), parts);
    }
  }

  bool progress() override;

  [[nodiscard]] bool needs_polling() const override { return true; }

  [[nodiscard]] Bell* bell() override { return bell_of(rank_); }

  [[nodiscard]] bool bell_tells_all() const override { return from_afar_ == 0; }

  void call_peers() override {
    for (std::size_t i = 1; i < posted_.size(); ++i) {
      if (Bell* const bell = bell_of(posted_[i].message.peer)) {
        bell->ring(Bell::Listener::engine);
      }
    }
  }

  void announce_failure(const std::string& reason) override;
  void close() override;

  void abort(int code) override { MPI_Abort(comm_, code); }

 private:
  // A channel carries the messages of one group: a communicator of MPI's own, so that tags need not
  // tell groups apart.
  struct Channel {
    MPI_Comm comm = MPI_COMM_NULL;
    std::vector<int> ranks{};  // by rank in the world: the rank in `comm`, -1 for no member
  };

  // One posted request; a long message is several, which share what is left of it.
  struct Posted {
    Message message{};
    std::shared_ptr<std::size_t> parts;
    int bytes = 0;
  };

  void find_tag_bits() {
    int* limit = nullptr;
    int found = 0;
    check(MPI_Comm_get_attr(comm_, MPI_TAG_UB, static_cast<void*>(&limit), &found),
          "MPI_Comm_get_attr");
    const auto largest = static_cast<unsigned>(found != 0 ? *limit : kLargestTagOfAll);
    sequence_bits_ = static_cast<unsigned>(std::bit_width(largest + 1)) - 1 - kLaneBits;
  }

  void open_world() {
    Channel& world = channels_[0];
    world.comm = comm_;
    world.ranks.resize(static_cast<std::size_t>(size_));
    std::iota(world.ranks.begin(), world.ranks.end(), 0);
  }

  // Returns null for ranks of other hosts, whose bells cannot be rung.
  [[nodiscard]] Bell* bell_of(int world_rank) const {
    return bells_[static_cast<std::size_t>(world_rank)];
  }

  [[nodiscard]] int tag_of(const Message& message) const {
    const unsigned sequence = message.sequence & ((1U << sequence_bits_) - 1U);
    return static_cast<int>((sequence << kLaneBits) | static_cast<unsigned>(message.lane));
  }

  void post_part(const Message& message,
                 std::byte* data,
                 std::size_t bytes,
                 std::shared_ptr<std::size_t> parts) {
    MPI_Request request = MPI_REQUEST_NULL;
    const auto count = static_cast<int>(bytes);
    const int tag = tag_of(message);
    const Channel& channel = channels_.at(message.communicator);
    const int peer = channel.ranks[static_cast<std::size_t>(message.peer)];
    if (message.way == Message::Way::send) {
      check(MPI_Isend(data, count, MPI_BYTE, peer, tag, channel.comm, &request), "MPI_Isend");
    } else {
      check(MPI_Irecv(data, count, MPI_BYTE, peer, tag, channel.comm, &request), "MPI_Irecv");
    }
    requests_.push_back(request);
    posted_.push_back({message, std::move(parts), count});
    Bell* const bell = bell_of(message.peer);
    if (bell == nullptr) {
      ++from_afar_;
    } else if (message.way == Message::Way::send) {
      bell->ring(Bell::Listener::rank);
    }
  }

  // The sender of a long message waits for its receiver to have taken it.
  void note_end(const Posted& posted) {
    Bell* const bell = bell_of(posted.message.peer);
    if (bell == nullptr) {
      --from_afar_;
    } else if (posted.message.way == Message::Way::receive && posted.bytes > kShortOnHost) {
      bell->ring(Bell::Listener::rank);
    }
  }

  void share(std::size_t count, MpiWorld& world);
  void check_sizes() const;

  // Somebody's last words, at index 0 of the requests from first to last.
  void expect_notice() {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Irecv(notice_.data(),
                    static_cast<int>(kNoticeBytes) - 1,
                    MPI_BYTE,
                    MPI_ANY_SOURCE,
                    static_cast<int>(Lane::control),
                    comm_,
                    &request),
          "MPI_Irecv");
    requests_.push_back(request);
    posted_.emplace_back();
  }

  MessageListener& listener_;
  MPI_Comm comm_ = MPI_COMM_NULL;  // of the world
  // By the group's id, which all members have in common. They stay until the end, where all members
  // free them in the order of their ids.
  std::map<std::uint32_t, Channel> channels_;
  MPI_Win window_ = MPI_WIN_NULL;  // of what processes of a host share
  std::vector<Bell*> bells_;       // by rank in the world; null on other hosts
  std::size_t from_afar_ = 0;      // messages under way from and to other hosts
  int rank_ = 0;
  int size_ = 1;
  unsigned sequence_bits_ = 0;
  double end_seconds_ = 0.0;
  std::array<char, kNoticeBytes> notice_{};
  std::vector<MPI_Request> requests_;
  std::vector<Posted> posted_;        // beside requests_
  std::vector<int> finished_;         // places among the requests
  std::vector<MPI_Status> statuses_;  // beside finished_
  std::vector<Posted> told_;
};

// Processes of a host share their bells and, behind them, the words that the world asks for. Where
// they cannot share memory there are no bells.
void MpiTransport::share(std::size_t count, MpiWorld& world) {
  using Word = std::atomic<std::int64_t>;
  MPI_Comm host = MPI_COMM_NULL;
  check(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host),
        "MPI_Comm_split_type");
  int rank = 0;
  int ranks = 0;
  check(MPI_Comm_rank(host, &rank), "MPI_Comm_rank");
  check(MPI_Comm_size(host, &ranks), "MPI_Comm_size");
  std::vector<int> members(static_cast<std::size_t>(ranks));
  check(MPI_Allgather(&rank_, 1, MPI_INT, members.data(), 1, MPI_INT, host), "MPI_Allgather");
  const std::size_t all = members.size() * sizeof(Bell) + count * sizeof(Word);
  const auto bytes = static_cast<MPI_Aint>(rank == 0 ? all + alignof(Bell) : 0);
  void* memory = nullptr;
  const int made = MPI_Win_allocate_shared(
      bytes, sizeof(Word), MPI_INFO_NULL, host, static_cast<void*>(&memory), &window_);
  const int own = made == MPI_SUCCESS ? 1 : 0;
  int everybody = 0;
  check(MPI_Allreduce(&own, &everybody, 1, MPI_INT, MPI_MIN, host), "MPI_Allreduce");
  bells_.resize(static_cast<std::size_t>(size_));
  if (everybody == 0 && count == 0) {
    window_ = MPI_WIN_NULL;  // of some alone, who could not free it together
    check(MPI_Comm_free(&host), "MPI_Comm_free");
    return;
  }
  check(everybody == 0 ? MPI_ERR_NO_MEM : made, "MPI_Win_allocate_shared");
  MPI_Aint size = 0;
  int unit = 0;
  check(MPI_Win_shared_query(window_, 0, &size, &unit, static_cast<void*>(&memory)),
        "MPI_Win_shared_query");
  auto room = static_cast<std::size_t>(size);
  auto* const bells = static_cast<Bell*>(std::align(alignof(Bell), all, memory, room));
  auto* const words = reinterpret_cast<Word*>(bells + members.size());
  if (rank == 0) {
    std::uninitialized_value_construct_n(bells, members.size());
    std::uninitialized_value_construct_n(words, count);
  }
  world.shared = {words, count};
  check(MPI_Barrier(host), "MPI_Barrier");
  for (std::size_t i = 0; i < members.size(); ++i) {
    bells_[static_cast<std::size_t>(members[i])] = bells + i;
  }
  check(MPI_Comm_free(&host), "MPI_Comm_free");
}

// MPI_Comm_create_group is called by the members alone, and blocks until all of them have.
void MpiTransport::open_group(std::uint32_t id, const std::vector<int>& members) {
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  const auto count = static_cast<int>(members.size());
  check(MPI_Comm_group(comm_, &world), "MPI_Comm_group");
  check(MPI_Group_incl(world, count, members.data(), &group), "MPI_Group_incl");
  Channel channel{.ranks = std::vector<int>(static_cast<std::size_t>(size_), -1)};
  check(MPI_Comm_create_group(comm_, group, kOpeningTag, &channel.comm), "MPI_Comm_create_group");
  check(MPI_Comm_set_errhandler(channel.comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  for (int rank = 0; rank < count; ++rank) {
    channel.ranks[static_cast<std::size_t>(members[static_cast<std::size_t>(rank)])] = rank;
  }
  check(MPI_Group_free(&group), "MPI_Group_free");
  check(MPI_Group_free(&world), "MPI_Group_free");
  channels_.emplace(id, std::move(channel));
}

// A message that is shorter than its receive would leave old bytes behind it; MPI tells of longer
// ones itself.
void MpiTransport::check_sizes() const {
  for (std::size_t i = 0; i < finished_.size(); ++i) {
    const Posted& posted = posted_[static_cast<std::size_t>(finished_[i])];
    if (finished_[i] == 0 || posted.message.way == Message::Way::send) {
      continue;
    }
    int got = 0;
    check(MPI_Get_count(&statuses_[i], MPI_BYTE, &got), "MPI_Get_count");
    if (got != posted.bytes) {
      throw CommError("world rank " + std::to_string(rank_) + ": a message of world rank " +
                      std::to_string(posted.message.peer) + " has " + std::to_string(got) +
                      " bytes where " + std::to_string(posted.bytes) + " are due");
    }
  }
}

bool MpiTransport::progress() {
  finished_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int count = 0;
  check(MPI_Testsome(static_cast<int>(requests_.size()),
                     requests_.data(),
                     &count,
                     finished_.data(),
                     statuses_.data()),
        "MPI_Testsome");
  if (count == MPI_UNDEFINED || count == 0) {
    return false;
  }
  finished_.resize(static_cast<std::size_t>(count));
  check_sizes();
  std::sort(finished_.begin(), finished_.end(), std::greater<>());
  if (finished_.back() == 0) {
    throw CommError(std::string(notice_.data()));
  }
  told_.clear();
  for (const int place : finished_) {
    const auto index = static_cast<std::size_t>(place);
    told_.push_back(std::move(posted_[index]));
    posted_[index] = std::move(posted_.back());
    posted_.pop_back();
    requests_[index] = requests_.back();
    requests_.pop_back();
  }
  for (const Posted& posted : told_) {
    note_end(posted);
    if (posted.parts == nullptr || --*posted.parts == 0) {
      listener_.message_done(posted.message);
    }
  }
  return true;
}

void MpiTransport::announce_failure(const std::string& reason) {
  const std::string text = reason.substr(0, kNoticeBytes - 2);
  const auto count = static_cast<int>(text.size() + 1);
  std::vector<MPI_Request> requests;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != rank_) {
      requests.push_back(MPI_REQUEST_NULL);
      MPI_Isend(text.c_str(),
                count,
                MPI_BYTE,
                rank,
                static_cast<int>(Lane::control),
                comm_,
                &requests.back());
      if (Bell* const bell = bell_of(rank)) {
        bell->ring(Bell::Listener::rank);
        bell->ring(Bell::Listener::engine);
      }
    }
  }
  const auto until = Clock::now() + kNoticeTime;
  int done = 0;
  while (done == 0 && Clock::now() < until) {
    MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    sched_yield();
  }
}

// The ranks meet before they finalize, with sleep between looks: MPI_Finalize polls.
void MpiTransport::close() {
  MPI_Request meeting = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(comm_, &meeting), "MPI_Ibarrier");
  const double until = seconds() + end_seconds_;
  int done = 0;
  while (done == 0) {
    progress();
    check(MPI_Test(&meeting, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done == 0 && seconds() > until) {
      throw CommError("the other ranks do not come to the end; leaving without them");
    }
    if (done == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  check(MPI_Cancel(requests_.data()), "MPI_Cancel");
  check(MPI_Wait(requests_.data(), MPI_STATUS_IGNORE), "MPI_Wait");
  if (window_ != MPI_WIN_NULL) {
    check(MPI_Win_free(&window_), "MPI_Win_free");
  }
  for (auto& [id, channel] : channels_) {
    check(MPI_Comm_free(&channel.comm), "MPI_Comm_free");
  }
  check(MPI_Finalize(), "MPI_Finalize");
}

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(MessageListener& listener, MpiWorld& world) {
  return std::make_unique<MpiTransport>(listener, world);
}

}  // namespace slackline
