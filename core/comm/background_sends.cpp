#include "core/comm/background_sends.h"

#include <algorithm>

#include "core/check.h"

namespace slackline {

namespace {

bool is_same(const Message& a, const Message& b) {
  return a.peer == b.peer && a.communicator == b.communicator && a.sequence == b.sequence;
}

}  // namespace

void BackgroundSends::add(const Message& message, std::uint64_t operation) {
  Line& line = lines_[{message.self, message.peer}];
  const bool added = line.waiting.try_emplace({operation, message.piece}, message).second;
  SL_CHECK(added, "a piece of an operation waits twice");
}

BackgroundSends::Clock::time_point BackgroundSends::counts_until(const Message& message,
                                                                 Clock::time_point begin) {
  const std::chrono::duration<double> bytes(static_cast<double>(message.bytes) / kSlowLink);
  return begin + kPatience + std::chrono::duration_cast<Clock::duration>(bytes);
}

// The oldest of all, so that a step's sends keep their order over receivers, which is another one
// on every rank.
std::optional<Message> BackgroundSends::next(Clock::time_point now) {
  Line* oldest = nullptr;
  for (auto& [ends, line] : lines_) {
    if (line.waiting.empty() ||
        (oldest != nullptr && oldest->waiting.begin()->first < line.waiting.begin()->first)) {
      continue;
    }
    const auto moving = std::ranges::count_if(
        line.under_way, [&](Clock::time_point counts_until) { return now < counts_until; });
    if (moving < kAtOnce && !held(ends.first, now)) {
      oldest = &line;
    }
  }
  if (oldest == nullptr) {
    return {};
  }
  const Message message = oldest->waiting.extract(oldest->waiting.begin()).mapped();
  oldest->under_way.push_back(counts_until(message, now));
  return message;
}

bool BackgroundSends::held(int rank, Clock::time_point now) const {
  const auto found = urgent_.find(rank);
  return found != urgent_.end() && std::ranges::any_of(found->second, [&](const Urgent& urgent) {
           return now < urgent.counts_until;
         });
}

void BackgroundSends::done(const Message& message) {
  lines_.at({message.self, message.peer}).under_way.pop_front();
}

void BackgroundSends::begin_urgent(const Message& message, Clock::time_point now) {
  urgent_[message.self].push_back({.message = message, .counts_until = counts_until(message, now)});
}

void BackgroundSends::end_urgent(const Message& message) {
  std::vector<Urgent>& under_way = urgent_.at(message.self);
  const auto found = std::ranges::find_if(
      under_way, [&](const Urgent& urgent) { return is_same(urgent.message, message); });
  SL_CHECK(found != under_way.end(), "the end of a message that has not begun");
  under_way.erase(found);
}

void BackgroundSends::clear() {
  lines_.clear();
  urgent_.clear();
}

}  // namespace slackline
