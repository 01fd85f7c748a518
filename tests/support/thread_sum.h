#pragma once

#include <barrier>
#include <cmath>
#include <cstring>
#include <exception>
#include <thread>
#include <vector>

#include "model/tensor_sum.h"

namespace slackline::testing {

// What tensor ranks that are threads of one test share.
class ThreadSumGroup {
 public:
  explicit ThreadSumGroup(int size) : tensors(static_cast<std::size_t>(size)), barrier(size) {}

  std::vector<Tensor> tensors;  // rank r's, between two barriers
  std::barrier<> barrier;
};

// Sums in rank order, in float, rounded once, as communicators promise. A call returns when the
// data has arrived. Rows that a rank does not own are undefined after a sum; here they are NaN.
class ThreadSum final : public TensorSum {
 public:
  ThreadSum(ThreadSumGroup& group, int rank, bool sequence_parallel)
      : TensorSum(rank, static_cast<int>(group.tensors.size()), sequence_parallel),
        group_(&group) {}

  Transfer sum(const Tensor& partial) override {
    share_with_others(partial);
    const std::size_t count = partial.num_elements();
    const auto C = static_cast<std::size_t>(partial.dim(1));
    const std::size_t begin = static_cast<std::size_t>(share().first_row(partial.dim(0))) * C;
    const std::size_t end = begin + static_cast<std::size_t>(share().num_rows(partial.dim(0))) * C;
    std::vector<float> total(count, NAN);
    for (std::size_t i = begin; i < end; ++i) {
      total[i] = value(group_->tensors[0], i);
      for (std::size_t r = 1; r < group_->tensors.size(); ++r) {
        total[i] += value(group_->tensors[r], i);
      }
    }
    group_->barrier.arrive_and_wait();  // all have read
    for (std::size_t i = 0; i < count; ++i) {
      if (partial.dtype() == DType::f32) {
        partial.data<float>()[i] = total[i];
      } else {
        partial.data<BFloat16>()[i] = BFloat16(total[i]);
      }
    }
    return {};
  }

  Transfer gather(const Tensor& rows, const Tensor& whole) override {
    return share().sequence_parallel ? collect(rows, whole) : Transfer();
  }

  Transfer collect(const Tensor& own, const Tensor& all) override {
    share_with_others(own);
    auto* to = static_cast<std::byte*>(all.raw());
    for (const Tensor& tensor : group_->tensors) {
      SL_CHECK_EQ(tensor.bytes() * group_->tensors.size(), all.bytes());
      std::memcpy(to, tensor.raw(), tensor.bytes());
      to += tensor.bytes();
    }
    group_->barrier.arrive_and_wait();
    return {};
  }

 private:
  static float value(const Tensor& tensor, std::size_t i) {
    return tensor.dtype() == DType::f32 ? tensor.data<float>()[i]
                                        : static_cast<float>(tensor.data<BFloat16>()[i]);
  }

  void share_with_others(const Tensor& tensor) {
    group_->tensors[static_cast<std::size_t>(share().rank)] = tensor;
    group_->barrier.arrive_and_wait();
  }

  ThreadSumGroup* group_;
};

struct TensorRanks {
  int size = 1;
  bool sequence_parallel = false;
};

// Runs body(sum) on every rank of a tensor axis, a thread each; rethrows what the first one threw.
// Catch's macros are not for these threads: keep results, and check them afterwards.
template <typename Body>
void run_tensor_ranks(const TensorRanks& ranks, const Body& body) {
  ThreadSumGroup group(ranks.size);
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(ranks.size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks.size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        ThreadSum sum(group, rank, ranks.sequence_parallel);
        body(sum);
      } catch (...) {
        failures[static_cast<std::size_t>(rank)] = std::current_exception();
        group.barrier.arrive_and_drop();  // so that the others end, whatever they compute
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure != nullptr) {
      std::rethrow_exception(failure);
    }
  }
}

}  // namespace slackline::testing
