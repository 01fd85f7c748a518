#include "parallel/step/outer_memory.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/update/sum_of_squares.h"
#include "model/parameter_table.h"

namespace slackline {

namespace {

Buffer flat_buffer(const char* name, std::size_t elements, MeshModel& model) {
  return {name, elements * size_of(DType::f32), backing_of(model.stream().device())};
}

std::vector<std::size_t> parameters_of(const std::vector<OptimizerPiece>& pieces,
                                       const std::vector<ParameterSpec>& table) {
  std::vector<std::size_t> parameters;
  parameters.reserve(pieces.size());
  for (const OptimizerPiece& piece : pieces) {
    const auto found = std::ranges::find(table, piece.parameter->spec.name, &ParameterSpec::name);
    parameters.push_back(static_cast<std::size_t>(found - table.begin()));
  }
  return parameters;
}

std::vector<int> values_at(const std::vector<int>& values, const std::vector<std::size_t>& at) {
  std::vector<int> found(at.size());
  std::ranges::transform(at, found.begin(), [&](std::size_t i) { return values[i]; });
  return found;
}

std::vector<OuterShare> shares_for(const MeshModel& model,
                                   const std::vector<int>& fragments,
                                   const std::optional<OuterMemory::Owner>& owner) {
  const std::vector<OuterShare> all = outer_shares(model.pieces(), fragments);
  return owner ? owned_shares(all, owner->worker, owner->workers) : all;
}

}  // namespace

double sum_of(const std::vector<double>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0);
}

OuterStep OuterMemory::step_to_mean(int workers) {
  return {.lr = 1.0, .momentum = 0.0, .scale = 1.0 / workers, .writes = OuterWrites::weight};
}

OuterMemory::OuterMemory(MeshModel& model,
                         int fragments,
                         Leads leads,
                         const std::optional<Owner>& owner)
    : model_(&model),
      parameters_(parameters_of(model.pieces(), parameter_table(model.job().model))),
      fragments_(fragments_of(parameter_table(model.job().model), fragments)),
      shares_(shares_for(model, values_at(fragments_, parameters_), owner)),
      anchor_(flat_buffer("outer anchor", slackline::elements_of(shares_), model)),
      momentum_(flat_buffer("outer momentum", slackline::elements_of(shares_), model)),
      difference_(flat_buffer("outer difference", slackline::elements_of(shares_), model)),
      lead_(leads == Leads::yes ? flat_buffer("outer lead", slackline::elements_of(shares_), model)
                                : Buffer()) {
  for (const ParameterSpec& spec : parameter_table(model.job().model)) {
    elements_.push_back(spec.trained ? static_cast<double>(spec.shape.num_elements()) : 0.0);
  }
}

std::vector<OuterShare> OuterMemory::shares_of(int fragment) const {
  std::vector<OuterShare> list;
  std::ranges::copy_if(shares_, std::back_inserter(list), [&](const OuterShare& share) {
    return share.fragment == fragment;
  });
  return list;
}

Tensor OuterMemory::differences() const {
  return difference_.row(DType::f32);
}

Tensor OuterMemory::view(const Buffer& buffer, const OuterShare& share) const {
  return part_of(buffer.row(DType::f32), {share.first, share.first + share.range.count()});
}

Tensor OuterMemory::weight(const OuterShare& share) const {
  const std::size_t begin = model_->pieces()[share.piece].range.begin;
  return part_of(model_->optimizer().tensors()[share.piece].weight,
                 {share.range.begin - begin, share.range.end - begin});
}

OuterTensors OuterMemory::tensors_of(const OuterShare& share, const Tensor& written) const {
  return {.difference = difference(share),
          .momentum = momentum(share),
          .anchor = anchor(share),
          .weight = written};
}

void OuterMemory::restart() {
  const StreamView stream = model_->stream();
  for (const OuterShare& share : shares_) {
    cast(stream, weight(share), anchor(share));
  }
  fill_zero(stream, momentum_.row(DType::f32));
  fill_zero(stream, difference_.row(DType::f32));
  drop_leads();
}

void OuterMemory::take_differences(int fragment) {
  for (const OuterShare& share : shares_of(fragment)) {
    scale(model_->stream(), weight(share), -1.0F, difference(share));
    accumulate(model_->stream(), anchor(share), difference(share));
  }
  add_leads_to_differences(fragment);
}

void OuterMemory::add_leads_to_differences(int fragment) {
  if (lead_.bytes() == 0) {
    return;
  }
  for (const OuterShare& share : shares_of(fragment)) {
    accumulate(model_->stream(), lead(share), difference(share));
  }
}

