#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/kernels/attention/attention.h"

struct cudnnContext;  // the library's cudnnHandle_t points to one

// A pass of causal attention as a graph of cuDNN's (attention_graph_cudnn.cpp). This header needs
// no cuDNN: that of its graphs takes a while to compile.
namespace slackline::cuda {

enum class Direction { forward, backward };

// Values are the names by which a graph knows its tensors.
enum class AttentionOperand : std::int64_t {
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

// Where sequence b, head h, position t of an operand begins in its tensor, in elements.
struct OperandLayout {
  std::int64_t begin = 0;
  std::int64_t per_sequence = 0;
  std::int64_t per_head = 0;
  std::int64_t per_position = 0;
};

[[nodiscard]] OperandLayout layout_of(AttentionOperand operand, const AttentionSize& size);

// What one execution computes: sequences with all their heads, or heads of one sequence.
struct AttentionPart {
  std::int64_t B = 0;
  std::int64_t H = 0;
};

// Made for a thread's handle, and used by that thread alone: not all of cuDNN's engines let threads
// share a plan.
class AttentionGraph {
 public:
  // Throws DeviceError where a call fails for another reason than that cuDNN has nothing for the
  // shape on this card: then is_supported() is false.
  AttentionGraph(Direction direction,
                 const AttentionSize& size,
                 const AttentionPart& part,
                 cudnnContext* handle);
  ~AttentionGraph();
  AttentionGraph(const AttentionGraph&) = delete;
  AttentionGraph& operator=(const AttentionGraph&) = delete;

  [[nodiscard]] const AttentionPart& part() const { return part_; }

  [[nodiscard]] bool is_supported() const { return refusal_.empty(); }

  [[nodiscard]] const std::string& refusal() const { return refusal_; }

  // REQUIRES for the rest: is_supported().
  [[nodiscard]] std::size_t workspace_bytes() const { return workspace_bytes_; }

  struct Argument {
    AttentionOperand operand{};
    void* first = nullptr;  // of this part's first sequence and head
  };

  // Queues the part on the handle's stream.
  void execute(cudnnContext* handle, const std::vector<Argument>& arguments, void* workspace) const;

 private:
  struct Graph;

  AttentionPart part_;
  std::unique_ptr<Graph> graph_;
  std::string refusal_;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace slackline::cuda
