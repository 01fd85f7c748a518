#pragma once

#include <algorithm>
#include <vector>

#include "core/cuda/launch.h"

// One launch for the same work on many tensors, small ones among them: each item has some blocks of
// the grid to itself.
namespace slackline::cuda {

// A kernel's parameter, of at most 4 KB. Kernels take it as `const __grid_constant__`, so that an
// item is read where it lies.
template <typename Item>
struct Batch {
  static constexpr int kMostItems =
      std::min(32, static_cast<int>(4000 / (sizeof(Item) + sizeof(unsigned))));

  Item items[kMostItems];
  unsigned end_block[kMostItems];  // after the last of an item
  int num_items;
};

// Where this block stands: item items[index], and its block `block` of `num_blocks`.
struct BatchPlace {
  int index = 0;
  unsigned block = 0;
  unsigned num_blocks = 0;

  template <typename Item>
  __device__ explicit BatchPlace(const Batch<Item>& batch) {
    int begin = 0;
    int end = batch.num_items - 1;
    while (begin < end) {
      const int middle = (begin + end) / 2;
      if (blockIdx.x < batch.end_block[middle]) {
        end = middle;
      } else {
        begin = middle + 1;
      }
    }
    const unsigned first = begin == 0 ? 0 : batch.end_block[begin - 1];
    index = begin;
    block = blockIdx.x - first;
    num_blocks = batch.end_block[begin] - first;
  }
};

// Calls start(batch, blocks) for as many items at a time as a batch holds; blocks_of(item) is how
// many blocks each has.
template <typename Item, typename BlocksOf, typename Start>
void for_each_batch(const std::vector<Item>& items, const BlocksOf& blocks_of, const Start& start) {
  std::size_t done = 0;
  while (done < items.size()) {
    Batch<Item> batch{};
    unsigned blocks = 0;
    while (done < items.size() && batch.num_items < Batch<Item>::kMostItems) {
      blocks += blocks_of(items[done]);
      batch.items[batch.num_items] = items[done];
      batch.end_block[batch.num_items] = blocks;
      ++batch.num_items;
      ++done;
    }
    start(batch, blocks);
  }
}

}  // namespace slackline::cuda
