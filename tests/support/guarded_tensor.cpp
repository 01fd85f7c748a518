#include "tests/support/guarded_tensor.h"

#include <algorithm>
#include <cstring>

#include "core/rng.h"
#include "tests/support/places.h"

namespace slackline::testing {

namespace {

constexpr std::size_t kSentinelBytes = 256;  // four cache lines: beyond any vector store
constexpr std::byte kSentinel{0xA5};
constexpr std::byte kPoison{0xFF};  // NaN in every float type, -1 in integers

template <typename T>
void write(std::span<const double> values, std::byte* to) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    T element{};
    if constexpr (kDTypeOf<T> == DType::bf16) {
      element = BFloat16(static_cast<float>(values[i]));
    } else {
      element = static_cast<T>(values[i]);
    }
    std::memcpy(to + i * sizeof(T), &element, sizeof(T));
  }
}

template <typename T>
std::vector<double> read(const std::byte* from, std::size_t count) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    T element{};
    std::memcpy(&element, from + i * sizeof(T), sizeof(T));
    if constexpr (kDTypeOf<T> == DType::bf16) {
      values[i] = static_cast<float>(element);
    } else {
      values[i] = static_cast<double>(element);
    }
  }
  return values;
}

}  // namespace

GuardedTensor::GuardedTensor(DType dtype, Shape shape)
    : dtype_(dtype),
      shape_(shape),
      num_bytes_(shape.num_elements() * size_of(dtype)),
      memory_(allocate_for_test(num_bytes_ + 2 * kSentinelBytes)) {
  std::ranges::fill(memory(), kSentinel);
  std::ranges::fill(memory().subspan(kSentinelBytes, num_bytes_), kPoison);
}

GuardedTensor::GuardedTensor(DType dtype, Shape shape, std::span<const double> values)
    : GuardedTensor(dtype, shape) {
  set(values);
}

GuardedTensor::GuardedTensor(const GuardedTensor& other)
    : GuardedTensor(other.dtype_, other.shape_) {
  std::ranges::copy(other.memory(), memory().begin());
}

Tensor GuardedTensor::view() {
  return {memory_.get() + kSentinelBytes, dtype_, shape_, test_device()};
}

std::vector<double> GuardedTensor::values() const {
  const std::byte* from = memory().data() + kSentinelBytes;
  const std::size_t count = shape_.num_elements();
  switch (dtype_) {
    case DType::f32:
      return read<float>(from, count);
    case DType::bf16:
      return read<BFloat16>(from, count);
    case DType::i32:
      return read<std::int32_t>(from, count);
    case DType::i64:
      return read<std::int64_t>(from, count);
    case DType::f64:
      return read<double>(from, count);
    case DType::u8:
      return read<std::uint8_t>(from, count);
    default:
      throw Error("no test reads " + std::string(name_of(dtype_)));
  }
}

void GuardedTensor::set(std::span<const double> values) {
  SL_CHECK_EQ(values.size(), shape_.num_elements());
  std::byte* to = memory().data() + kSentinelBytes;
  switch (dtype_) {
    case DType::f32:
      return write<float>(values, to);
    case DType::bf16:
      return write<BFloat16>(values, to);
    case DType::i32:
      return write<std::int32_t>(values, to);
    case DType::i64:
      return write<std::int64_t>(values, to);
    case DType::f64:
      return write<double>(values, to);
    case DType::u8:
      return write<std::uint8_t>(values, to);
    default:
      throw Error("no test writes " + std::string(name_of(dtype_)));
  }
}

void GuardedTensor::fill(double value) {
  set(std::vector<double>(shape_.num_elements(), value));
}

std::vector<std::byte> GuardedTensor::bytes() const {
  const std::span<const std::byte> elements = memory().subspan(kSentinelBytes, num_bytes_);
  return {elements.begin(), elements.end()};
}

bool GuardedTensor::sentinels_intact() const {
  const auto intact = [](std::byte byte) { return byte == kSentinel; };
  return std::ranges::all_of(memory().first(kSentinelBytes), intact) &&
         std::ranges::all_of(memory().subspan(kSentinelBytes + num_bytes_), intact);
}

std::span<std::byte> GuardedTensor::memory() const {
  wait_for_test_device();
  return {memory_.get(), num_bytes_ + 2 * kSentinelBytes};
}

std::vector<double> random_values(std::size_t count, const RandomNumbers& numbers) {
  const std::string chosen = numbers.is_fixed ? "" : test_place("SLACKLINE_TEST_SEED", "");
  const PhiloxKey key = philox_key(numbers.seed, "test" + chosen);
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = numbers.mean + numbers.deviation * normal_pair(key, i / 2)[i % 2];
  }
  return values;
}

GuardedTensor random_tensor(DType dtype, const Shape& shape, const RandomNumbers& numbers) {
  return {dtype, shape, random_values(shape.num_elements(), numbers)};
}

}  // namespace slackline::testing
