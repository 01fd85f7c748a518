#include "tools/bench/device_timer.h"

#include <cstdio>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "core/cuda/cuda_device.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/rng.h"
#include "core/tensor/arena.h"
#include "core/tensor/host_tensor.h"
#include "tools/bench/product_times.h"
#include "tools/bench/timing.h"
#include "tools/record/card_peak.h"

namespace slackline {

DeviceRing::DeviceRing(std::size_t bytes) : memory_("ring", bytes, Backing::cuda) {
  const Shape all{static_cast<std::int64_t>(bytes / sizeof(float))};
  const HostTensor host(memory_.view(DType::f32, all), HostTensor::Contents::undefined);
  const std::span<float> values = host.tensor().span<float>();
  constexpr std::size_t kPattern = std::size_t{1} << 20U;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] =
        i < kPattern ? static_cast<float>(normal_pair({1, 2}, i / 2)[i % 2]) : values[i - kPattern];
  }
  host.write_back();
}

Tensor DeviceRing::take(DType dtype, const Shape& shape) {
  const std::size_t bytes = Arena::aligned_bytes(dtype, shape);
  SL_CHECK(bytes <= memory_.bytes(), std::to_string(bytes) + " bytes");
  used_ = used_ + bytes > memory_.bytes() ? 0 : used_;
  const Tensor tensor = memory_.view(dtype, shape, used_);
  used_ += bytes;
  return tensor;
}

DeviceTimer::DeviceTimer(Options options, DeviceRing& ring)
    : options_(std::move(options)), ring_(&ring) {}

bool DeviceTimer::leaves_out(const std::string& name) const {
  return name.find(options_.only) == std::string::npos;
}

double DeviceTimer::seconds(StreamView stream, const std::function<void()>& op) {
  times_.restart(stream, 0.0);
  const std::size_t begin = times_.mark(stream, 0.0);
  op();
  const std::size_t end = times_.mark(stream, 0.0);
  stream.synchronize();
  return times_.seconds(end) - times_.seconds(begin);
}

double DeviceTimer::median_seconds(StreamView stream, const std::function<void()>& op) {
  std::vector<double> times(static_cast<std::size_t>(options_.times));
  op();
  for (double& time : times) {
    time = seconds(stream, op);
  }
  return spread(times).median;
}

void DeviceTimer::against_copy(StreamView stream,
                               const std::string& name,
                               double bytes,
                               const std::function<void()>& op) {
  if (leaves_out(name)) {
    return;
  }
  const Shape copied{static_cast<std::int64_t>(bytes / 2)};
  std::vector<double> times;
  std::vector<double> shares;
  op();
  for (int pair = 0; pair < options_.times; ++pair) {
    const double copy = seconds(stream, [&] {
      cast(stream, ring_->take(DType::u8, copied), ring_->take(DType::u8, copied));
    });
    times.push_back(seconds(stream, op));
    shares.push_back(copy / times.back());
  }
  const double median = spread(times).median;
  fmt::print("{:<44} {:9.4f} ms {:8.1f} GB/s {:6.2f} of a copy's speed ({:.2f} .. {:.2f})\n",
             name,
             1e3 * median,
             1e-9 * bytes / median,
             spread(shares).median,
             spread(shares).low,
             spread(shares).high);
  std::fflush(stdout);
}

void DeviceTimer::against_peak(StreamView stream,
                               const std::string& name,
                               DType dtype,
                               double flops,
                               const std::function<void()>& op) {
  if (leaves_out(name)) {
    return;
  }
  const double median = median_seconds(stream, op);
  const double peak = dense_peak_flops(cuda::device_text(), dtype);
  const std::string share =
      peak > 0.0 ? fmt::format("{:5.1f} % of the dense peak", 100 * flops / median / peak)
                 : "the card's peak is not known";
  fmt::print(
      "{:<44} {:9.4f} ms {:8.1f} TFLOP/s {}\n", name, 1e3 * median, 1e-12 * flops / median, share);
  std::fflush(stdout);
}

void DeviceTimer::against_suggestions(StreamView stream,
                                      const std::string& name,
                                      double flops,
                                      const std::function<MatmulArgs()>& make_args) {
  constexpr int kSuggestions = 32;
  if (leaves_out(name)) {
    return;
  }
  const std::optional<cuda::ProductTimes> times =
      cuda::product_times(stream, make_args(), kSuggestions);
  if (!times) {
    return;
  }
  fmt::print(
      "{:<44} {:9.4f} ms {:8.1f} TFLOP/s {:6.2f} of the best of {}'s speed (the first {:.2f})\n",
      name,
      1e3 * times->ours,
      1e-12 * flops / times->ours,
      times->best / times->ours,
      times->num_suggestions,
      times->best / times->first);
  std::fflush(stdout);
}

}  // namespace slackline
