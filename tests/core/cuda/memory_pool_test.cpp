#include "core/cuda/memory_pool.h"

#include <array>
#include <map>
#include <optional>
#include <random>
#include <thread>

#include "core/cuda/cuda_device.h"
#include "core/cuda/cuda_memory.h"
#include "core/tensor/buffer.h"
#include "core/threads/worker.h"
#include "tests/support/catch.h"

namespace slackline::cuda {

namespace {

constexpr std::size_t kUnit = MemoryPool::kAlignment;
constexpr std::size_t kMoreThanThereIs = std::size_t{1} << 50U;

}  // namespace

TEST_CASE("a pool cuts pieces from what is reserved and fills the smallest gap that fits") {
  MemoryPool pool;
  REQUIRE(pool.reserve(10 * kUnit));
  std::byte* const first = pool.take(2 * kUnit - 1);
  std::byte* const second = pool.take(4 * kUnit);
  std::byte* const third = pool.take(1);
  REQUIRE(reinterpret_cast<std::uintptr_t>(first) % kUnit == 0);
  REQUIRE(second == first + 2 * kUnit);
  REQUIRE(third == second + 4 * kUnit);
  pool.give_back(second);
  REQUIRE(pool.take(3 * kUnit) == third + kUnit);  // of gaps of 4 and 3
  REQUIRE(pool.take(3 * kUnit) == second);
  REQUIRE(pool.use().beyond == 0);
  REQUIRE(pool.use().pieces == 9 * kUnit);
  REQUIRE(pool.use().left == kUnit);
}

TEST_CASE("gaps of a pool join with their neighbours on both sides") {
  MemoryPool pool;
  REQUIRE(pool.reserve(4 * kUnit));
  const std::array pieces = {
      pool.take(kUnit), pool.take(kUnit), pool.take(kUnit), pool.take(kUnit)};
  for (const std::size_t i : {0, 2, 3, 1}) {
    pool.give_back(pieces[i]);
  }
  REQUIRE(pool.take(4 * kUnit) == pieces.front());
  REQUIRE(pool.use().beyond == 0);
}

TEST_CASE("pieces of a pool never overlap, in whatever order they come and go") {
  MemoryPool pool;
  constexpr std::size_t kReserved = 200 * kUnit;
  REQUIRE(pool.reserve(kReserved));
  std::mt19937 random(7);
  std::map<std::byte*, std::size_t> held;
  for (int turn = 0; turn < 3000; ++turn) {
    const bool takes = held.size() < 5 || (held.size() < 60 && random() % 2 == 0);
    if (takes) {
      const std::size_t bytes = 1 + random() % (8 * kUnit);
      std::byte* const piece = pool.take(bytes);
      REQUIRE(piece != nullptr);
      const auto after = held.lower_bound(piece);
      REQUIRE((after == held.end() || piece + bytes <= after->first));
      REQUIRE(
          (after == held.begin() || std::prev(after)->first + std::prev(after)->second <= piece));
      held.emplace(piece, bytes);
    } else {
      const auto gone =
          std::next(held.begin(), static_cast<std::ptrdiff_t>(random() % held.size()));
      pool.give_back(gone->first);
      held.erase(gone);
    }
  }
  REQUIRE(pool.use().beyond > 0);  // 60 pieces of 4 units on average are more than there are
  for (const auto& [piece, bytes] : held) {
    pool.give_back(piece);
  }
  REQUIRE(pool.use().pieces == 0);
  REQUIRE(pool.use().left == kReserved);
  const std::size_t beyond = pool.use().beyond;
  REQUIRE(pool.take(kReserved) != nullptr);
  REQUIRE(pool.use().beyond == beyond);
}

TEST_CASE("what a pool has no room for comes from the device, and goes back there") {
  MemoryPool pool;
  REQUIRE(pool.reserve(kUnit));
  std::byte* const apart = pool.take(3 * kUnit);
  REQUIRE(apart != nullptr);
  REQUIRE(pool.use().beyond == 3 * kUnit);
  REQUIRE(pool.use().left == kUnit);
  pool.give_back(apart);
  REQUIRE(pool.use().pieces == 0);
  pool.give_back(pool.take(2 * kUnit));
  REQUIRE(pool.use().beyond == 3 * kUnit);  // the first did not stay
}

TEST_CASE("a pool refuses what the device has not, and goes on") {
  MemoryPool pool;
  REQUIRE_FALSE(pool.reserve(kMoreThanThereIs));
  REQUIRE(pool.use().reserved == 0);
  REQUIRE(pool.reserve(kUnit));
  REQUIRE(pool.take(kMoreThanThereIs) == nullptr);
  REQUIRE(pool.take(kUnit) != nullptr);
}

TEST_CASE("buffers of a rank and of its threads are of its pool, whoever ends them") {
  const std::size_t before = pool_of_thread()->use().pieces;
  std::optional<Buffer> kept;
  std::thread rank([&] {
    use_device(0);
    REQUIRE(pool_of_thread()->reserve(8 * kUnit));
    Buffer own("own", kUnit, Backing::cuda);
    Worker worker;
    worker.submit([&] { kept.emplace("of a worker", 2 * kUnit, Backing::cuda); });
    worker.finish();
    REQUIRE(pool_of_thread()->use().pieces == 3 * kUnit);
    REQUIRE(pool_of_thread()->use().beyond == 0);
  });
  rank.join();
  kept->fill_zero();  // the rank has gone, its pool has not
  REQUIRE(pool_of_thread()->use().pieces == before);
  kept.reset();
  REQUIRE(pool_of_thread()->use().pieces == before);
}

TEST_CASE("a buffer that the device has no memory for says its name and what is held") {
  const Buffer weights("weights", kUnit, Backing::cuda);
  REQUIRE_THROWS_WITH(Buffer("activations", kMoreThanThereIs, Backing::cuda),
                      Catch::Contains("out of device memory for buffer 'activations' of") &&
                          Catch::Contains("Held:\n") && Catch::Contains("weights"));
}

}  // namespace slackline::cuda
