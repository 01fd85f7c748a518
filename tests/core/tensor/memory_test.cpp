#include <cstring>

#include "core/tensor/arena.h"
#include "core/tensor/buffer.h"
#include "tests/support/catch.h"

namespace slackline {

TEST_CASE("an arena hands out aligned, disjoint memory and takes it back in order") {
  Arena arena("test", 4096);
  const Tensor first = arena.allocate(DType::f32, {3, 5});
  const std::size_t mark = arena.mark();
  {
    ArenaScope scope(arena);
    const Tensor second = scope.allocate(DType::bf16, {7});
    REQUIRE(reinterpret_cast<std::uintptr_t>(second.raw()) % Arena::kAlignment == 0);
    REQUIRE(second.raw() >= static_cast<std::byte*>(first.raw()) + first.bytes());
    REQUIRE(arena.mark() > mark);
  }
  REQUIRE(arena.mark() == mark);
  REQUIRE(arena.high_water() ==
          Arena::aligned_bytes(DType::f32, {3, 5}) + Arena::aligned_bytes(DType::bf16, {7}));
}

TEST_CASE("an arena that is full says its name and what was asked") {
  Arena arena("activations", 128);
  REQUIRE_THROWS_WITH(arena.allocate(DType::f32, {1000}),
                      Catch::Contains("activations") && Catch::Contains("4032"));
}

TEST_CASE("an untouched buffer may be larger than memory") {
  constexpr std::size_t kTerabyte = std::size_t{1} << 40U;
  const Buffer buffer("activations", kTerabyte, Backing::untouched);
  REQUIRE(buffer.bytes() == kTerabyte);
  const Tensor last = buffer.view(DType::f32, {1}, kTerabyte - sizeof(float));
  *last.data<float>() = 3.0F;
  REQUIRE(*last.data<float>() == 3.0F);
}

TEST_CASE("rows and reshapes view the same memory, and checks catch what does not fit") {
  const Buffer buffer = make_buffer("weights", DType::f32, {4, 6});
  const Tensor tensor = buffer.view(DType::f32, {4, 6});
  REQUIRE(tensor.rows(1, 3).shape() == Shape{2, 6});
  REQUIRE(tensor.rows(1, 3).data<float>() == tensor.data<float>() + 6);
  REQUIRE(tensor.reshaped({24}).num_elements() == 24);
  REQUIRE_THROWS_AS(tensor.reshaped({5}), Error);
  REQUIRE_THROWS_AS(tensor.rows(2, 5), Error);
  REQUIRE_THROWS_AS(tensor.data<BFloat16>(), Error);
  REQUIRE_THROWS_AS(buffer.view(DType::f32, {25}), Error);
}

TEST_CASE("bfloat16 rounds to nearest even and keeps NaN and infinity") {
  REQUIRE(static_cast<float>(BFloat16(1.0F)) == 1.0F);
  REQUIRE(static_cast<float>(BFloat16(1.00390625F)) == 1.0F);       // tie, down to even
  REQUIRE(static_cast<float>(BFloat16(1.01171875F)) == 1.015625F);  // tie, up to even
  REQUIRE(std::isnan(static_cast<float>(BFloat16(std::nanf("")))));
  REQUIRE(std::isinf(static_cast<float>(BFloat16(INFINITY))));
  REQUIRE(std::isinf(static_cast<float>(BFloat16(3.4e38F))));
}

}  // namespace slackline
