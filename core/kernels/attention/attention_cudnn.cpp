#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <tuple>

#include <cudnn.h>

#include "core/error.h"
#include "core/kernels/attention/attention_graph.h"
#include "core/kernels/attention/fused_attention.h"
#include "core/log.h"

// Before Blackwell cuDNN's deterministic backward pass writes out the T x T gradients of scores.
// Where those of the whole call do not fit into the scratch, it runs in parts: some sequences at a
// time, or some heads of one sequence.
namespace slackline::cuda {

namespace {

void check_cudnn(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS) {
    throw DeviceError(std::string(call) + " failed: " + cudnnGetErrorString(status));
  }
}

#define SL_CUDNN_CHECK(call) check_cudnn((call), #call)

struct Problem {
  Direction direction = Direction::forward;
  AttentionSize size{};

  [[nodiscard]] auto key() const { return std::tuple(direction, size.B, size.T, size.H, size.D); }

  [[nodiscard]] std::string to_string() const {
    return std::string(direction == Direction::forward ? "forward" : "backward") + " of B " +
           std::to_string(size.B) + " T " + std::to_string(size.T) + " H " +
           std::to_string(size.H) + " D " + std::to_string(size.D);
  }
};

std::int64_t largest_proper_divisor(std::int64_t number) {
  std::int64_t divisor = 2;
  while (number % divisor != 0) {
    ++divisor;
  }
  return number / divisor;
}

// Makes the graph of the largest part that fits into the scratch; null where there is none.
std::unique_ptr<AttentionGraph> graph_of(const Problem& problem, cudnnHandle_t handle) {
  const auto refuse = [&](const std::string& reason) {
    log_info("attention " + problem.to_string() + " runs without cuDNN: " + reason);
    return nullptr;
  };
  const std::size_t bound = fused_attention_workspace_bytes(problem.size);
  AttentionPart part{.B = problem.size.B, .H = problem.size.H};
  for (;;) {
    auto graph = std::make_unique<AttentionGraph>(problem.direction, problem.size, part, handle);
    if (!graph->is_supported()) {
      return refuse(graph->refusal());
    }
    if (graph->workspace_bytes() <= bound) {
      return graph;
    }
    if (part.B > 1) {
      part.B = largest_proper_divisor(part.B);
    } else if (part.H > 1) {
      part.H = largest_proper_divisor(part.H);
    } else {
      return refuse("it wants " + std::to_string(graph->workspace_bytes()) +
                    " bytes of scratch for one head");
    }
  }
}

struct DestroyHandle {
  void operator()(cudnnContext* handle) const { cudnnDestroy(handle); }
};

// What a thread has of cuDNN.
class Library {
 public:
  Library() {
    cudnnHandle_t made = nullptr;
    SL_CUDNN_CHECK(cudnnCreate(&made));
    handle_.reset(made);
  }

  [[nodiscard]] cudnnHandle_t handle() const { return handle_.get(); }

  // Null where cuDNN has none, which is remembered too.
  const AttentionGraph* graph(const Problem& problem) {
    const auto found = graphs_.find(problem.key());
    if (found != graphs_.end()) {
      return found->second.get();
    }
    return graphs_.emplace(problem.key(), graph_of(problem, handle())).first->second.get();
  }

