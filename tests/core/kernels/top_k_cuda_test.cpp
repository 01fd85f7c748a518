#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "core/kernels/top_k.h"
#include "tests/support/catch.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// From this size on a sample is taken, unless nearly half of the elements are kept.
constexpr std::size_t kSampled = 262144;

struct KeptBytes {
  std::vector<std::byte> indices;
  std::vector<std::byte> kept;

  bool operator==(const KeptBytes&) const = default;
};

// Of the values from `begin` on, which need not be aligned, with exactly the scratch asked for.
KeptBytes select_on(Device device, GuardedTensor& values, std::int64_t begin, std::int64_t k) {
  const Tensor part = values.view().rows(begin, values.view().dim(0));
  const Workers workers(2, device);
  const std::size_t scratch_bytes =
      top_k_workspace_bytes(part.num_elements(), static_cast<std::size_t>(k), workers);
  Stream stream(Stream::Options{
      .name = "test", .device = device, .num_threads = 2, .workspace_bytes = scratch_bytes});
  GuardedTensor indices(DType::i32, {k + 1});
  GuardedTensor kept(DType::bf16, {k + 1});
  const Tensor index_words(indices.view().raw(), DType::u32, {k + 1});
  top_k(stream, part, index_words.rows(begin % 2, begin % 2 + k), kept.view().rows(0, k));
  GuardedTensor same_indices(DType::i32, {k});
  const Tensor same_words(same_indices.view().raw(), DType::u32, {k});
  GuardedTensor exact(DType::f32, {k + 1});
  top_k(stream, part, same_words, exact.view().rows(begin % 2, begin % 2 + k));
  stream.synchronize();
  REQUIRE((indices.sentinels_intact() && kept.sentinels_intact()));
  REQUIRE((same_indices.sentinels_intact() && exact.sentinels_intact()));
  KeptBytes bytes{.indices = indices.bytes(), .kept = kept.bytes()};
  for (const GuardedTensor* of_f32 : {&same_indices, &exact}) {
    const std::vector<std::byte> more = of_f32->bytes();
    bytes.kept.insert(bytes.kept.end(), more.begin(), more.end());
  }
  return bytes;
}

void require_as_on_cpu(GuardedTensor& values, std::int64_t begin, std::int64_t k) {
  INFO(k << " of " << values.view().dim(0) << " from " << begin);
  REQUIRE(select_on(Device::cuda, values, begin, k) == select_on(Device::cpu, values, begin, k));
}

// k = 0, 1, a little, what no sample is taken for, n - 1, n.
void require_as_on_cpu(GuardedTensor& values) {
  const std::int64_t n = values.view().dim(0);
  for (const std::int64_t k : {std::int64_t{0}, std::int64_t{1}, n / 100, n / 2, n - 1, n}) {
    require_as_on_cpu(values, 0, k);
  }
}

GuardedTensor filled(std::size_t n, const std::function<float(std::size_t)>& value_of) {
  GuardedTensor values(DType::f32, {static_cast<std::int64_t>(n)});
  float* const to = values.view().data<float>();
  for (std::size_t i = 0; i < n; ++i) {
    to[i] = value_of(i);
  }
  return values;
}

}  // namespace

TEST_CASE("top_k of normal numbers is the same on CUDA and on the CPU") {
  for (const std::int64_t n : {1, 2, 127, 128, 129, 8191, 8192, 8193, 65536, 65537}) {
    GuardedTensor values = random_tensor(DType::f32, {n}, {});
    require_as_on_cpu(values);
  }
}

TEST_CASE("top_k of a sample's candidates is the same on CUDA and on the CPU") {
  constexpr auto kSize = static_cast<std::int64_t>(kSampled);
  for (const std::int64_t n : {kSize - 1, kSize, kSize + 1, kSize + 8191}) {
    GuardedTensor values = random_tensor(DType::f32, {n}, {});
    for (const std::int64_t k : {std::int64_t{1}, std::int64_t{2}, n / 1000, n / 100, n / 3}) {
      require_as_on_cpu(values, 0, k);
    }
  }
}

TEST_CASE("top_k of values that begin anywhere is the same on CUDA and on the CPU") {
  GuardedTensor few = random_tensor(DType::f32, {5003}, {});
  GuardedTensor many = random_tensor(DType::f32, {kSampled + 100}, {});
  for (const std::int64_t begin : {1, 2, 3, 4, 7}) {
    require_as_on_cpu(few, begin, 500);
    require_as_on_cpu(few, begin, 5003 - begin);
    require_as_on_cpu(many, begin, 2600);
  }
}

TEST_CASE("top_k of equal values is the same on CUDA and on the CPU") {
  for (const float value : {0.0F, -0.0F, 1.0F, -kInf, std::nanf("")}) {
    GuardedTensor few = filled(9000, [&](std::size_t /*i*/) { return value; });
    require_as_on_cpu(few);
    GuardedTensor many = filled(kSampled, [&](std::size_t /*i*/) { return value; });
    require_as_on_cpu(many, 0, 2600);
  }
}

TEST_CASE("top_k of many ties on the cut is the same on CUDA and on the CPU") {
  for (const std::size_t n : {std::size_t{9000}, kSampled}) {
    const auto k = static_cast<std::int64_t>(n / 50);
    // Of the largest are a half, as many, or twice as many as are kept: 100, 50 and 25 apart.
    for (const std::size_t apart : {100U, 50U, 25U}) {
      GuardedTensor values = filled(n, [&](std::size_t i) {
        const float sign = i % 3 == 0 ? -1.0F : 1.0F;
        return i % apart == 7 ? sign * 3.0F : sign * static_cast<float>(i % 3);
      });
      require_as_on_cpu(values, 0, k - 1);
      require_as_on_cpu(values, 0, k);
      require_as_on_cpu(values, 0, k + 1);
    }
  }
}

TEST_CASE("top_k of mostly zeros is the same on CUDA and on the CPU") {
  GuardedTensor values = filled(
      kSampled + 5, [](std::size_t i) { return i % 200 == 11 ? static_cast<float>(i) : 0.0F; });
  for (const std::int64_t k : {1000, 1310, 1311, 1312, 5000, 100000}) {
    require_as_on_cpu(values, 0, k);
  }
}

TEST_CASE("top_k of what is not finite is the same on CUDA and on the CPU") {
  for (const std::int64_t n : {std::int64_t{9001}, static_cast<std::int64_t>(kSampled)}) {
    GuardedTensor values = random_tensor(DType::f32, {n}, {});
    float* const elements = values.view().data<float>();
    elements[0] = std::nanf("3");
    elements[n - 1] = -std::nanf("0x7f00");
    elements[n / 2] = kInf;
    elements[n / 3] = -kInf;
    for (const std::int64_t k : {1, 2, 3, 4, 5, 100}) {
      require_as_on_cpu(values, 0, k);
    }
  }
}

}  // namespace slackline::testing
