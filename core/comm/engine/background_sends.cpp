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
  for (auto& [rank, sender] : senders_) {
    sender.nothing_until.reset();
  }
}

void BackgroundSends::add(const Message& message, std::uint64_t operation) {
  Sender& sender = senders_[message.self];
  Line& line = sender.lines[message.peer];
  const bool added = line.waiting.try_emplace({operation, message.piece}, message).second;
  SL_CHECK(added, "a piece of an operation waits twice");
  ++sender.num_waiting;
  sender.nothing_until.reset();
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

int BackgroundSends::server_of(const Ends& ends) const {
  const Cluster::Link* const link = link_of(ends);
  if (link == nullptr || link->shared_by == Cluster::SharedBy::pair) {
    return ends.second;
  }
  const Cluster::Scope scope = scope_of(ends);
  return scope == Cluster::Scope::node ? ends.first : -1 - static_cast<int>(scope);
}

std::size_t BackgroundSends::bytes_beside(const Ends& ends,
                                          const Sender& sender,
                                          std::uint64_t operation,
                                          Clock::time_point now) const {
  const int server = server_of(ends);
  std::size_t bytes = 0;
  for (const auto& [receiver, line] : sender.lines) {
    if (line.under_way.empty() || server_of({ends.first, receiver}) != server) {
      continue;
    }
    for (const UnderWay& sent : line.under_way) {
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
  Clock::time_point& busy_until = senders_[message.self].busy_until[server_of(ends)];
  busy_until =
      std::max(busy_until, now) + seconds_of(message.carried_bytes() / link->bytes_per_second);
  return busy_until;
}

bool BackgroundSends::fits(int rank,
                           int receiver,
                           const Sender& sender,
                           std::optional<Beside>& beside,
                           Clock::time_point now) const {
  const Line& line = sender.lines.at(receiver);
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
  const Ends ends{rank, receiver};
  const Cluster::Link* const link = link_of(ends);
  const double window = link == nullptr ? static_cast<double>(kAtOnce * longest_)
                                        : link->bytes_per_second * link->latency_seconds +
                                              static_cast<double>(kAtOnce * longest);
  const int server = server_of(ends);
  if (!beside || beside->server != server || beside->operation != operation) {
    beside = {.server = server,
              .operation = operation,
              .bytes = bytes_beside(ends, sender, operation, now)};
  }
  return static_cast<double>(beside->bytes + own) <= window;
}

// The oldest of all, so that a step's sends keep their order over receivers, which is another one
// on every rank.
BackgroundSends::Line* BackgroundSends::line_to_go(int rank,
                                                   Sender& sender,
                                                   Clock::time_point now) const {
  if (is_held(sender, now)) {
    return nullptr;
  }
  Line* oldest = nullptr;
  std::optional<Beside> beside;
  for (auto& [receiver, line] : sender.lines) {
    if (line.waiting.empty() ||
        (oldest != nullptr && oldest->waiting.begin()->first < line.waiting.begin()->first)) {
      continue;
    }
    if (fits(rank, receiver, sender, beside, now)) {
      oldest = &line;
    }
  }
  return oldest;
}

BackgroundSends::Clock::time_point BackgroundSends::next_change(const Sender& sender,
                                                                Clock::time_point now) {
  std::uint64_t oldest = std::numeric_limits<std::uint64_t>::max();  // operation that waits
  for (const auto& [receiver, line] : sender.lines) {
    oldest = line.waiting.empty() ? oldest : std::min(oldest, line.waiting.begin()->first.first);
  }
  Clock::time_point change = Clock::time_point::max();
  const auto may_change_at = [&](Clock::time_point time) {
    change = now < time ? std::min(change, time) : change;
  };
  for (const auto& [receiver, line] : sender.lines) {
    for (const UnderWay& sent : line.under_way) {
      may_change_at(sent.counts_until);
      if (oldest < sent.operation) {
        may_change_at(sent.arrives);
      }
    }
  }
  for (const UnderWay& urgent : sender.urgent) {
    may_change_at(urgent.counts_until);
  }
  return change;
}

std::optional<Message> BackgroundSends::next(Clock::time_point now) {
  for (auto& [rank, sender] : senders_) {
    if (sender.nothing_until && now < *sender.nothing_until) {
      continue;
    }
    Line* const line = line_to_go(rank, sender, now);
    if (line == nullptr) {
      sender.nothing_until = next_change(sender, now);
      continue;
    }
    const auto [key, message] = *line->waiting.begin();
    line->waiting.erase(line->waiting.begin());
    --sender.num_waiting;
    UnderWay& sent = line->under_way.emplace_back(UnderWay{
        .message = message, .operation = key.first, .counts_until = counts_until(message, now)});
    if (const std::optional<Clock::time_point> leaves = serve(message, now)) {
      const Cluster::Link& link = *link_of({message.self, message.peer});
      sent.arrives = *leaves + seconds_of(link.latency_seconds);
    }
    return message;
  }
  return {};
}

std::optional<BackgroundSends::Clock::time_point> BackgroundSends::next_due() const {
  Clock::time_point due = Clock::time_point::max();
  for (const auto& [rank, sender] : senders_) {
    if (sender.num_waiting > 0) {
      due = std::min(due, sender.nothing_until.value_or(due));
    }
  }
  return due == Clock::time_point::max() ? std::nullopt : std::optional(due);
}

bool BackgroundSends::is_held(const Sender& sender, Clock::time_point now) {
  return std::ranges::any_of(sender.urgent,
                             [&](const UnderWay& urgent) { return now < urgent.counts_until; });
}

void BackgroundSends::done(const Message& message) {
  Sender& sender = senders_.at(message.self);
  std::vector<UnderWay>& under_way = sender.lines.at(message.peer).under_way;
  const auto found = std::ranges::find_if(
      under_way, [&](const UnderWay& sent) { return is_same(sent.message, message); });
  SL_CHECK(found != under_way.end(), "the end of a send that has not begun");
  under_way.erase(found);
  sender.nothing_until.reset();
}

// Over a link that is known it holds up the others until it has left it, not until it has arrived.
void BackgroundSends::begin_urgent(const Message& message, Clock::time_point now) {
  Clock::time_point until = counts_until(message, now);
  until = std::min(until, serve(message, now).value_or(until));
  senders_[message.self].urgent.push_back({.message = message, .counts_until = until});
}

void BackgroundSends::end_urgent(const Message& message) {
  Sender& sender = senders_.at(message.self);
  const auto found = std::ranges::find_if(
      sender.urgent, [&](const UnderWay& urgent) { return is_same(urgent.message, message); });
  SL_CHECK(found != sender.urgent.end(), "the end of a message that has not begun");
  sender.urgent.erase(found);
  sender.nothing_until.reset();
}

void BackgroundSends::clear() {
  senders_.clear();
}

}  // namespace slackline