 private:
  std::unique_ptr<cudnnContext, DestroyHandle> handle_;  // outlives the graphs
  std::map<decltype(Problem().key()), std::unique_ptr<AttentionGraph>> graphs_;
};

struct OperandTensor {
  AttentionOperand operand{};
  Tensor tensor{};
};

// cuDNN reads and writes 16 bytes at a time.
bool are_aligned(std::span<const OperandTensor> operands) {
  constexpr std::uintptr_t kAlignment = 16;
  return std::all_of(operands.begin(), operands.end(), [](const OperandTensor& operand) {
    return reinterpret_cast<std::uintptr_t>(operand.tensor.raw()) % kAlignment == 0;
  });
}

bool run(StreamView stream, const Problem& problem, std::span<const OperandTensor> operands) {
  const AttentionSize& size = problem.size;
  const std::size_t bytes = fused_attention_workspace_bytes(size);
  if (bytes == 0 || !are_aligned(operands)) {
    return false;
  }
  thread_local Library library;
  const AttentionGraph* const graph = library.graph(problem);
  if (graph == nullptr) {
    return false;
  }
  SL_CUDNN_CHECK(cudnnSetStream(library.handle(), stream.cuda().handle()));
  ArenaScope scratch(stream.workspace());
  const Tensor workspace = scratch.allocate(DType::u8, {static_cast<std::int64_t>(bytes)});
  std::vector<AttentionGraph::Argument> arguments(operands.size());
  for (std::int64_t b = 0; b < size.B; b += graph->part().B) {
    for (std::int64_t h = 0; h < size.H; h += graph->part().H) {
      const auto first_of = [&](const OperandTensor& it) {
        const OperandLayout layout = layout_of(it.operand, size);
        const std::int64_t first = layout.begin + b * layout.per_sequence + h * layout.per_head;
        return AttentionGraph::Argument{
            it.operand,
            static_cast<std::byte*>(it.tensor.raw()) +
                static_cast<std::size_t>(first) * size_of(it.tensor.dtype())};
      };
      std::transform(operands.begin(), operands.end(), arguments.begin(), first_of);
      graph->execute(library.handle(), arguments, workspace.raw());
    }
  }
  return true;
}

AttentionSize size_of_call(const Tensor& qkv, int num_heads) {
  return {.B = qkv.dim(0),
          .T = qkv.dim(1),
          .H = num_heads,
          .D = qkv.dim(2) / (std::int64_t{3} * num_heads),
          .dtype = qkv.dtype()};
}

}  // namespace

bool fused_attention_forward(StreamView stream, const AttentionForward& args) {
  const OperandTensor operands[] = {{AttentionOperand::query, args.qkv},
                                    {AttentionOperand::key, args.qkv},
                                    {AttentionOperand::value, args.qkv},
                                    {AttentionOperand::output, args.output},
                                    {AttentionOperand::log_sum_exp, args.log_sum_exp}};
  const Problem problem{Direction::forward, size_of_call(args.qkv, args.num_heads)};
  return args.dropout.probability == 0.0F && run(stream, problem, operands);
}

bool fused_attention_backward(StreamView stream, const AttentionBackward& args) {
  const OperandTensor operands[] = {{AttentionOperand::query, args.qkv},
                                    {AttentionOperand::key, args.qkv},
                                    {AttentionOperand::value, args.qkv},
                                    {AttentionOperand::output, args.output},
                                    {AttentionOperand::log_sum_exp, args.log_sum_exp},
                                    {AttentionOperand::d_output, args.d_output},
                                    {AttentionOperand::d_query, args.d_qkv},
                                    {AttentionOperand::d_key, args.d_qkv},
                                    {AttentionOperand::d_value, args.d_qkv}};
  const Problem problem{Direction::backward, size_of_call(args.qkv, args.num_heads)};
  return args.dropout.probability == 0.0F && run(stream, problem, operands);
}

// Sums of d_query in fp32, of D columns, and of rows, up to four of them, with rows in whole tiles;
// then the gradients of scores in bf16, up to a limit that holds all heads of many a call and one
// head of a long sequence (T 16384); and what semaphores and padding may take.
std::size_t fused_attention_workspace_bytes(const AttentionSize& size) {
  constexpr std::int64_t kTile = 128;
  constexpr std::int64_t kColumnMultiple = 8;
  constexpr std::int64_t kMaxColumns = 256;
  constexpr std::int64_t kSumsOfRows = 4;
  constexpr std::size_t kScoresLimit = std::size_t{512} << 20U;
  constexpr std::size_t kOther = std::size_t{16} << 20U;
  if (size.dtype != DType::bf16 || size.D % kColumnMultiple != 0 || size.D > kMaxColumns ||
      size.B * size.T * size.H == 0) {
    return 0;
  }
  const std::int64_t rows = (size.T + kTile - 1) / kTile * kTile;
  const std::size_t sums =
      Arena::aligned_bytes(DType::f32, {size.B, size.H, rows, size.D + kSumsOfRows});
  const std::size_t scores = Arena::aligned_bytes(DType::bf16, {size.B, size.H, rows, rows});
  return sums + std::min(scores, kScoresLimit) + kOther;
}

}  // namespace slackline::cuda
