#include "core/comm/engine/background_sends.h"

#include <algorithm>
#include <limits>

#include "core/check.h"

namespace slackline {

namespace {

bool is_same(const Message& a, const Message& b) {
  return a.peer == b.peer && a.communicator == b.communicator && a.sequence == b.sequence &&
         a.flight == b.flight && a.piece == b.piece;
}

BackgroundSends::Clock::duration seconds_of(double seconds) {
  return std::chrono::duration_cast<BackgroundSends::Clock::duration>(
      std::chrono::duration<double>(seconds));
}

BackgroundSends::Clock::duration seconds_of(std::size_t bytes, double bytes_per_second) {
  return seconds_of(static_cast<double>(bytes) / bytes_per_second);
}

}  // namespace

void BackgroundSends::set_links(const Cluster& links, const std::vector<int>& nodes) {
  links_ = links;
  nodes_ = nodes;
}

void BackgroundSends::add(const Message& message, std::uint64_t operation) {
  Line& line = lines_[{message.self, message.peer}];
  const bool added = line.waiting.try_emplace({operation, message.piece}, message).second;
  SL_CHECK(added, "a piece of an operation waits twice");
}

BackgroundSends::Clock::time_point BackgroundSends::counts_until(const Message& message,
                                                                 Clock::time_point begin) {
  return begin + kPatience + seconds_of(message.bytes, kSlowLink);
}

bool BackgroundSends::counts(const UnderWay& sent, std::uint64_t operation, Clock::time_point now) {
  return now < sent.counts_until && (sent.operation <= operation || now < sent.arrives);
}

Cluster::Scope BackgroundSends::scope_of(const Ends& ends) const {
  return links_->scope_between(nodes_.at(static_cast<std::size_t>(ends.first)),
                               nodes_.at(static_cast<std::size_t>(ends.second)));
}

// Null where it is not known or has no limit of speed.
const Cluster::Link* BackgroundSends::link_of(const Ends& ends) const {
  if (!links_) {
    return nullptr;
  }
  const Cluster::Link& link = links_->link_of(scope_of(ends));
  return link.bytes_per_second > 0.0 ? &link : nullptr;
}

BackgroundSends::Ends BackgroundSends::server_of(const Ends& ends) const {
  const Cluster::Link* const link = link_of(ends);
  if (link == nullptr || link->shared_by == Cluster::SharedBy::pair) {
    return ends;
  }
  const Cluster::Scope scope = scope_of(ends);
  const int anyone_of = -1 - static_cast<int>(scope);
  return {ends.first, scope == Cluster::Scope::node ? ends.first : anyone_of};
}

std::size_t BackgroundSends::bytes_beside(const Ends& ends,
                                          std::uint64_t operation,
                                          Clock::time_point now) const {
  const Ends server = server_of(ends);
  constexpr int kLowest = std::numeric_limits<int>::min();
  std::size_t bytes = 0;
  for (auto line = lines_.lower_bound({ends.first, kLowest});
       line != lines_.end() && line->first.first == ends.first;
       ++line) {
    if (server_of(line->first) != server) {
      continue;
    }
    for (const UnderWay& sent : line->second.under_way) {
      bytes += counts(sent, operation, now) ? sent.message.bytes : 0;
    }
  }
  return bytes;
}

std::optional<BackgroundSends::Clock::time_point> BackgroundSends::serve(const Message& message,
                                                                         Clock::time_point now) {
  const Ends ends{message.self, message.peer};
  const Cluster::Link* const link = link_of(ends);
  if (link == nullptr) {
    return {};
  }
  Clock::time_point& busy_until = busy_until_[server_of(ends)];
  busy_until = std::max(busy_until, now) + seconds_of(message.bytes, link->bytes_per_second);
  return busy_until;
}

// Whether the line's next message may join those under way.
bool BackgroundSends::fits(const Ends& ends, const Line& line, Clock::time_point now) const {
  const auto& [key, message] = *line.waiting.begin();
  const std::uint64_t operation = key.first;
  const std::size_t own = message.bytes;
  std::size_t longest = own;  // a short one behind long ones leaves them their window
  int moving = 0;
  for (const UnderWay& sent : line.under_way) {
    if (counts(sent, operation, now)) {
      longest = std::max(longest, sent.message.bytes);
      ++moving;
    }
  }
  if (moving < kAtOnce) {
    return true;
  }
  const Cluster::Link* const link = link_of(ends);
  const double window = link == nullptr ? static_cast<double>(kAtOnce * longest_)
                                        : link->bytes_per_second * link->latency_seconds +
                                              static_cast<double>(kAtOnce * longest);
  return static_cast<double>(bytes_beside(ends, operation, now) + own) <= window;
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
    if (!held(ends.first, now) && fits(ends, line, now)) {
      oldest = &line;
    }
  }
  if (oldest == nullptr) {
    return {};
  }
  const auto [key, message] = *oldest->waiting.begin();
  oldest->waiting.erase(oldest->waiting.begin());
  UnderWay& sent = oldest->under_way.emplace_back(UnderWay{
      .message = message, .operation = key.first, .counts_until = counts_until(message, now)});
  if (const std::optional<Clock::time_point> leaves = serve(message, now)) {
    const Cluster::Link& link = *link_of({message.self, message.peer});
    sent.arrives = *leaves + seconds_of(link.latency_seconds);
  }
  return message;
}

std::optional<BackgroundSends::Clock::time_point> BackgroundSends::next_due(
    Clock::time_point now) const {
  std::optional<Clock::time_point> due;
  const auto may_go_at = [&](Clock::time_point time) {
    if (now < time) {
      due = std::min(due.value_or(time), time);
    }
  };
  for (const auto& [ends, line] : lines_) {
    if (line.waiting.empty()) {
      continue;
    }
    for (const UnderWay& sent : line.under_way) {
      if (line.waiting.begin()->first.first < sent.operation) {
        may_go_at(sent.arrives);
      }
    }
    const auto found = urgent_.find(ends.first);
    if (found == urgent_.end()) {
      continue;
    }
    for (const UnderWay& urgent : found->second) {
      may_go_at(urgent.counts_until);
    }
  }
  return due;
}

bool BackgroundSends::held(int rank, Clock::time_point now) const {
  const auto found = urgent_.find(rank);
  return found != urgent_.end() && std::ranges::any_of(found->second, [&](const UnderWay& urgent) {
           return now < urgent.counts_until;
         });
}

void BackgroundSends::done(const Message& message) {
  std::vector<UnderWay>& under_way = lines_.at({message.self, message.peer}).under_way;
  const auto found = std::ranges::find_if(
      under_way, [&](const UnderWay& sent) { return is_same(sent.message, message); });
  SL_CHECK(found != under_way.end(), "the end of a send that has not begun");
  under_way.erase(found);
}

// Over a link that is known it holds up the others until it has left it, not until it has arrived.
void BackgroundSends::begin_urgent(const Message& message, Clock::time_point now) {
  Clock::time_point until = counts_until(message, now);
  until = std::min(until, serve(message, now).value_or(until));
  urgent_[message.self].push_back({.message = message, .counts_until = until});
}

void BackgroundSends::end_urgent(const Message& message) {
  std::vector<UnderWay>& under_way = urgent_.at(message.self);
  const auto found = std::ranges::find_if(
      under_way, [&](const UnderWay& urgent) { return is_same(urgent.message, message); });
  SL_CHECK(found != under_way.end(), "the end of a message that has not begun");
  under_way.erase(found);
}

void BackgroundSends::clear() {
  lines_.clear();
  urgent_.clear();
  busy_until_.clear();
}

}  // namespace slackline
