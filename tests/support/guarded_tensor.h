#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/tensor/tensor.h"
#include "tests/support/test_device.h"

namespace slackline::testing {

// A tensor for tests of ops on test_device() that owns its memory, aligned to cache lines. Before
// and after its elements stand sentinels; a fresh one is poisoned, so that an op that forgets an
// element is seen: floats read as NaN.
class GuardedTensor {
 public:
  GuardedTensor(DType dtype, Shape shape);

  // Rounded to the element type. REQUIRES: as many values as elements.
  GuardedTensor(DType dtype, Shape shape, std::span<const double> values);

  GuardedTensor(const GuardedTensor& other);
  GuardedTensor(GuardedTensor&&) = default;
  GuardedTensor& operator=(const GuardedTensor&) = delete;
  GuardedTensor& operator=(GuardedTensor&&) = default;
  ~GuardedTensor() = default;

  [[nodiscard]] Tensor view();

  operator Tensor() { return view(); }  // NOLINT(google-explicit-constructor): reads as its tensor

  // The elements as they are stored: exact.
  [[nodiscard]] std::vector<double> values() const;
  void set(std::span<const double> values);
  void fill(double value);

  // The bytes of the elements, to compare bit for bit.
  [[nodiscard]] std::vector<std::byte> bytes() const;

  [[nodiscard]] bool sentinels_intact() const;

 private:
  struct ReleaseOfTest {
    void operator()(std::byte* memory) const { release_of_test(memory); }
  };

  // Waits for ops that may be at work on it.
  [[nodiscard]] std::span<std::byte> memory() const;

  DType dtype_;
  Shape shape_;
  std::size_t num_bytes_;
  std::unique_ptr<std::byte, ReleaseOfTest> memory_;  // sentinels, elements, sentinels
};

// Normal numbers with this deviation, the same for the same seed and SLACKLINE_TEST_SEED, a number
// of the environment.
struct RandomNumbers {
  std::uint64_t seed = 1;
  double deviation = 1.0;
  double mean = 0.0;
  bool is_fixed = false;  // whatever the environment says
};

[[nodiscard]] GuardedTensor random_tensor(DType dtype,
                                          const Shape& shape,
                                          const RandomNumbers& numbers);
[[nodiscard]] std::vector<double> random_values(std::size_t count, const RandomNumbers& numbers);

}  // namespace slackline::testing
