// Sums in two shots: on exactly representable inputs, what is owed, and against gathered messages.

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "core/comm/world.h"
#include "core/rng.h"
#include "parallel/channel/compressed_sum.h"
#include "parallel/plan/owned_rows.h"
#include "tests/support/catch.h"

namespace slackline {

namespace {

using Values = std::vector<float>;  // of all matrices of a sum

const std::vector<MatrixShape> kShapes = {{7, 16}, {1, 16}, {12, 16}};
constexpr std::size_t kElements = std::size_t{20} * 16;

CodecSetting integers(int bits, ErrorFeedback feedback, SumWay way = SumWay::two_shot) {
  return {.kind = CodecKind::quantize,
          .error_feedback = feedback,
          .bits = bits,
          .scale = ScaleOf::token,
          .sum = way};
}

// One rank's matrices, and their sum with those of the others.
class Matrices {
 public:
  explicit Matrices(const CodecSetting& setting, const Communicator& group) {
    values_ = make_buffer("values", DType::f32, {static_cast<std::int64_t>(kElements)});
    CodedSum sum{.setting = setting, .ranks = group.size(), .rank = group.rank()};
    std::size_t first = 0;
    for (std::size_t m = 0; m < kShapes.size(); ++m) {
      const MatrixShape& shape = kShapes[m];
      const std::size_t count = shape.num_elements();
      Parameter& parameter = parameters_[m];
      parameter.spec.name = "matrix " + std::to_string(m);
      sum.matrices.push_back({.parameter = &parameter,
                              .elements = {0, count},
                              .shape = {shape.rows, shape.columns},
                              .first = first});
      first += count;
    }
    if (setting.sum == SumWay::two_shot) {
      sum.owners = even_rows(matrix_parts(sum.matrices), group.size());
      sum.two_shot = true;
    }
    sum_ = std::make_unique<CompressedSum>(sum, all(), make_real_codec);
  }

  [[nodiscard]] Values add_up(const Values& own, Communicator& group, std::uint64_t step) {
    std::ranges::copy(own, all().span<float>().begin());
    Stream stream({.name = "codec", .workspace_bytes = std::size_t{1} << 20U});
    sum_->begin({.stream = stream, .worker = worker_}, group, {.seed = 1, .step = step});
    sum_->finish();
    worker_->finish();
    const auto values = all().span<float>();
    return {values.begin(), values.end()};
  }

  [[nodiscard]] Values owed() const {
    Values values;
    for (const Tensor& matrix : sum_->owed()) {
      const auto span = matrix.span<float>();
      values.insert(values.end(), span.begin(), span.end());
    }
    return values;
  }

 private:
  [[nodiscard]] Tensor all() const {
    return values_.view(DType::f32, {static_cast<std::int64_t>(kElements)});
  }

