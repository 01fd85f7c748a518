#include <atomic>
#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <deque>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/emulated_cuda/cuda_runtime.h"

namespace emulated_cuda {

namespace {

namespace context = boost::context;

constexpr std::size_t kStackBytes = std::size_t{64} << 10U;
constexpr unsigned kMostThreads = 1024;  // of a block
constexpr unsigned kMostBlocks = 65535;  // in y and z
constexpr std::byte kPoison{0xFF};

enum class Waits { no, for_block, for_warp };

// To shared memory; made when the thread waits for it, not before.
struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
};

// A thread of the block that runs.
struct Thread {
  context::fiber fiber;
  uint3 index{};
  Waits waits = Waits::no;
  unsigned mask = 0;            // of the warp that it waits for
  std::uint64_t exchanges = 0;  // with its warp, and barriers of it
  std::byte given[2][8] = {};   // in this exchange and in the one before it
  bool done = false;
  std::vector<Copy> copies{};                    // of the group that is open
  std::deque<std::vector<Copy>> groups_begun{};  // oldest first
};

class Block {
 public:
  Block(const cudaLaunchConfig_t& config, const std::function<void()>& kernel, bool backwards)
      : kernel_(&kernel),
        backwards_(backwards),
        threads_(std::size_t{config.blockDim.x} * config.blockDim.y * config.blockDim.z),
        shared_(config.dynamicSmemBytes + kAlignment) {
    std::size_t i = 0;
    for (unsigned z = 0; z < config.blockDim.z; ++z) {
      for (unsigned y = 0; y < config.blockDim.y; ++y) {
        for (unsigned x = 0; x < config.blockDim.x; ++x) {
          threads_[i++].index = {x, y, z};
        }
      }
    }
  }

  void run() {
    std::fill(shared_.begin(), shared_.end(), kPoison);
    arrived_ = 0;
    num_done_ = 0;
    for (std::size_t i = 0; i < threads_.size(); ++i) {
      Thread& thread = threads_[i];
      thread.waits = Waits::no;
      thread.exchanges = 0;
      thread.done = false;
      thread.copies.clear();
      thread.groups_begun.clear();
      thread.fiber = context::fiber(std::allocator_arg, stacks_, [this](context::fiber&& caller) {
        caller_ = std::move(caller);
        try {
          (*kernel_)();
        } catch (const context::detail::forced_unwind&) {
          throw;  // this fiber is being destroyed
        } catch (...) {
          thrown_ = std::current_exception();
        }
        threads_[current_].done = true;
        ++num_done_;
        return std::move(caller_);
      });
    }
    while (num_done_ < threads_.size()) {
      if (!run_those_that_can()) {
        refuse("waits for threads that never come: a barrier or an exchange that not all reach");
      }
    }
  }

  void wait(Waits waits, unsigned mask) {
    Thread& thread = threads_[current_];
    thread.waits = waits;
    thread.mask = mask;
    if (waits == Waits::for_block) {
      ++arrived_;
    } else {
      ++thread.exchanges;
    }
    if (!can_run(current_)) {
      caller_ = std::move(caller_).resume();
    }
    threads_[current_].waits = Waits::no;
  }

  void give(unsigned mask, const void* value, std::size_t bytes) {
    if (!is_in(mask, lane())) {
      refuse("is not in the mask that it exchanges with");
    }
    Thread& thread = threads_[current_];
    std::memcpy(thread.given[(thread.exchanges + 1) % 2], value, bytes);
    wait(Waits::for_warp, mask);
  }

  void take(int from, void* value, std::size_t bytes) {
    const std::size_t other = first_of_warp(current_) + static_cast<std::size_t>(from);
    if (from < 0 || from >= kWarp || other >= threads_.size() ||
        !is_in(threads_[current_].mask, from)) {
      refuse("takes the value of lane " + std::to_string(from) + ", which is not in its mask");
    }
    std::memcpy(value, threads_[other].given[threads_[current_].exchanges % 2], bytes);
  }

  void begin_copy(const Copy& copy) {
    const auto lies_askew = [&](const void* pointer) {
      return reinterpret_cast<std::uintptr_t>(pointer) % copy.bytes != 0;
    };
    if ((copy.bytes != 4 && copy.bytes != 8 && copy.bytes != 16) || lies_askew(copy.to) ||
        lies_askew(copy.from)) {
      refuse("copies " + std::to_string(copy.bytes) +
             " bytes, or from or to where they do not lie");
    }
    threads_[current_].copies.push_back(copy);
  }

  void close_copies() {
    Thread& thread = threads_[current_];
    thread.groups_begun.push_back(std::move(thread.copies));
    thread.copies.clear();
  }

  void make_copies_but(std::size_t newest) {
    std::deque<std::vector<Copy>>& groups = threads_[current_].groups_begun;
    while (groups.size() > newest) {
      for (const Copy& copy : groups.front()) {
        std::memcpy(copy.to, copy.from, copy.bytes);
      }
      groups.pop_front();
    }
  }

  [[nodiscard]] int lane() const { return static_cast<int>(current_ % kWarp); }

  [[nodiscard]] std::byte* shared() {
    const auto address = reinterpret_cast<std::uintptr_t>(shared_.data());
    return shared_.data() + (kAlignment - address % kAlignment) % kAlignment;
  }

