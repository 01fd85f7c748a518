#include "core/comm/transport/bell.h"

#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace slackline {

namespace {

using std::chrono::duration_cast;
using std::chrono::nanoseconds;
using std::chrono::seconds;

using Word = std::atomic<std::uint32_t>;
static_assert(sizeof(Word) == sizeof(std::uint32_t) && Word::is_always_lock_free);

// The kernel's own words for it: std::atomic's wait() knows threads of this process alone, and no
// limit of time.
void wake(Word& word, unsigned listeners) {
  syscall(SYS_futex, &word, FUTEX_WAKE_BITSET, INT_MAX, nullptr, nullptr, listeners);
}

unsigned bit_of(Bell::Listener listener) {
  return 1U << static_cast<unsigned>(listener);
}

}  // namespace

// A ring is counted before anybody is looked for, and who listens is counted before the kernel
// compares the rings: so one of the two sees the other.
void Bell::ring(Listener listener) {
  rings_.fetch_add(1, std::memory_order_seq_cst);
  if (listens(listener)) {
    wake(rings_, bit_of(listener));
  }
}

void Bell::ring() {
  rings_.fetch_add(1, std::memory_order_seq_cst);
  if (listens(Listener::rank)) {
    wake(rings_, bit_of(Listener::rank));
  } else if (listens(Listener::engine)) {
    wake(rings_, bit_of(Listener::engine));
  }
}

bool Bell::listens(Listener listener) const {
  return listening_[static_cast<std::size_t>(listener)].load(std::memory_order_seq_cst) > 0;
}

void Bell::wait(Listener listener, std::uint32_t heard, nanoseconds longest) {
  Word& listening = listening_[static_cast<std::size_t>(listener)];
  // FUTEX_WAIT_BITSET takes the time at which the wait ends, by the steady clock.
  const auto until = std::chrono::steady_clock::now().time_since_epoch() + longest;
  const auto whole = duration_cast<seconds>(until);
  const timespec time{.tv_sec = whole.count(),
                      .tv_nsec = duration_cast<nanoseconds>(until - whole).count()};
  listening.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &rings_, FUTEX_WAIT_BITSET, heard, &time, nullptr, bit_of(listener));
  listening.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace slackline
