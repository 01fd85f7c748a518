#include "core/comm/engine/sum_scratch.h"

#include "core/comm/engine/scratch_pool.h"

namespace slackline {

SumScratch::Sum SumScratch::begin(int group_id, const SumBytes& sum) {
  Group& group =
      groups_
          .try_emplace(group_id, Group{.window = SumWindow(SumWindow::limit_of(longest_message_))})
          .first->second;
  const SumWindow::Ticket ticket = group.window.add(sum.tensor);
  while (!group.window.may_begin(ticket)) {
    end(group.begun.front());
  }
  const Sum id = sums_.size();
  sums_.push_back({.group = group_id, .ticket = ticket, .block = take(sum.received)});
  group.begun.push_back(id);
  return id;
}

void SumScratch::end(Sum sum) {
  Begun& begun = sums_[sum];
  if (begun.ended) {
    return;
  }
  begun.ended = true;
  if (begun.block > 0) {
    free_.insert(begun.block);
  }
  Group& group = groups_.at(begun.group);
  group.window.end(begun.ticket);
  while (!group.begun.empty() && sums_[group.begun.front()].ended) {
    group.begun.pop_front();
  }
}

std::size_t SumScratch::take(std::size_t received) {
  if (received == 0) {
    return 0;
  }
  const std::size_t needed = ScratchPool::block_bytes(received);
  const auto block = free_.lower_bound(needed);
  if (block != free_.end() && ScratchPool::serves(*block, needed)) {
    const std::size_t bytes = *block;
    free_.erase(block);
    return bytes;
  }
  bytes_ += needed;
  return needed;
}

std::size_t scratch_bytes_of_sums(const std::vector<SumBytes>& sums, std::size_t longest_message) {
  SumScratch scratch(longest_message);
  for (const SumBytes& sum : sums) {
    scratch.begin(0, sum);
  }
  return scratch.bytes();
}

}  // namespace slackline
