// Times the optimizer (gradient norm, clip, AdamW) over the parameters of GPT-2 124M against the
// memory traffic it cannot avoid, measured in the same run and interleaved with it:
//   one pass that reads the gradients (4 bytes a parameter), then
//   one pass that reads weights, gradients and both moments and writes all but the gradients
//   (28 bytes), and a bf16 array where the optimizer keeps copies (2 more),
// over buffers of the same sizes, with the same threads, prefetch and stores, and one addition
// per element. 1.1 is the limit the project sets itself for the ratio.
// Then AdamW alone over a few tensors that stay in the cache, as often as the parameters need it:
// an update that is hidden behind products saves at most what it takes beyond that.
//
//   adamw_bench [--pairs 9] [--threads N]

#include <cmath>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "core/kernels/parallel_ranges.h"
#include "core/kernels/simd.h"
#include "core/kernels/update/adamw.h"
#include "core/tensor/arena.h"
#include "model/parameter_table.h"
#include "optim/adamw_optimizer.h"
#include "tools/bench/timing.h"
#include "tools/cli/command_line.h"

namespace slackline {

namespace {

namespace hn = simd::hn;

constexpr std::size_t kElementsPerTask = 65536;
constexpr std::size_t kPrefetchedElements = 512;
constexpr ModelConfig kGpt2{
    .layers = 12, .hidden = 768, .heads = 12, .sequence = 1024, .vocab = 50257, .ffn = 3072};

enum class Copies { none, bf16 };

// What the stream bound and the optimizer each have of their own, filled and resident.
struct Arrays {
  Arrays(std::size_t elements, Copies copies)
      : weight(make_filled("weight", elements)),
        gradient(make_filled("gradient", elements)),
        copy("copies", copies == Copies::bf16 ? elements * sizeof(BFloat16) : 0) {
    copy.fill_zero();
  }

  static Buffer make_filled(const std::string& name, std::size_t elements) {
    Buffer buffer(name, elements * sizeof(float));
    float* values = buffer.view(DType::f32, {static_cast<std::int64_t>(elements)}).data<float>();
    for (std::size_t i = 0; i < elements; ++i) {
      values[i] = 1e-3F * static_cast<float>(i % 1024);
    }
    return buffer;
  }

  Buffer weight;
  Buffer gradient;
  Buffer copy;
};

std::size_t total_elements(const std::vector<ParameterSpec>& specs) {
  std::size_t bytes = 0;
  for (const ParameterSpec& spec : specs) {
    bytes += Arena::aligned_bytes(DType::f32, spec.shape);
  }
  return bytes / sizeof(float);
}

// The unavoidable traffic, over arrays laid out as the optimizer's.
class StreamBound {
 public:
  StreamBound(std::size_t elements, Copies copies)
      : elements_(elements),
        arrays_(elements, copies),
        m_(Arrays::make_filled("m", elements)),
        v_(Arrays::make_filled("v", elements)) {}

  void run(StreamView stream) {
    read_gradients(stream);
    const auto shape = Shape{static_cast<std::int64_t>(elements_)};
    float* w = arrays_.weight.view(DType::f32, shape).data<float>();
    const float* g = arrays_.gradient.view(DType::f32, shape).data<float>();
    float* m = m_.view(DType::f32, shape).data<float>();
    float* v = v_.view(DType::f32, shape).data<float>();
    BFloat16* copy =
        arrays_.copy.bytes() > 0 ? arrays_.copy.view(DType::bf16, shape).data<BFloat16>() : nullptr;
    parallel_ranges(stream, elements_, kElementsPerTask, [=](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; i += simd::kLanes) {
        hwy::Prefetch(w + i + kPrefetchedElements);
        hwy::Prefetch(g + i + kPrefetchedElements);
        hwy::Prefetch(m + i + kPrefetchedElements);
        hwy::Prefetch(v + i + kPrefetchedElements);
        const simd::Floats gradient = simd::load(g + i);
        const simd::Floats weight = hn::Add(simd::load(w + i), gradient);
        simd::store(hn::Add(simd::load(m + i), gradient), m + i);
        simd::store(hn::Add(simd::load(v + i), gradient), v + i);
        simd::store(weight, w + i);
        if (copy != nullptr) {
          hn::Stream(simd::narrow(weight), simd::kHalfWords, &copy[i].bits);
        }
      }
      hwy::FlushStream();
    });
  }

 private:
  void read_gradients(StreamView stream) {
    const float* g =
        arrays_.gradient.view(DType::f32, {static_cast<std::int64_t>(elements_)}).data<float>();
    sums_.assign((elements_ + kElementsPerTask - 1) / kElementsPerTask, 0.0F);
    parallel_ranges(stream, elements_, kElementsPerTask, [&](std::size_t begin, std::size_t end) {
      simd::Floats sums[2] = {simd::zero(), simd::zero()};
      for (std::size_t i = begin; i < end; i += simd::kLanes) {
        hwy::Prefetch(g + i + kPrefetchedElements);
        simd::Floats& sum = sums[i / simd::kLanes % 2];
        sum = hn::Add(sum, simd::load(g + i));
      }
      sums_[begin / kElementsPerTask] = simd::sum_lanes(hn::Add(sums[0], sums[1]));
    });
  }

