#include "tools/record/card_peak.h"

#include "tests/support/catch.h"
#include "tools/record/metrics.h"

namespace slackline {

TEST_CASE("a card is found by the driver's name for it, the longer name first") {
  CHECK(dense_peak_flops("NVIDIA H200, 132 multiprocessors, 139 GiB", DType::bf16) == 989e12);
  CHECK(dense_peak_flops("NVIDIA H200 NVL", DType::bf16) == 835e12);
  CHECK(dense_peak_flops("NVIDIA H100 PCIe", DType::f32) == 51e12);
  CHECK(dense_peak_flops("NVIDIA A100-SXM4-80GB", DType::f32) == 19.5e12);
  CHECK(dense_peak_flops("emulated CUDA device", DType::bf16) == 0.0);
  CHECK(peak_bytes_per_second("NVIDIA A100-SXM4-40GB") == 1.555e12);
  CHECK(peak_bytes_per_second("NVIDIA A100-SXM4-80GB") == 2.039e12);
  CHECK(peak_bytes_per_second("NVIDIA A100 80GB PCIe") == 1.935e12);
  CHECK(peak_bytes_per_second("emulated CUDA device") == 0.0);
}

TEST_CASE("a step's line has the share of the card's peak, or says that it is not known") {
  const StepRecord record{.step = 1, .tokens = 1000, .step_seconds = 0.5};
  const auto line = [&](std::optional<double> peak) {
    return console_line(record, {.steps = 2, .flops_per_token = 1e9, .peak_flops = peak});
  };
  CHECK_THAT(line(8e12), Catch::Contains("2.000 TFLOP/s, MFU 25.0 % |"));
  CHECK_THAT(line(0.0), Catch::Contains("2.000 TFLOP/s, MFU n/a |"));
  CHECK_THAT(line(std::nullopt), Catch::Contains("2.000 TFLOP/s |"));
}

}  // namespace slackline