  Buffer values_{};
  std::vector<Parameter> parameters_{kShapes.size()};
  std::unique_ptr<CompressedSum> sum_{};
  std::shared_ptr<Worker> worker_ = std::make_shared<Worker>();
};

struct Result {
  Values sum{};   // as a rank decodes it
  Values owed{};  // by it; empty without error feedback
};

// What each of so many ranks has after the last of some steps.
std::vector<Result> results(int ranks,
                            const CodecSetting& setting,
                            int steps,
                            const std::function<Values(int rank, int step)>& own) {
  std::vector<Result> all(static_cast<std::size_t>(ranks));
  run_local_ranks(ranks, {.timeout_seconds = 60.0}, [&](Communicator& world) {
    Matrices matrices(setting, world);
    Result& result = all[static_cast<std::size_t>(world.rank())];
    for (int step = 1; step <= steps; ++step) {
      result.sum =
          matrices.add_up(own(world.rank(), step), world, static_cast<std::uint64_t>(step));
    }
    result.owed = matrices.owed();
  });
  return all;
}

// Whole numbers that 8 bits of a row keep: its largest is -128.
Values whole_numbers(int /*rank*/, int /*step*/) {
  Values values(kElements);
  for (std::size_t i = 0; i < kElements; ++i) {
    values[i] =
        i % 16 == i / 16 % 16 ? -128.0F : static_cast<float>(static_cast<int>(i * 37 % 255) - 127);
  }
  return values;
}

Values normal_numbers(int rank, int step) {
  Values values;
  while (values.size() < kElements) {
    const auto pair = normal_pair(
        {static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(step)}, values.size() / 2);
    values.push_back(static_cast<float>(pair[0]));
    values.push_back(static_cast<float>(pair[1]));
  }
  return values;
}

Values total(int ranks, int step) {
  Values sum(kElements);
  for (int rank = 0; rank < ranks; ++rank) {
    const Values own = normal_numbers(rank, step);
    std::ranges::transform(sum, own, sum.begin(), std::plus<>());
  }
  return sum;
}

double distance(const Values& a, const Values& b) {
  double sum = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(sum / norm);
}

}  // namespace

TEST_CASE("each row is of one rank, and ranks have as many rows of a matrix but for one") {
  const std::vector<CodecPart> parts = {{.name = "a", .shape = {7, 16}},
                                        {.name = "b", .shape = {1, 16}},
                                        {.name = "c", .shape = {12, 8}}};
  for (const int ranks : {1, 2, 3, 5, 8, 40}) {
    const OwnedRows owners = even_rows(parts, ranks);
    std::vector<std::vector<int>> seen = {
        std::vector<int>(7), std::vector<int>(1), std::vector<int>(12)};
    for (const std::vector<MatrixRows>& rows : owners) {
      for (const MatrixRows& own : rows) {
        REQUIRE(own.count() > 0);
        CHECK(own.count() <= parts[own.matrix].shape.rows / ranks + 1);
        for (std::int64_t row = own.first; row < own.last; ++row) {
          ++seen[own.matrix][static_cast<std::size_t>(row)];
        }
      }
    }
    for (const std::vector<int>& of_matrix : seen) {
      CHECK(std::ranges::all_of(of_matrix, [](int times) { return times == 1; }));
    }
  }
}

TEST_CASE("sums that integers can hold are exact in two shots, and nothing is owed") {
  for (const int ranks : {2, 3, 4, 5, 8}) {
    INFO(ranks << " ranks");
    for (const Result& result :
         results(ranks, integers(8, ErrorFeedback::immediate), 2, whole_numbers)) {
      Values due = whole_numbers(0, 1);
      for (float& value : due) {
        value *= static_cast<float>(ranks);
      }
      REQUIRE(result.sum == due);
      REQUIRE(result.owed == Values(kElements));
    }
  }
}

TEST_CASE("all ranks decode the same sum, also where a rank has no row of it") {
  for (const int ranks : {3, 5, 24}) {
    INFO(ranks << " ranks");
    const std::vector<Result> all =
        results(ranks, integers(4, ErrorFeedback::none), 1, normal_numbers);
    for (const Result& result : all) {
      REQUIRE(result.sum == all.front().sum);
    }
  }
}

// What was brought in two steps is what arrived in them and what ranks still owe, but for fp32
// rounding of sums of some hundreds.
TEST_CASE("what both codings leave out is owed") {
  for (const int ranks : {3, 4}) {
    INFO(ranks << " ranks");
    const CodecSetting setting = integers(2, ErrorFeedback::immediate);
    const Values first = results(ranks, setting, 1, normal_numbers).front().sum;
    const std::vector<Result> second = results(ranks, setting, 2, normal_numbers);
    Values brought = total(ranks, 1);
    Values arrived = first;
    const Values also = total(ranks, 2);
    std::ranges::transform(brought, also, brought.begin(), std::plus<>());
    std::ranges::transform(arrived, second.front().sum, arrived.begin(), std::plus<>());
    REQUIRE(distance(arrived, brought) > 0.1);
    for (const Result& result : second) {
      std::ranges::transform(arrived, result.owed, arrived.begin(), std::plus<>());
    }
    CHECK(distance(arrived, brought) < 1e-5);
  }
}

// The messages' errors, then those of their sum: sqrt(2) where messages know nothing of each other.
TEST_CASE("two shots lose about sqrt(2) times what gathered messages lose") {
  const auto lost = [](SumWay way, ErrorFeedback feedback) {
    const Values sum = results(8, integers(4, feedback, way), 1, normal_numbers).front().sum;
    return distance(sum, total(8, 1));
  };
  const double gathered = lost(SumWay::gather, ErrorFeedback::none);
  CHECK(lost(SumWay::two_shot, ErrorFeedback::none) > 1.2 * gathered);
  CHECK(lost(SumWay::two_shot, ErrorFeedback::none) < 1.6 * gathered);
  // Of its own rows a rank adds what it brought, not what it coded.
  CHECK(lost(SumWay::two_shot, ErrorFeedback::immediate) <
        lost(SumWay::two_shot, ErrorFeedback::none));
}

TEST_CASE("stochastic rounding draws other numbers for the sum than for a message") {
  CodecSetting setting = integers(2, ErrorFeedback::none);
  setting.rounding = Rounding::stochastic;
  double error = 0.0;
  double nearest = 0.0;
  for (int step = 1; step <= 8; ++step) {
    const auto own = [step](int rank, int /*step*/) { return normal_numbers(rank, step); };
    const Values due = total(3, step);
    error += std::pow(distance(results(3, setting, 1, own).front().sum, due), 2);
    nearest += std::pow(
        distance(results(3, integers(2, ErrorFeedback::none), 1, own).front().sum, due), 2);
  }
  // sqrt(2) where errors are independent (tests/equivalence/stochastic_rounding_test.cpp).
  CHECK(std::sqrt(error / nearest) == Approx(std::sqrt(2.0)).epsilon(0.15));
}

}  // namespace slackline