  std::size_t elements_;
  Arrays arrays_;
  Buffer m_;
  Buffer v_;
  std::vector<float> sums_;
};

std::vector<OptimizedTensor> optimized_tensors(const std::vector<ParameterSpec>& specs,
                                               const Arrays& arrays) {
  std::vector<OptimizedTensor> tensors;
  std::size_t offset = 0;
  for (const ParameterSpec& spec : specs) {
    OptimizedTensor tensor{.name = spec.name,
                           .weight = arrays.weight.view(DType::f32, spec.shape, offset),
                           .gradient = arrays.gradient.view(DType::f32, spec.shape, offset),
                           .decay = decays(spec.role, false) ? WeightDecay::yes : WeightDecay::no};
    if (arrays.copy.bytes() > 0) {
      tensor.weight_copy = arrays.copy.view(DType::bf16, spec.shape, offset / 2);
    }
    tensors.push_back(tensor);
    offset += Arena::aligned_bytes(DType::f32, spec.shape);
  }
  return tensors;
}

void compare(Copies copies, int num_pairs, int num_threads) {
  Stream stream({.name = "bench", .num_threads = num_threads});
  const std::vector<ParameterSpec> specs = parameter_table(kGpt2);
  const std::size_t elements = total_elements(specs);
  StreamBound bound(elements, copies);
  const Arrays arrays(elements, copies);
  AdamwOptimizer optimizer(optimized_tensors(specs, arrays), {});
  const auto update = [&] {
    const std::vector<double> squares = optimizer.squared_norms(stream);
    optimizer.step(stream, 1e-4, std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0)));
  };
  bound.run(stream);
  update();
  std::vector<double> bound_seconds;
  std::vector<double> update_seconds;
  std::vector<double> ratios;
  for (int pair = 0; pair < num_pairs; ++pair) {
    bound_seconds.push_back(seconds_of([&] { bound.run(stream); }));
    update_seconds.push_back(seconds_of(update));
    ratios.push_back(update_seconds.back() / bound_seconds.back());
  }
  const int bytes = copies == Copies::bf16 ? 34 : 32;
  const Spread ratio = spread(ratios);
  fmt::print(
      "{} B a parameter  bound {:6.1f} ms  {:5.1f} GB/s   norm + clip + AdamW {:6.1f} ms   "
      "ratio {:.3f} ({:.3f} .. {:.3f}) of {} pairs\n",
      bytes,
      1e3 * spread(bound_seconds).median,
      1e-9 * bytes * static_cast<double>(elements) / spread(bound_seconds).median,
      1e3 * spread(update_seconds).median,
      ratio.median,
      ratio.low,
      ratio.high,
      num_pairs);
}

// Seconds of AdamW over so many elements if memory took no time.
double arithmetic_seconds(std::size_t elements, int num_threads) {
  constexpr std::size_t kInCache = 8192;  // 128 KiB of the four streams
  Stream stream({.name = "bench", .num_threads = 1});
  const Shape shape{static_cast<std::int64_t>(kInCache)};
  const Arrays arrays(kInCache, Copies::none);
  const Buffer m = Arrays::make_filled("m", kInCache);
  const Buffer v = Arrays::make_filled("v", kInCache);
  const AdamwUpdate update{{.weight = arrays.weight.view(DType::f32, shape),
                            .gradient = arrays.gradient.view(DType::f32, shape),
                            .m = m.view(DType::f32, shape),
                            .v = v.view(DType::f32, shape)},
                           {.lr = 1e-4}};
  const double seconds = seconds_of([&] {
    for (std::size_t done = 0; done < elements; done += kInCache) {
      adamw(stream, {&update, 1});
    }
  });
  return seconds / num_threads;
}

void print_arithmetic(int num_pairs, int num_threads) {
  const std::size_t elements = total_elements(parameter_table(kGpt2));
  std::vector<double> seconds;
  seconds.reserve(static_cast<std::size_t>(num_pairs));
  for (int i = 0; i < num_pairs; ++i) {
    seconds.push_back(arithmetic_seconds(elements, num_threads));
  }
  fmt::print("AdamW in the cache {:6.1f} ms ({:.1f} .. {:.1f})\n",
             1e3 * spread(seconds).median,
             1e3 * spread(seconds).low,
             1e3 * spread(seconds).high);
}

int run(int argc, char** argv) {
  int num_pairs = 9;
  int num_threads = default_num_threads();
  CommandLine line("Times norm, clip and AdamW against the memory traffic they cannot avoid",
                   "adamw_bench");
  Command app = line.root();
  app.option("--pairs",
             &num_pairs,
             "Interleaved pairs of bound and update",
             {.limit = Limit::positive, .most = 1000});
  app.option("--threads", &num_threads, "", {.limit = Limit::positive, .most = 1024});
  if (!line.parse(argc, argv)) {
    return 0;
  }
  fmt::print("GPT-2 124M, {} parameters, {} threads\n", num_parameters(kGpt2), num_threads);
  compare(Copies::none, num_pairs, num_threads);
  compare(Copies::bf16, num_pairs, num_threads);
  print_arithmetic(num_pairs, num_threads);
  return 0;
}

}  // namespace

}  // namespace slackline

int main(int argc, char** argv) {
  return slackline::bench_main(slackline::run, argc, argv);
}
