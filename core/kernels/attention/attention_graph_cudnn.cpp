#include <cmath>
#include <unordered_map>

#include <cudnn.h>
#include <cudnn_frontend.h>

#include "core/error.h"
#include "core/kernels/attention/attention_graph.h"

// Strides say where queries, keys and values lie in (B, T, 3 H D), so that nothing is copied.
// cuDNN's "stats" are the natural logarithm of the sum of exponentials of scaled scores:
// log_sum_exp.
namespace slackline::cuda {

namespace frontend = cudnn_frontend;
using frontend::graph::SDPA_attributes;
using frontend::graph::SDPA_backward_attributes;
using frontend::graph::Tensor_attributes;

namespace {

void check_graph(const frontend::error_t& error, const char* call) {
  if (error.is_bad()) {
    throw DeviceError(std::string(call) + " of cuDNN's attention failed: " + error.err_msg);
  }
}

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

// Puts tensors and the one operation into a graph.
class Builder {
 public:
  Builder(frontend::graph::Graph& graph, const AttentionSize& size, const AttentionPart& part)
      : graph_(graph), size_(size), part_(part) {
    graph_.set_io_data_type(frontend::DataType_t::BFLOAT16)
        .set_intermediate_data_type(frontend::DataType_t::FLOAT)
        .set_compute_data_type(frontend::DataType_t::FLOAT);
  }

  void add_forward() {
    auto attributes = causal<SDPA_attributes>();
    attributes.set_generate_stats(true);
    const auto made = graph_.sdpa(input(AttentionOperand::query),
                                  input(AttentionOperand::key),
                                  input(AttentionOperand::value),
                                  attributes);
    output(AttentionOperand::output, made[0]);
    output(AttentionOperand::log_sum_exp, made[1]);
  }

  void add_backward() {
    auto attributes = causal<SDPA_backward_attributes>();
    attributes.set_deterministic_algorithm(true);
    const auto made = graph_.sdpa_backward(input(AttentionOperand::query),
                                           input(AttentionOperand::key),
                                           input(AttentionOperand::value),
                                           input(AttentionOperand::output),
                                           input(AttentionOperand::d_output),
                                           input(AttentionOperand::log_sum_exp),
                                           attributes);
    output(AttentionOperand::d_query, made[0]);
    output(AttentionOperand::d_key, made[1]);
    output(AttentionOperand::d_value, made[2]);
  }

 private:
  template <typename Attributes>
  [[nodiscard]] Attributes causal() const {
    Attributes attributes;
    attributes.set_attn_scale(1.0F / std::sqrt(static_cast<float>(size_.D)))
        .set_diagonal_alignment(frontend::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0);
    return attributes;
  }

  void describe(AttentionOperand operand, Tensor_attributes& tensor) const {
    const OperandLayout layout = layout_of(operand, size_);
    const bool is_sum = operand == AttentionOperand::log_sum_exp;
    // cuDNN before 9.26 wants the sums packed; where there are fewer heads than H there is one
    // sequence, and the stride of sequences counts for nothing.
    const std::int64_t per_sequence = is_sum ? part_.H * size_.T : layout.per_sequence;
    tensor.set_uid(static_cast<std::int64_t>(operand))
        .set_dim({part_.B, part_.H, size_.T, is_sum ? 1 : size_.D})
        .set_stride({per_sequence, layout.per_head, layout.per_position, 1})
        .set_data_type(is_sum ? frontend::DataType_t::FLOAT : frontend::DataType_t::BFLOAT16);
  }

  [[nodiscard]] std::shared_ptr<Tensor_attributes> input(AttentionOperand operand) const {
    Tensor_attributes tensor;
    describe(operand, tensor);
    return graph_.tensor(tensor);
  }

  void output(AttentionOperand operand, const std::shared_ptr<Tensor_attributes>& tensor) const {
    describe(operand, *tensor);
    tensor->set_output(true);
  }

  frontend::graph::Graph& graph_;
  const AttentionSize& size_;
  const AttentionPart& part_;
};

}  // namespace

OperandLayout layout_of(AttentionOperand operand, const AttentionSize& size) {
  const std::int64_t C = size.H * size.D;
  const auto part_of_qkv = [&](std::int64_t which) {
    return OperandLayout{which * C, size.T * 3 * C, size.D, 3 * C};
  };
  switch (operand) {
    case AttentionOperand::query:
    case AttentionOperand::d_query:
      return part_of_qkv(0);
    case AttentionOperand::key:
    case AttentionOperand::d_key:
      return part_of_qkv(1);
    case AttentionOperand::value:
    case AttentionOperand::d_value:
      return part_of_qkv(2);
    case AttentionOperand::output:
    case AttentionOperand::d_output:
      return {0, size.T * C, size.D, C};
    case AttentionOperand::log_sum_exp:
      break;
  }
  return {0, size.H * size.T, size.T, 1};
}

struct AttentionGraph::Graph {
  frontend::graph::Graph graph;
};

AttentionGraph::AttentionGraph(Direction direction,
                               const AttentionSize& size,
                               const AttentionPart& part,
                               cudnnContext* handle)
    : part_(part), graph_(std::make_unique<Graph>()) {
  frontend::graph::Graph& graph = graph_->graph;
  Builder builder(graph, size, part);
  if (direction == Direction::forward) {
    builder.add_forward();
  } else {
    builder.add_backward();
  }
  const frontend::error_t error = graph.build(handle, {frontend::HeurMode_t::A});
  if (is_not_supported(error)) {
    refusal_ = error.err_msg.empty() ? "it is not supported" : error.err_msg;
    return;
  }
  check_graph(error, "Graph::build");
  std::int64_t bytes = 0;
  check_graph(graph.get_workspace_size(bytes), "Graph::get_workspace_size");
  workspace_bytes_ = static_cast<std::size_t>(bytes);
}

AttentionGraph::~AttentionGraph() = default;

void AttentionGraph::execute(cudnnContext* handle,
                             const std::vector<Argument>& arguments,
                             void* workspace) const {
  std::unordered_map<std::int64_t, void*> pointers;
  for (const Argument& argument : arguments) {
    pointers.emplace(static_cast<std::int64_t>(argument.operand), argument.first);
  }
  check_graph(graph_->graph.execute(handle, pointers, workspace), "Graph::execute");
}

}  // namespace slackline::cuda