void OuterMemory::take_leads(const OuterStep& step, const std::vector<double>& divisors) {
  const StreamView stream = model_->stream();
  for (const OuterShare& share : shares_) {
    OuterStep ahead = step_of(share, step, divisors);
    ahead.writes = OuterWrites::weight;
    outer_step(stream, tensors_of(share, weight(share)), ahead);
    scale(stream, anchor(share), -1.0F, lead(share));
    accumulate(stream, weight(share), lead(share));
  }
}

void OuterMemory::begin_round(int fragment) {
  for (const OuterShare& share : shares_of(fragment)) {
    cast(model_->stream(), anchor(share), weight(share));
    if (lead_.bytes() > 0) {
      accumulate(model_->stream(), lead(share), weight(share));
    }
  }
}

void OuterMemory::exchange_anchor() {
  for (const OuterShare& share : shares_) {
    exchange(model_->stream(), weight(share), anchor(share));
  }
}

void OuterMemory::keep_anchor() {
  cast(model_->stream(), anchor_.row(DType::f32), difference_.row(DType::f32));
}

void OuterMemory::drop_leads() {
  if (lead_.bytes() > 0) {
    fill_zero(model_->stream(), lead_.row(DType::f32));
  }
}

void OuterMemory::take_mean(int fragment, int workers) {
  for (const OuterShare& share : shares_of(fragment)) {
    outer_step(model_->stream(), tensors_of(share, weight(share)), step_to_mean(workers));
    cast(model_->stream(), weight(share), anchor(share));
  }
}

OuterStep OuterMemory::step_of(const OuterShare& share,
                               OuterStep step,
                               const std::vector<double>& divisors) const {
  step.scale /= divisors[parameter_of(share)];
  return step;
}

void OuterMemory::move_anchor(int fragment,
                              const OuterStep& step,
                              const std::vector<double>& divisors,
                              double mix) {
  const StreamView stream = model_->stream();
  for (const OuterShare& share : shares_of(fragment)) {
    // The step writes the anchor in place of weights; where they are mixed, in place of leads.
    const Tensor made = mix > 0.0 ? lead(share) : weight(share);
    outer_step(stream, tensors_of(share, made), step_of(share, step, divisors));
    if (mix > 0.0) {
      scale(stream, made, static_cast<float>(1.0 - mix), made);
      scale(stream, weight(share), static_cast<float>(mix), weight(share));
      accumulate(stream, made, weight(share));
      fill_zero(stream, made);
    }
  }
}

void OuterMemory::move_anchor_at(const OuterShare& share, const OuterStep& step) {
  outer_step(model_->stream(), tensors_of(share, weight(share)), step);
  fill_zero(model_->stream(), difference(share));
}

void OuterMemory::scale_momentum(double factor) {
  scale(model_->stream(),
        momentum_.row(DType::f32),
        static_cast<float>(factor),
        momentum_.row(DType::f32));
}

std::vector<double> OuterMemory::squares_of(const Buffer& buffer,
                                            const std::vector<OuterShare>& shares) {
  std::vector<double> squares(elements_.size(), 0.0);
  std::vector<Tensor> tensors;
  tensors.reserve(shares.size());
  for (const OuterShare& share : shares) {
    tensors.push_back(view(buffer, share));
  }
  const std::vector<double> sums = sums_of_squares(model_->stream(), tensors);
  for (std::size_t i = 0; i < shares.size(); ++i) {
    squares[parameter_of(shares[i])] += shares[i].counted ? sums[i] : 0.0;
  }
  return squares;
}

std::vector<double> OuterMemory::squares_of_differences(int fragment) {
  return squares_of(difference_, shares_of(fragment));
}

std::vector<double> OuterMemory::squares_of_momentum() {
  return squares_of(momentum_, shares_);
}

// Shares have divisors of their own, so each is a call.
std::vector<double> OuterMemory::squares_of_changes(const OuterStep& step,
                                                    const std::vector<double>& divisors) {
  std::vector<double> squares(elements_.size(), 0.0);
  for (const OuterShare& share : shares_) {
    if (share.counted) {
      const OuterMemories memories{.momentum = momentum(share), .difference = difference(share)};
      squares[parameter_of(share)] += sums_of_squared_changes(
          model_->stream(), {&memories, 1}, step_of(share, step, divisors))[0];
    }
  }
  return squares;
}

double OuterMemory::count_of_momentum(float limit) {
  std::vector<Tensor> counted;
  for (const OuterShare& share : shares_) {
    if (share.counted) {
      counted.push_back(momentum(share));
    }
  }
  return count_at_least(model_->stream(), counted, limit);
}

double OuterMemory::elements_of(int fragment) const {
  double sum = 0.0;
  for (std::size_t i = 0; i < elements_.size(); ++i) {
    sum += fragments_[i] == fragment ? elements_[i] : 0.0;
  }
  return sum;
}

}  // namespace slackline
