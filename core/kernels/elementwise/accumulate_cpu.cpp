#include "core/kernels/elementwise/accumulate.h"
#include "core/kernels/parallel_ranges.h"
#include "core/kernels/simd.h"

namespace slackline::cpu {

namespace {

// to[i] = update(to[i], i, part) for vectors of all elements.
template <typename Update>
void update_all(StreamView stream, const Tensor& to, const Update& update) {
  float* target = to.data<float>();
  parallel_ranges(
      stream, to.num_elements(), kElementsPerTask, [&](std::size_t begin, std::size_t end) {
        simd::for_each_vector(end - begin, [&](std::size_t offset, auto part) {
          const std::size_t i = begin + offset;
          simd::store(update(simd::load(target + i, part), i, part), target + i, part);
        });
      });
}

}  // namespace

template <typename T>
void accumulate(StreamView stream, const Tensor& from, const Tensor& to) {
  update_all(stream, to, [source = from.data<T>()](simd::Floats old, std::size_t i, auto part) {
    return simd::hn::Add(old, simd::load(source + i, part));
  });
}

template <typename T>
void subtract(StreamView stream, const Tensor& from, const Tensor& to) {
  update_all(stream, to, [source = from.data<T>()](simd::Floats old, std::size_t i, auto part) {
    return simd::hn::Sub(old, simd::load(source + i, part));
  });
}

void keep_bf16_error(StreamView stream, const Tensor& values) {
  update_all(stream, values, [](simd::Floats old, std::size_t /*i*/, auto /*part*/) {
    return simd::hn::Sub(old, simd::round_to<BFloat16>(old));
  });
}

template void accumulate<float>(StreamView, const Tensor&, const Tensor&);
template void accumulate<BFloat16>(StreamView, const Tensor&, const Tensor&);
template void subtract<float>(StreamView, const Tensor&, const Tensor&);
template void subtract<BFloat16>(StreamView, const Tensor&, const Tensor&);

}  // namespace slackline::cpu
