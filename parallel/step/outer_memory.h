#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "core/kernels/update/outer_step.h"
#include "core/tensor/buffer.h"
#include "parallel/step/mesh_model.h"
#include "parallel/sync/outer_plan.h"

namespace slackline {

// What a rank keeps of its shares of the model for outer rounds, and what is done to it element by
// element: anchor, momentum and difference, and where a worker begins its rounds ahead of the
// anchor, its lead. All f32, in buffers where shares follow one another, fragment by fragment.
// Owns the buffers; refers to the model. Used by the rank's thread; everything is in the order of
// the model's stream.
class OuterMemory {
 public:
  enum class Leads { no, yes };

  // Which of several workers keeps its own part of what each of them has.
  struct Owner {
    int worker = 0;
    int workers = 1;
  };

  // Without an owner shares are all that the rank has.
  OuterMemory(MeshModel& model, int fragments, Leads leads, const std::optional<Owner>& owner);

  [[nodiscard]] const std::vector<OuterShare>& shares() const { return shares_; }

  // The shares of one fragment.
  [[nodiscard]] std::vector<OuterShare> shares_of(int fragment) const;

  [[nodiscard]] Tensor differences() const;

  // Views of a share in a buffer, and of its weights.
  [[nodiscard]] Tensor anchor(const OuterShare& share) const { return view(anchor_, share); }

  [[nodiscard]] Tensor momentum(const OuterShare& share) const { return view(momentum_, share); }

  [[nodiscard]] Tensor difference(const OuterShare& share) const {
    return view(difference_, share);
  }

  // The weights of a share, as the optimizer has them.
  [[nodiscard]] Tensor weight(const OuterShare& share) const;

  // Empty where there are none.
  [[nodiscard]] Tensor lead(const OuterShare& share) const {
    return lead_.bytes() == 0 ? Tensor() : view(lead_, share);
  }

  // Returns the tensors that an outer step of a share works on, `written` in place of its weights.
  [[nodiscard]] OuterTensors tensors_of(const OuterShare& share, const Tensor& written) const;

  // The weights become the anchor; all else becomes 0.
  void restart();

  // Differences of a fragment become anchor + lead - weights: what this worker has learned since
  // the round began.
  void take_differences(int fragment);
  // Adds leads where differences are anchor - weights already.
  void add_leads_to_differences(int fragment);

  // Leads become how far this step would move anchors by the differences of this worker. Weights
  // end anywhere. REQUIRES: there are leads.
  void take_leads(const OuterStep& step, const std::vector<double>& divisors);
  // Weights of a fragment become anchor + lead.
  void begin_round(int fragment);

  // Gives weights and anchor each other's values.
  void exchange_anchor();

  // Differences become the anchor.
  void keep_anchor();

  // Leads become 0.
  void drop_leads();

  // The anchor of a fragment becomes its mean over workers at the round's end, from the sum of
  // what each had learned since it was there; weights, too. Nothing else changes.
  void take_mean(int fragment, int workers);

  // Moves the anchor of a fragment by its differences, each divided by its parameter's divisor.
  // Weights become the anchor, but for a share `mix` of themselves. REQUIRES: mix is 0 where there
  // are leads, or where the step writes differences.
  void move_anchor(int fragment,
                   const OuterStep& step,
                   const std::vector<double>& divisors,
                   double mix = 0.0);
  // Moves the anchor of one share, whose differences are 0 afterwards.
  void move_anchor_at(const OuterShare& share, const OuterStep& step);
  void scale_momentum(double factor);

  // Leads to the mean of end points, and moves nothing.
  [[nodiscard]] static OuterStep step_to_mean(int workers);

  // A step with its scale divided by what its parameter's is.
  [[nodiscard]] OuterStep step_of(const OuterShare& share,
                                  OuterStep step,
                                  const std::vector<double>& divisors) const;

  // Squares of what shares that count have, by parameter of the model.
  [[nodiscard]] std::vector<double> squares_of_differences(int fragment);
  [[nodiscard]] std::vector<double> squares_of_momentum();
  // The same of what this step would subtract from anchors, over its lr.
  [[nodiscard]] std::vector<double> squares_of_changes(const OuterStep& step,
                                                       const std::vector<double>& divisors);

  // Elements of the momentum, in shares that count, at least so large whatever their sign.
  [[nodiscard]] double count_of_momentum(float limit);

  // The parameters of the rank's pieces, among those of the model.
  [[nodiscard]] const std::vector<std::size_t>& parameters() const { return parameters_; }

  // By parameter of the model; 0: not trained.
  [[nodiscard]] const std::vector<double>& elements() const { return elements_; }

  // Elements of the model in a fragment.
  [[nodiscard]] double elements_of(int fragment) const;

 private:
  [[nodiscard]] Tensor view(const Buffer& buffer, const OuterShare& share) const;
  [[nodiscard]] std::vector<double> squares_of(const Buffer& buffer,
                                               const std::vector<OuterShare>& shares);

  [[nodiscard]] std::size_t parameter_of(const OuterShare& share) const {
    return parameters_[share.piece];
  }

  MeshModel* model_;
  std::vector<std::size_t> parameters_;  // of the rank's pieces, among those of the model
  std::vector<int> fragments_;           // of the model's parameters
  std::vector<double> elements_;         // likewise
  std::vector<OuterShare> shares_;
  Buffer anchor_;
  Buffer momentum_;
  Buffer difference_;
  Buffer lead_;
};

// Adds numbers up in their order.
[[nodiscard]] double sum_of(const std::vector<double>& numbers);

}  // namespace slackline
