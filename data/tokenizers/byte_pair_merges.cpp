#include "data/tokenizers/byte_pair_merges.h"

#include <functional>
#include <queue>

namespace slackline {
namespace {

constexpr std::ptrdiff_t kNone = -1;

std::uint64_t pair_key(TokenId left, TokenId right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32U) |
         static_cast<std::uint32_t>(right);
}

// Two neighbours that had a merge when they were queued.
struct Candidate {
  std::uint32_t rank = 0;
  std::ptrdiff_t left = kNone;  // place of the left one
  TokenId left_id = 0;
  TokenId right_id = 0;
  TokenId result = 0;

  bool operator>(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

}  // namespace

// The tokens are a linked list over their first places; a queue holds every pair of neighbours
// that has a merge. A pair that has changed since it was queued is stale and passed over.
class BytePairMerges::Word {
 public:
  Word(const BytePairMerges& merges, const std::vector<TokenId>& ids)
      : merges_(merges), symbols_(ids.size()) {
    const auto size = static_cast<std::ptrdiff_t>(ids.size());
    for (std::ptrdiff_t i = 0; i < size; ++i) {
      symbols_[i] = {.id = ids[i], .previous = i - 1, .next = i + 1 < size ? i + 1 : kNone};
    }
    for (std::ptrdiff_t i = 0; i < size; ++i) {
      queue_neighbours(i);
    }
  }

  void merge_all() {
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      if (still_stands(best)) {
        merge(best);
      }
    }
  }

  void copy_to(std::vector<TokenId>& ids) const {
    ids.clear();
    for (std::ptrdiff_t i = symbols_.empty() ? kNone : 0; i != kNone; i = symbols_[i].next) {
      ids.push_back(symbols_[i].id);
    }
  }

 private:
  struct Symbol {
    TokenId id = 0;
    std::ptrdiff_t previous = kNone;
    std::ptrdiff_t next = kNone;
    bool merged_away = false;  // into the one before it
  };

  void queue_neighbours(std::ptrdiff_t left) {
    if (left == kNone || symbols_[left].next == kNone) {
      return;
    }
    const TokenId left_id = symbols_[left].id;
    const TokenId right_id = symbols_[symbols_[left].next].id;
    if (const Merge* found = merges_.find(left_id, right_id)) {
      queue_.push({.rank = found->rank,
                   .left = left,
                   .left_id = left_id,
                   .right_id = right_id,
                   .result = found->result});
    }
  }

  [[nodiscard]] bool still_stands(const Candidate& pair) const {
    const Symbol& left = symbols_[pair.left];
    return !left.merged_away && left.id == pair.left_id && left.next != kNone &&
           symbols_[left.next].id == pair.right_id;
  }

  void merge(const Candidate& pair) {
    Symbol& left = symbols_[pair.left];
    Symbol& right = symbols_[left.next];
    left.id = pair.result;
    left.next = right.next;
    right.merged_away = true;
    if (left.next != kNone) {
      symbols_[left.next].previous = pair.left;
    }
    queue_neighbours(left.previous);
    queue_neighbours(pair.left);
  }

  const BytePairMerges& merges_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue_;
};

void BytePairMerges::add(TokenId left, TokenId right, TokenId result) {
  merges_.insert_or_assign(pair_key(left, right), Merge{.rank = next_rank_++, .result = result});
}

const BytePairMerges::Merge* BytePairMerges::find(TokenId left, TokenId right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BytePairMerges::apply(std::vector<TokenId>& ids) const {
  Word word(*this, ids);
  word.merge_all();
  word.copy_to(ids);
}

}  // namespace slackline
