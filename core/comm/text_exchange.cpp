#include "core/comm/text_exchange.h"

#include <algorithm>
#include <cstdint>

namespace slackline {

namespace {

Tensor bytes_of(std::string& text) {
  return {text.data(), DType::u8, {static_cast<std::int64_t>(text.size())}};
}

// Length of every rank's text.
std::vector<double> exchange_lengths(Communicator& group, std::size_t length, const char* what) {
  std::vector<double> lengths(static_cast<std::size_t>(group.size()), 0.0);
  lengths[static_cast<std::size_t>(group.rank())] = static_cast<double>(length);
  group.all_gather(Tensor(std::span(lengths)), {.what = what}).wait();
  return lengths;
}

}  // namespace

std::vector<std::string> exchange_texts(Communicator& group,
                                        const std::string& text,
                                        const char* what) {
  const std::vector<double> lengths = exchange_lengths(group, text.size(), what);
  // Slices of one gather are equally long: the longest text's length.
  const auto longest = static_cast<std::size_t>(*std::max_element(lengths.begin(), lengths.end()));
  std::string all(longest * lengths.size(), '\0');
  std::copy(
      text.begin(),
      text.end(),
      all.begin() + static_cast<std::ptrdiff_t>(longest * static_cast<std::size_t>(group.rank())));
  group.all_gather(bytes_of(all), {.what = what}).wait();
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    texts.push_back(all.substr(rank * longest, static_cast<std::size_t>(lengths[rank])));
  }
  return texts;
}

std::string broadcast_text(Communicator& group,
                           int root,
                           const std::string& text,
                           const char* what) {
  const std::vector<double> lengths = exchange_lengths(group, text.size(), what);
  std::string copy = text;
  copy.resize(static_cast<std::size_t>(lengths[static_cast<std::size_t>(root)]));
  group.broadcast(bytes_of(copy), root, {.what = what}).wait();
  return copy;
}

}  // namespace slackline