 private:
  static constexpr std::size_t kAlignment = 128;

  static std::size_t first_of_warp(std::size_t thread) { return thread / kWarp * kWarp; }

  bool run_those_that_can() {
    bool any = false;
    for (std::size_t i = 0; i < threads_.size(); ++i) {
      const std::size_t thread = backwards_ ? threads_.size() - 1 - i : i;
      if (!threads_[thread].done && can_run(thread)) {
        any = true;
        current_ = thread;
        threadIdx = threads_[thread].index;
        threads_[thread].fiber = std::move(threads_[thread].fiber).resume();
        if (thrown_) {
          std::rethrow_exception(thrown_);
        }
      }
    }
    return any;
  }

  bool can_run(std::size_t index) {
    const Thread& thread = threads_[index];
    if (thread.waits == Waits::for_block) {
      return barrier_is_open();
    }
    return thread.waits == Waits::no || warp_has_come(index);
  }

  // The last to come opens it for all; each passes once.
  bool barrier_is_open() {
    if (arrived_ == threads_.size()) {
      arrived_ = 0;
      for (Thread& thread : threads_) {
        thread.waits = Waits::no;
      }
      return true;
    }
    return false;
  }

  bool warp_has_come(std::size_t index) const {
    const Thread& thread = threads_[index];
    const std::size_t first = first_of_warp(index);
    const std::size_t end = std::min(threads_.size(), first + kWarp);
    for (std::size_t other = first; other < end; ++other) {
      if (is_in(thread.mask, static_cast<int>(other - first)) &&
          threads_[other].exchanges < thread.exchanges) {
        return false;
      }
    }
    return true;
  }

  [[noreturn]] void refuse(const std::string& what) const {
    const auto text = [](const auto& at) {
      return "(" + std::to_string(at.x) + ", " + std::to_string(at.y) + ", " +
             std::to_string(at.z) + ")";
    };
    std::size_t index = current_;
    for (std::size_t i = 0; i < threads_.size(); ++i) {
      if (!threads_[i].done && threads_[i].waits != Waits::no) {
        index = i;
        break;
      }
    }
    throw std::logic_error("emulated CUDA: thread " + text(threads_[index].index) + " of block " +
                           text(blockIdx) + " " + what);
  }

  const std::function<void()>* kernel_;
  bool backwards_;
  std::vector<Thread> threads_;
  std::vector<std::byte> shared_;
  context::pooled_fixedsize_stack stacks_{kStackBytes};
  context::fiber caller_;
  std::size_t current_ = 0;
  std::size_t arrived_ = 0;
  std::size_t num_done_ = 0;
  std::exception_ptr thrown_;
};

thread_local Block* running = nullptr;

struct Running {
  explicit Running(Block& block) { running = &block; }

  ~Running() { running = nullptr; }

  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

Block& block() {
  if (running == nullptr) {
    throw std::logic_error("emulated CUDA: a function of kernels is called outside of one");
  }
  return *running;
}

// Changes from launch to launch and, since most tests make a stream for each case, with the first
// launch from stream to stream too: else the second kernel of an op would always run one way.
bool runs_backwards() {
  static std::atomic<unsigned> num_streams = 0;
  static thread_local bool backwards = num_streams++ % 2 == 0;
  backwards = !backwards;
  return backwards;
}

void run_grid(const cudaLaunchConfig_t& config, const std::function<void()>& kernel) {
  const bool backwards = runs_backwards();
  Block one(config, kernel, backwards);
  const Running scope(one);
  const dim3& grid = config.gridDim;
  ::gridDim = grid;
  ::blockDim = config.blockDim;
  const auto place = [&](unsigned i, unsigned count) { return backwards ? count - 1 - i : i; };
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        ::blockIdx = {place(x, grid.x), place(y, grid.y), place(z, grid.z)};
        one.run();
      }
    }
  }
}

}  // namespace

cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> kernel) {
  const dim3& grid = config.gridDim;
  const std::size_t threads =
      std::size_t{config.blockDim.x} * config.blockDim.y * config.blockDim.z;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || threads == 0 || threads > kMostThreads ||
      grid.x > 0x7fffffffU || grid.y > kMostBlocks || grid.z > kMostBlocks ||
      config.dynamicSmemBytes > kSharedBytes) {
    return cudaErrorInvalidConfiguration;
  }
  enqueue(config.stream, [config, kernel = std::move(kernel)] { run_grid(config, kernel); });
  return cudaSuccess;
}

void block_barrier() {
  block().wait(Waits::for_block, 0);
}

void warp_barrier(unsigned mask) {
  block().wait(Waits::for_warp, mask);
}

void begin_copy(void* to, const void* from, std::size_t bytes) {
  block().begin_copy({to, from, bytes});
}

void close_copies() {
  block().close_copies();
}

void make_copies_but(std::size_t newest) {
  block().make_copies_but(newest);
}

void give(unsigned mask, const void* value, std::size_t bytes) {
  block().give(mask, value, bytes);
}

void take(int lane, void* value, std::size_t bytes) {
  block().take(lane, value, bytes);
}

bool is_in(unsigned mask, int lane) {
  return (mask >> static_cast<unsigned>(lane) & 1U) != 0;
}

int lane() {
  return block().lane();
}

std::byte* dynamic_shared_memory() {
  return block().shared();
}

}  // namespace emulated_cuda
