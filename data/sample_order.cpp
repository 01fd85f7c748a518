#include "data/sample_order.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "core/check.h"
#include "core/rng.h"

namespace slackline {
namespace {

// Epochs with a last one that gives less than this share of its samples keep it apart.
constexpr double kWholeEnough = 0.80;

// NumPy takes 32 bits. Larger seeds and later blocks are hashed to them.
std::uint32_t numpy_seed(std::uint64_t seed, std::uint64_t block) {
  if (block == 0 && (seed >> 32U) == 0) {
    return static_cast<std::uint32_t>(seed);
  }
  return philox_key(seed, "data/order/block " + std::to_string(block))[0];
}

std::uint64_t samples_of(std::uint64_t tokens, std::uint64_t sequence) {
  return tokens == 0 ? 0 : (tokens - 1) / sequence;
}

// Appends `epochs` times the ids 0 .. count - 1 and shuffles them as a whole.
void append_epochs(IndexArray& ids,
                   std::size_t count,
                   std::uint64_t epochs,
                   NumpyShuffler& shuffler) {
  const std::size_t first = ids.size();
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
    for (std::size_t id = 0; id < count; ++id) {
      ids.push_back(id);
    }
  }
  ids.shuffle(shuffler, first, ids.size() - first);
}

}  // namespace

SampleOrder::SampleOrder(std::span<const std::uint32_t> lengths, const SampleOrderOptions& options)
    : sequence(options.sequence) {
  const std::uint64_t epoch_tokens =
      std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{0});
  SL_CHECK(sequence > 0 && options.samples > 0 && epoch_tokens > sequence, "no sample to order");

  epochs = epochs_of(options.samples, sequence, epoch_tokens);
  const std::uint64_t total = samples_of(epochs * epoch_tokens, sequence);
  const std::uint64_t before_last = samples_of((epochs - 1) * epoch_tokens, sequence);
  const auto whole_enough = static_cast<std::uint64_t>(
      kWholeEnough * static_cast<double>(samples_of(epoch_tokens, sequence)));
  last_epoch_is_separate = epochs > 1 && options.samples - before_last < whole_enough;

  NumpyShuffler shuffler(numpy_seed(options.seed, options.block));
  sequences = IndexArray(lengths.size() * epochs, lengths.size());
  append_epochs(sequences, lengths.size(), last_epoch_is_separate ? epochs - 1 : epochs, shuffler);
  if (last_epoch_is_separate) {
    append_epochs(sequences, lengths.size(), 1, shuffler);
  }
  starts.reserve(sequences.size() + 1);
  starts.push_back(0);
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    starts.push_back(starts.back() + lengths[sequences[i]]);
  }
  const std::uint64_t mixed = last_epoch_is_separate ? before_last : total;
  samples = IndexArray(total, total);
  for (std::uint64_t j = 0; j < total; ++j) {
    samples.push_back(j);
  }
  samples.shuffle(shuffler, 0, mixed);
  samples.shuffle(shuffler, mixed, total - mixed);
}

SampleOrder::Place SampleOrder::start_of(std::uint64_t j) const {
  const std::uint64_t token = j * sequence;
  const auto after = std::upper_bound(starts.begin(), starts.end(), token);
  const auto position = static_cast<std::size_t>(after - starts.begin()) - 1;
  return {.position = position, .offset = token - starts[position]};
}

void SampleOrder::append_parts(std::uint64_t index, std::vector<Part>& parts) const {
  Place place = start_of(samples[index]);
  for (std::uint64_t missing = sequence + 1; missing > 0; ++place.position, place.offset = 0) {
    const std::uint64_t length = starts[place.position + 1] - starts[place.position];
    const std::uint64_t count = std::min(missing, length - place.offset);
    if (count > 0) {
      parts.push_back(
          {.sequence = sequences[place.position], .offset = place.offset, .count = count});
    }
    missing -= count;
  }
}

}  // namespace slackline
