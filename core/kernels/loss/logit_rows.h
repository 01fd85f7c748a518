#pragma once

#include <cmath>
#include <cstdint>

#include "core/cuda/device.h"
#include "core/tensor/tensor.h"

// How the kernels of cross-entropy read and write rows of logits: threads take a row in batches of
// neighbours. A thread turns a batch into exponentials relative to the batch's own largest logit,
// so that nothing has to wait for the row's; how much too large they are is put right when they are
// written.
namespace slackline::cuda {

inline constexpr int kLogitBatch = 16;  // columns that a thread has at once

// Below all logits, and finite: differences to it are numbers.
inline constexpr float kLeastLogit = -3e38F;

// Rows of logits, and which column of each is the target's.
struct LogitRows {
  float* values;
  int num_columns;
  std::int64_t distance;  // elements from one to the next
  const std::int32_t* targets;
  std::int64_t first_token;
};

// A row as this thread takes it: packs of n neighbours, those of a batch a block's width apart.
// With n above 1 packs are aligned: the first may begin before the row, the last end after it.
template <int n>
struct LogitRow {
  static constexpr int kPacks = kLogitBatch / n;

  __device__ LogitRow(const LogitRows& rows, std::int64_t index)
      : values(rows.values + index * rows.distance),
        num_columns(rows.num_columns),
        before(static_cast<int>(reinterpret_cast<std::uintptr_t>(values) / sizeof(float) % n)) {
    const std::int64_t column = rows.targets[index] - rows.first_token;
    target = column >= 0 && column < num_columns ? static_cast<int>(column) : -1;
  }

  // The number of a pack of this thread, counted from the first of the row.
  __device__ unsigned pack(int batch, int index) const {
    return static_cast<unsigned>(batch * kPacks + index) * blockDim.x + threadIdx.x;
  }

  __device__ int first_column(unsigned pack) const { return static_cast<int>(pack * n) - before; }

  __device__ bool has_all(int column) const { return column >= 0 && column + n <= num_columns; }

  __device__ bool has(int column) const { return column >= 0 && column < num_columns; }

  float* values;
  int num_columns;
  int before;  // of the first pack
  int target;  // -1: elsewhere
};

// Loads a batch; columns beyond the row are far below all.
template <int n>
__device__ Floats<kLogitBatch> load_batch(const LogitRow<n>& row, int batch) {
  Floats<kLogitBatch> logits;
#pragma unroll
  for (int p = 0; p < kLogitBatch / n; ++p) {
    const unsigned pack = row.pack(batch, p);
    const int first = row.first_column(pack);
    Floats<n> values;
    if (row.has_all(first)) {
      values = load<n>(row.values - row.before + pack * n);
    } else {
#pragma unroll
      for (int i = 0; i < n; ++i) {
        values[i] = row.has(first + i) ? row.values[first + i] : -INFINITY;
      }
    }
#pragma unroll
    for (int i = 0; i < n; ++i) {
      logits[p * n + i] = values[i];
    }
  }
  return logits;
}

struct LogitBatch {
  Floats<kLogitBatch> exponentials;
  float most;  // that they are relative to
};

__device__ inline LogitBatch exponentiate(const Floats<kLogitBatch>& logits) {
  LogitBatch batch{.exponentials = {}, .most = kLeastLogit};
#pragma unroll
  for (int i = 0; i < kLogitBatch; ++i) {
    batch.most = fmaxf(batch.most, logits[i]);
  }
#pragma unroll
  for (int i = 0; i < kLogitBatch; ++i) {
    batch.exponentials[i] = expf(logits[i] - batch.most);
  }
  return batch;
}

// to[column] = value(exponential, is_target) for the packs of a batch; exponentials * factor are
// relative to the row's largest logit.
template <int n, typename T, typename Value>
__device__ void write_batch(const LogitRow<n>& row,
                            int batch,
                            const Floats<kLogitBatch>& exponentials,
                            float factor,
                            T* to,
                            const Value& value) {
#pragma unroll
  for (int p = 0; p < kLogitBatch / n; ++p) {
    const unsigned pack = row.pack(batch, p);
    const int first = row.first_column(pack);
    Floats<n> values;
#pragma unroll
    for (int i = 0; i < n; ++i) {
      values[i] = value(__fmul_rn(exponentials[p * n + i], factor), first + i == row.target);
    }
    if (row.has_all(first)) {
      store<n>(pack_at<n>(to - row.before, pack), values);
    } else {
#pragma unroll
      for (int i = 0; i < n; ++i) {
        if (row.has(first + i)) {
          to[first + i] = from_float<T>(values[i]);
        }
      }
    }
  }
}

[[nodiscard]] inline LogitRows rows_of(const Tensor& values,
                                       std::int64_t row,
                                       const Tensor& targets,
                                       std::int64_t first_token) {
  return {.values = values.data<float>(),
          .num_columns = static_cast<int>(values.dim(1)),
          .distance = row == 0 ? values.dim(1) : row,
          .targets = targets.data<std::int32_t>(),
          .first_token = first_token};
}

// True where columns that are aligned in one are aligned in the other: rows are of one length.
template <typename T>
bool align_together(const float* a, const T* b) {
  const auto elements = [](const auto* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer) / sizeof(*pointer);
  };
  return b == nullptr || elements(a) % kPackSize<float> == elements(b) % kPackSize<float>;
}

template <typename T>
T* elements_of(const Tensor& d_logits) {
  return d_logits.empty() ? nullptr : d_logits.data<T>();
}

}  // namespace slackline::cuda
