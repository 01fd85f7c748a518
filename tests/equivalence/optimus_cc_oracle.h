#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "core/tensor/stream.h"
#include "model/stage.h"
#include "tests/equivalence/mesh_run.h"
#include "tests/reference/error_feedback_oracle.h"

namespace slackline::testing {

// Which messages Optimus-CC compresses, and what a test may change to see that it would be seen.
struct OptimusCcRules {
  int rank = 1;  // of boundaries and of gradients
  bool epilogue_only = true;
  int stages = 0;  // the first so many stages' gradients are compressed
  // Wrong on purpose: what the last message of a step owes does not reach the next step.
  bool forgets_between_steps = false;
};

// Training under policy optimus_cc, with one rank after the other and nothing sent. Stages compute
// as ever; which messages are compressed, with which residual and which factor, stands here once
// more, in double. Weights stay what they were initialized to.
class OptimusCcOracle {
 public:
  // REQUIRES: fp32, 1F1B, no tensor ranks, one layer a stage, a tied table.
  OptimusCcOracle(const MeshRun& run, const OptimusCcRules& rules);

  // The gradients of a step, which must follow that of the last call.
  [[nodiscard]] std::map<std::string, std::vector<double>> gradients(int step);

 private:
  using Tensors = std::map<std::string, std::vector<double>>;

  [[nodiscard]] Tensors gradients_of_rank(int step, int data_rank);
  void run_micro_batch(const Pass& pass, int data_rank, int micro_batch);
  [[nodiscard]] bool compresses_message(int stage, int micro_batch) const;
  [[nodiscard]] bool compresses_gradient(const ParameterSpec& spec) const;
  [[nodiscard]] reference::Matrix first_right(const std::string& name,
                                              std::size_t rows,
                                              std::size_t columns) const;

  MeshRun run_;
  OptimusCcRules rules_;
  Parameters parameters_;
  Stream stream_;
  NoTensorSum no_sum_;
  LossSum losses_;
  std::vector<Stage> stages_;
  std::vector<ActivationSlot> slots_;  // of each stage, for one micro-batch
  std::vector<std::vector<reference::LazySender>> boundaries_;  // of data ranks; of stages but 0
  std::map<std::string, reference::FeedbackSum> sums_;          // of compressed gradients
};

}  // namespace slackline::testing
