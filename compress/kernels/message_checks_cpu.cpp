#include <algorithm>
#include <atomic>
#include <cstring>

#include "compress/kernels/message_checks.h"
#include "core/kernels/parallel_ranges.h"
#include "core/rng.h"

namespace slackline::cpu {

namespace {

constexpr std::size_t kIndicesPerTask = 8192;

// The first position where indices do not ascend or are not below n; their number if there is none.
std::size_t first_disorder(StreamView stream, std::span<const std::uint32_t> at, std::size_t n) {
  std::atomic<std::size_t> first{at.size()};
  const auto body = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      if (at[i] >= n || (i > 0 && at[i] <= at[i - 1])) {
        std::size_t known = first;
        while (i < known && !first.compare_exchange_weak(known, i)) {
        }
        return;
      }
    }
  };
  parallel_ranges(stream, at.size(), kIndicesPerTask, body);
  return first;
}

}  // namespace

void write_words(StreamView /*stream*/, const Tensor& message, const MessageWords& words) {
  std::memcpy(message.raw(), words.data(), sizeof(words));
}

void check_words(StreamView /*stream*/,
                 const Tensor& message,
                 const MessageWords& due,
                 void (*raise)(const DeviceFault& fault)) {
  MessageWords found;
  std::memcpy(found.data(), message.raw(), sizeof(found));
  if (found != due) {
    DeviceFault fault{.raise = raise};
    std::ranges::copy(due, std::ranges::copy(found, fault.words.begin()).out);
    raise(fault);
  }
}

void check_ascending(StreamView stream,
                     const Tensor& indices,
                     std::size_t n,
                     std::uint32_t tag,
                     void (*raise)(const DeviceFault& fault)) {
  const std::span<const std::uint32_t> at = indices.span<std::uint32_t>();
  const std::size_t i = first_disorder(stream, at, n);
  if (i < at.size()) {
    const std::uint32_t before = i == 0 ? 0 : at[i - 1];
    raise({.raise = raise,
           .words = {low_word(i), at[i], before, low_word(at.size()), low_word(n), tag}});
  }
}

}  // namespace slackline::cpu
