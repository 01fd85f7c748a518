#include "compress/kernels/message_checks.h"

#include <limits>
#include <string>

#include "core/kernels/dispatch.h"
#include "core/kernels/operand.h"

namespace slackline {

SL_BACKENDS(void write_words(StreamView stream, const Tensor& message, const MessageWords& words))
SL_BACKENDS(void check_words(StreamView stream,
                             const Tensor& message,
                             const MessageWords& due,
                             void (*raise)(const DeviceFault& fault)))
SL_BACKENDS(void check_ascending(StreamView stream,
                                 const Tensor& indices,
                                 std::size_t n,
                                 std::uint32_t tag,
                                 void (*raise)(const DeviceFault& fault)))

namespace {

void check_message(const Tensor& message) {
  SL_CHECK(message.dtype() == DType::u8 && message.bytes() >= sizeof(MessageWords),
           "a message of " + std::to_string(message.bytes()) + " bytes");
}

}  // namespace

void write_words(StreamView stream, const Tensor& message, const MessageWords& words) {
  check_message(message);
  SL_BACKEND(stream, write_words, stream, message, words);
}

void check_words(StreamView stream,
                 const Tensor& message,
                 const MessageWords& due,
                 void (*raise)(const DeviceFault& fault)) {
  check_message(message);
  SL_BACKEND(stream, check_words, stream, message, due, raise);
}

void check_ascending(StreamView stream,
                     const Tensor& indices,
                     std::size_t n,
                     std::uint32_t tag,
                     void (*raise)(const DeviceFault& fault)) {
  check_operand(indices, {"indices", DType::u32, indices.shape()});
  SL_CHECK(n <= std::numeric_limits<std::uint32_t>::max(), std::to_string(n) + " elements");
  if (indices.num_elements() > 0) {
    SL_BACKEND(stream, check_ascending, stream, indices, n, tag, raise);
  }
}

}  // namespace slackline
