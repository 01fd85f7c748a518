// The low-rank codec over four ranks against PyTorch's PowerSGD hook, step by step with error
// feedback and warm start; tests/reference/powersgd_golden.py makes the file and names its tensors.

#include <algorithm>
#include <string>

#include "core/tensor/safetensors.h"
#include "tests/compress/low_rank_messages.h"
#include "tests/support/catch.h"
#include "tests/support/file_tensor.h"
#include "tests/support/places.h"

namespace slackline::testing {

namespace {

constexpr std::size_t kRanks = 4;
constexpr std::size_t kSteps = 5;

const std::vector<CodecPart> kGoldenParts = {{.name = "square", .shape = {24, 20}},
                                             {.name = "wide", .shape = {9, 33}},
                                             {.name = "tiny", .shape = {3, 5}}};

class Golden {
 public:
  // The `index`-th matrix of a tensor whose first dimensions count.
  [[nodiscard]] Matrix matrix(const std::string& name, std::size_t part, std::size_t index) const {
    const MatrixShape& shape = kGoldenParts[part].shape;
    const float* first = file_tensor(file_, name + "/" + kGoldenParts[part].name).data<float>() +
                         index * shape.num_elements();
    return {static_cast<std::size_t>(shape.rows),
            static_cast<std::size_t>(shape.columns),
            {first, first + shape.num_elements()}};
  }

  [[nodiscard]] Message gradients(std::size_t step, std::size_t rank) const {
    Message message(kGoldenParts);
    for (std::size_t m = 0; m < kGoldenParts.size(); ++m) {
      message.tensor(m).set(matrix("input", m, step * kRanks + rank).values);
    }
    return message;
  }

  // Puts the hook's first right factors in the place of the codec's own.
  void start(LowRankEnd& end, const std::string& prefix) const {
    for (const CodecState& state : end.codec->state()) {
      const Tensor golden = file_tensor(file_, prefix + "/right/" + state.part);
      REQUIRE(golden.shape() == state.data.shape());
      const HostTensor right(state.data, HostTensor::Contents::undefined);
      std::ranges::copy(golden.span<float>(), right.tensor().span<float>().begin());
      right.write_back();
    }
  }

 private:
  SafetensorsFile file_{test_place("SLACKLINE_SOURCE", SL_SOURCE_DIR) +
                        "/tests/golden/powersgd/hook.safetensors"};
};

}  // namespace

TEST_CASE("five steps of low_rank over four ranks give the sums of PyTorch's PowerSGD hook") {
  const Golden golden;
  for (const Orthogonalization method :
       {Orthogonalization::blocked, Orthogonalization::gram_schmidt}) {
    for (const int rank : {1, 2, 4}) {
      const std::string prefix = "rank_" + std::to_string(rank);
      const auto ends = low_rank_ends(kRanks, low_rank(rank, DType::f32, method), kGoldenParts);
      for (const auto& end : ends) {
        golden.start(*end, prefix);
      }
      for (std::size_t step = 0; step < kSteps; ++step) {
        std::vector<Message> values;
        for (std::size_t r = 0; r < kRanks; ++r) {
          values.push_back(golden.gradients(step, r));
        }
        sum_message(ends, values);
        for (std::size_t m = 0; m < kGoldenParts.size(); ++m) {
          INFO(prefix << ", step " << step << ", " << kGoldenParts[m].name);
          // Both in fp32: some 1e-7 of rounding a step, which the residual carries on and a right
          // factor that is not made orthonormal magnifies by its condition, some ten.
          CHECK(relative_distance(matrix_of(values[0], kGoldenParts, m),
                                  golden.matrix(prefix + "/sum", m, step)) < 1e-5);
        }
      }
    }
  }
}

}  // namespace slackline::testing
