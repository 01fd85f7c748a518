#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "compress/kernels/sparse/top_k.h"
#include "tests/support/catch.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// From this size on a sample is taken, unless nearly half of the elements are kept.
constexpr std::size_t kSampled = 262144;

struct Case {
  std::int64_t begin = 0;  // the first value, which need not be aligned
  std::int64_t k = 0;
  DType dtype = DType::f32;
};

// Bytes of the indices and of what is kept, with exactly the scratch asked for.
std::vector<std::byte> select_on(Device device, GuardedTensor& values, const Case& test) {
  const Tensor part = values.view().rows(test.begin, values.view().dim(0));
  const std::size_t scratch_bytes = top_k_workspace_bytes(
      part.num_elements(), static_cast<std::size_t>(test.k), Workers(2, device));
  Stream stream(Stream::Options{
      .name = "test", .device = device, .num_threads = 2, .workspace_bytes = scratch_bytes});
  const std::int64_t first = test.begin % 2;  // of the results' memory
  GuardedTensor indices(DType::i32, {first + test.k});
  GuardedTensor kept(test.dtype, {first + test.k});
  const Tensor words(indices.view().raw(), DType::u32, {first + test.k});
  top_k(stream, part, words.rows(first, first + test.k), kept.view().rows(first, first + test.k));
  stream.synchronize();
  REQUIRE((indices.sentinels_intact() && kept.sentinels_intact()));
  std::vector<std::byte> bytes = indices.bytes();
  const std::vector<std::byte> bytes_kept = kept.bytes();
  bytes.insert(bytes.end(), bytes_kept.begin(), bytes_kept.end());
  return bytes;
}

void require_as_on_cpu(GuardedTensor& values, const Case& test) {
  INFO(test.k << " of " << values.view().dim(0) << " from " << test.begin);
  REQUIRE(select_on(Device::cuda, values, test) == select_on(Device::cpu, values, test));
}

// k = 0, 1, a little, what no sample is taken for, n - 1, n.
void require_as_on_cpu(GuardedTensor& values) {
  const std::int64_t n = values.view().dim(0);
  for (const std::int64_t k : {std::int64_t{0}, std::int64_t{1}, n / 100, n / 2, n - 1, n}) {
    require_as_on_cpu(values, {.k = k});
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
  for (const std::int64_t n : {1, 2, 1023, 1024, 1025, 8191, 8192, 8193, 65537}) {
    GuardedTensor values = random_tensor(DType::f32, {n}, {});
    require_as_on_cpu(values);
  }
}

TEST_CASE("top_k of a sample's candidates is the same on CUDA and on the CPU") {
  constexpr auto kSize = static_cast<std::int64_t>(kSampled);
  for (const std::int64_t n : {kSize - 1, kSize, kSize + 8191}) {
    GuardedTensor values = random_tensor(DType::f32, {n}, {});
    for (const std::int64_t k : {std::int64_t{1}, n / 1000, n / 100, n / 3}) {
      require_as_on_cpu(values, {.k = k});
    }
  }
}

TEST_CASE("top_k of values that begin anywhere is the same on CUDA and on the CPU") {
  GuardedTensor few = random_tensor(DType::f32, {5003}, {});
  GuardedTensor many = random_tensor(DType::f32, {kSampled + 100}, {});
  for (const std::int64_t begin : {1, 2, 3, 4}) {
    require_as_on_cpu(few, {.begin = begin, .k = 500});
    require_as_on_cpu(few, {.begin = begin, .k = 5003 - begin});
    require_as_on_cpu(many, {.begin = begin, .k = 2600, .dtype = DType::bf16});
  }
}

TEST_CASE("top_k of equal values is the same on CUDA and on the CPU") {
  for (const float value : {0.0F, -0.0F, 1.0F, -kInf, std::nanf("")}) {
    GuardedTensor few = filled(9000, [&](std::size_t /*i*/) { return value; });
    require_as_on_cpu(few);
    GuardedTensor many = filled(kSampled, [&](std::size_t /*i*/) { return value; });
    require_as_on_cpu(many, {.k = 2600});
  }
}

TEST_CASE("top_k of many ties on the cut is the same on CUDA and on the CPU") {
  for (const std::size_t n : {std::size_t{9000}, kSampled}) {
    const auto k = static_cast<std::int64_t>(n / 50);
    // The largest are half as many, as many, or twice as many as are kept: 100, 50 and 25 apart.
    for (const std::size_t apart : {100U, 50U, 25U}) {
      GuardedTensor values = filled(n, [&](std::size_t i) {
        const float sign = i % 3 == 0 ? -1.0F : 1.0F;
        return i % apart == 7 ? sign * 3.0F : sign * static_cast<float>(i % 3);
      });
      require_as_on_cpu(values, {.k = k - 1});
      require_as_on_cpu(values, {.k = k});
      require_as_on_cpu(values, {.k = k + 1});
    }
  }
}

TEST_CASE("top_k of mostly zeros is the same on CUDA and on the CPU") {
  GuardedTensor values = filled(
      kSampled + 5, [](std::size_t i) { return i % 200 == 11 ? static_cast<float>(i) : 0.0F; });
  for (const std::int64_t k : {1000, 1310, 1311, 1312, 5000, 100000}) {
    require_as_on_cpu(values, {.k = k});
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
    for (const std::int64_t k : {1, 3, 4, 100}) {
      require_as_on_cpu(values, {.k = k});
      require_as_on_cpu(values, {.k = k, .dtype = DType::bf16});
    }
  }
}

}  // namespace slackline::testing
