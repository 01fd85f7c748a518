#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>

#include <cudnn.h>
#include <cudnn_frontend.h>

#include "core/cuda/fused_attention.h"
#include "core/error.h"
#include "core/log.h"

// cuDNN's fused attention, as graphs of one operation each. Strides say where queries, keys and
// values lie in (B, T, 3 H D), so that nothing is copied. cuDNN's "stats" are the natural logarithm
// of the sum of exponentials of scaled scores: log_sum_exp.
//
// Before Blackwell a deterministic backward pass writes out the T x T gradients of scores. Where
// those of the whole call do not fit into the scratch, it runs in parts: some sequences at a time,
// or some heads of one sequence.
//
// A plan belongs to a thread and its handle: not all of cuDNN's engines let threads share one.
namespace slackline::cuda {

namespace {

namespace frontend = cudnn_frontend;
using frontend::graph::Graph;
using frontend::graph::Tensor_attributes;

enum class Direction { forward, backward };

// Values are the names by which a graph knows its tensors.
enum class Operand : std::int64_t {
  query = 1,
  key,
  value,
  output,
  log_sum_exp,
  d_output,
  d_query,
  d_key,
  d_value,
};

// What one execution of a plan computes: sequences with all heads, or heads of one sequence.
struct Part {
  std::int64_t B = 0;
  std::int64_t H = 0;
};

// Where sequence b, head h, position t of an operand begins in its tensor, in elements.
struct Layout {
  std::int64_t begin = 0;
  std::int64_t per_sequence = 0;
  std::int64_t per_head = 0;
  std::int64_t per_position = 0;
};

Layout layout_of(Operand operand, const AttentionSize& size) {
  const std::int64_t C = size.H * size.D;
  const auto part_of_qkv = [&](std::int64_t which) {
    return Layout{which * C, size.T * 3 * C, size.D, 3 * C};
  };
  switch (operand) {
    case Operand::query:
    case Operand::d_query:
      return part_of_qkv(0);
    case Operand::key:
    case Operand::d_key:
      return part_of_qkv(1);
    case Operand::value:
    case Operand::d_value:
      return part_of_qkv(2);
    case Operand::output:
    case Operand::d_output:
      return {0, size.T * C, size.D, C};
    case Operand::log_sum_exp:
      break;
  }
  return {0, size.H * size.T, size.T, 1};
}

void check_cudnn(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS) {
    throw DeviceError(std::string(call) + " failed: " + cudnnGetErrorString(status));
  }
}

void check_graph(const frontend::error_t& error, const char* call) {
  if (error.is_bad()) {
    throw DeviceError(std::string(call) + " of cuDNN's attention failed: " + error.err_msg);
  }
}

#define SL_CUDNN_CHECK(call) check_cudnn((call), #call)

bool is_not_supported(const frontend::error_t& error) {
  switch (error.code) {
    case frontend::error_code_t::GRAPH_NOT_SUPPORTED:
    case frontend::error_code_t::GRAPH_EXECUTION_PLAN_CREATION_FAILED:
    case frontend::error_code_t::HEURISTIC_QUERY_FAILED:
      return true;
    case frontend::error_code_t::CUDNN_BACKEND_API_FAILED:
      return error.err_msg.find("NOT_SUPPORTED") != std::string::npos;
    default:
      return false;
  }
}

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

void describe(Tensor_attributes& tensor,
              Operand operand,
              const AttentionSize& size,
              const Part& part) {
  const Layout layout = layout_of(operand, size);
  const bool is_sum = operand == Operand::log_sum_exp;
  // cuDNN before 9.26 wants the sums packed; with fewer heads than H there is one sequence, and the
  // stride of sequences counts for nothing.
  const std::int64_t per_sequence = is_sum ? part.H * size.T : layout.per_sequence;
  tensor.set_uid(static_cast<std::int64_t>(operand))
      .set_dim({part.B, part.H, size.T, is_sum ? 1 : size.D})
      .set_stride({per_sequence, layout.per_head, layout.per_position, 1})
      .set_data_type(is_sum ? frontend::DataType_t::FLOAT : frontend::DataType_t::BFLOAT16);
}

std::unique_ptr<Graph> graph_of(const Problem& problem, const Part& part) {
  auto graph = std::make_unique<Graph>();
  graph->set_io_data_type(frontend::DataType_t::BFLOAT16)
      .set_intermediate_data_type(frontend::DataType_t::FLOAT)
      .set_compute_data_type(frontend::DataType_t::FLOAT);
  const auto input = [&](Operand operand) {
    Tensor_attributes tensor;
    describe(tensor, operand, problem.size, part);
    return graph->tensor(tensor);
  };
  const auto describe_output = [&](const std::shared_ptr<Tensor_attributes>& tensor,
                                   Operand operand) {
    describe(*tensor, operand, problem.size, part);
    tensor->set_output(true);
  };
  const auto set_causal = [&](auto attributes) {
    attributes.set_attn_scale(1.0F / std::sqrt(static_cast<float>(problem.size.D)))
        .set_diagonal_alignment(frontend::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0);
    return attributes;
  };
  const auto query = input(Operand::query);
  const auto key = input(Operand::key);
  const auto value = input(Operand::value);
  if (problem.direction == Direction::forward) {
    auto attributes = set_causal(frontend::graph::SDPA_attributes());
    attributes.set_generate_stats(true);
    const auto made = graph->sdpa(query, key, value, attributes);
    describe_output(made[0], Operand::output);
    describe_output(made[1], Operand::log_sum_exp);
  } else {
    auto attributes = set_causal(frontend::graph::SDPA_backward_attributes());
    attributes.set_deterministic_algorithm(true);
    const auto output = input(Operand::output);
    const auto d_output = input(Operand::d_output);
    const auto sums = input(Operand::log_sum_exp);
    const auto made = graph->sdpa_backward(query, key, value, output, d_output, sums, attributes);
    describe_output(made[0], Operand::d_query);
    describe_output(made[1], Operand::d_key);
    describe_output(made[2], Operand::d_value);
  }
  return graph;
}

struct Plan {
  std::unique_ptr<Graph> graph;
  Part part{};
};

std::int64_t largest_proper_divisor(std::int64_t number) {
  std::int64_t divisor = 2;
  while (number % divisor != 0) {
    ++divisor;
  }
  return number / divisor;
}

// The largest part whose plan fits into the scratch; none where there is no plan or no such part.
std::optional<Plan> plan_of(const Problem& problem, cudnnHandle_t handle) {
  const auto bound = static_cast<std::int64_t>(fused_attention_workspace_bytes(problem.size));
  const auto refuse = [&](const std::string& reason) {
    log_info("attention " + problem.to_string() + " runs without cuDNN: " + reason);
    return std::nullopt;
  };
  Part part{.B = problem.size.B, .H = problem.size.H};
  for (;;) {
    std::unique_ptr<Graph> graph = graph_of(problem, part);
    const frontend::error_t error = graph->build(handle, {frontend::HeurMode_t::A});
    if (is_not_supported(error)) {
      return refuse(error.err_msg);
    }
    check_graph(error, "Graph::build");
    std::int64_t needed = 0;
    check_graph(graph->get_workspace_size(needed), "Graph::get_workspace_size");
    if (needed <= bound) {
      return Plan{.graph = std::move(graph), .part = part};
    }
    if (part.B > 1) {
      part.B = largest_proper_divisor(part.B);
    } else if (part.H > 1) {
      part.H = largest_proper_divisor(part.H);
    } else {
      return refuse("it needs " + std::to_string(needed) + " bytes of scratch for one head");
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

  // Of no plan it remembers that there is none.
  const std::optional<Plan>& plan(const Problem& problem) {
    const auto found = plans_.find(problem.key());
    if (found != plans_.end()) {
      return found->second;
    }
    return plans_.emplace(problem.key(), plan_of(problem, handle())).first->second;
  }

 private:
  std::unique_ptr<cudnnContext, DestroyHandle> handle_;  // outlives the plans
  std::map<decltype(Problem().key()), std::optional<Plan>> plans_;
};

struct Argument {
  Operand operand{};
  Tensor tensor{};
};

// cuDNN reads and writes 16 bytes at a time.
bool are_aligned(std::span<const Argument> arguments) {
  constexpr std::uintptr_t kAlignment = 16;
  for (const Argument& argument : arguments) {
    if (reinterpret_cast<std::uintptr_t>(argument.tensor.raw()) % kAlignment != 0) {
      return false;
    }
  }
  return true;
}

bool run(StreamView stream, const Problem& problem, std::span<const Argument> arguments) {
  const AttentionSize& size = problem.size;
  const std::size_t bytes = fused_attention_workspace_bytes(size);
  if (bytes == 0 || !are_aligned(arguments)) {
    return false;
  }
  thread_local Library library;
  const std::optional<Plan>& plan = library.plan(problem);
  if (!plan) {
    return false;
  }
  SL_CUDNN_CHECK(cudnnSetStream(library.handle(), stream.cuda().handle()));
  ArenaScope scratch(stream.workspace());
  const Tensor workspace = scratch.allocate(DType::u8, {static_cast<std::int64_t>(bytes)});
  for (std::int64_t b = 0; b < size.B; b += plan->part.B) {
    for (std::int64_t h = 0; h < size.H; h += plan->part.H) {
      std::unordered_map<std::int64_t, void*> pointers;
      for (const auto& [operand, tensor] : arguments) {
        const Layout layout = layout_of(operand, size);
        const std::int64_t first = layout.begin + b * layout.per_sequence + h * layout.per_head;
        pointers.emplace(static_cast<std::int64_t>(operand),
                         static_cast<std::byte*>(tensor.raw()) +
                             static_cast<std::size_t>(first) * size_of(tensor.dtype()));
      }
      check_graph(plan->graph->execute(library.handle(), pointers, workspace.raw()),
                  "Graph::execute");
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
  const Argument arguments[] = {{Operand::query, args.qkv},
                                {Operand::key, args.qkv},
                                {Operand::value, args.qkv},
                                {Operand::output, args.output},
                                {Operand::log_sum_exp, args.log_sum_exp}};
  const Problem problem{Direction::forward, size_of_call(args.qkv, args.num_heads)};
  return args.dropout.probability == 0.0F && run(stream, problem, arguments);
}

bool fused_attention_backward(StreamView stream, const AttentionBackward& args) {
  const Argument arguments[] = {{Operand::query, args.qkv},
                                {Operand::key, args.qkv},
                                {Operand::value, args.qkv},
                                {Operand::output, args.output},
                                {Operand::log_sum_exp, args.log_sum_exp},
                                {Operand::d_output, args.d_output},
                                {Operand::d_query, args.d_qkv},
                                {Operand::d_key, args.d_qkv},
                                {Operand::d_value, args.d_qkv}};
  const Problem problem{Direction::backward, size_of_call(args.qkv, args.num_heads)};
  return args.dropout.probability == 0.0F && run(stream, problem, arguments);
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
