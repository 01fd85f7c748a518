#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/tensor/device_fault.h"
#include "core/tensor/stream.h"
#include "core/tensor/tensor.h"

namespace slackline {

// Words that a message begins with, in the machine's byte order. Messages are u8 at any address.
using MessageWords = std::array<std::uint32_t, 4>;

// The first 16 bytes of `message` become `words`.
void write_words(StreamView stream, const Tensor& message, const MessageWords& words);

// Raises a fault unless `message` begins with `due`: its words are those that were found, then
// `due`. At once, or on the CUDA device at the next Stream::synchronize(). Nothing on the rehearsal
// device.
void check_words(StreamView stream,
                 const Tensor& message,
                 const MessageWords& due,
                 void (*raise)(const DeviceFault& fault));

// Raises a fault, likewise, unless `indices` (k) u32 are strictly ascending and below n: its words
// are the first position where they are not, the index there, the one before it (0 at the first),
// k, n and `tag`. REQUIRES: k and n fit 32 bits.
void check_ascending(StreamView stream,
                     const Tensor& indices,
                     std::size_t n,
                     std::uint32_t tag,
                     void (*raise)(const DeviceFault& fault));

}  // namespace slackline
