#include "tools/report/run_comparison.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace slackline {
namespace {

const CurveComparison& comparison_of(const std::vector<CurveComparison>& all,
                                     const std::string& quantity) {
  for (const CurveComparison& one : all) {
    if (one.quantity == quantity) {
      return one;
    }
  }
  throw Error("no " + quantity);
}

}  // namespace

TEST_CASE(
    "step and evaluation lines become curves, null becomes NaN, a cut last line is left out") {
  const TemporaryDirectory run;
  write_file_atomically(run.file("metrics.jsonl"),
                        "{\"step\": 1, \"loss\": 4.5, \"grad_norm\": 2, \"lr\": 0.1}\n"
                        "{\"step\": 1, \"eval_loss\": 4.25}\n"
                        "{\"step\": 2, \"loss\": null, \"grad_norm\": null}\n"
                        "{\"step\": 3, \"lo");
  const MetricCurves curves = read_metric_curves(run.path());
  CHECK(curves.at("loss").at(1) == 4.5);
  CHECK(curves.at("eval_loss").at(1) == 4.25);
  CHECK(std::isnan(curves.at("loss").at(2)));
  CHECK(curves.at("loss").size() == 2);
  CHECK(curves.size() == 3);
}

TEST_CASE("a last line that is whole and no JSON, as a loss of power leaves it, is left out") {
  const TemporaryDirectory run;
  const std::string first = "{\"step\": 1, \"loss\": 4.5, \"grad_norm\": 2}\n";
  const std::string damaged(5, '\0');
  write_file_atomically(run.file("metrics.jsonl"), first + damaged + "\n");
  CHECK(read_metric_curves(run.path()) ==
        MetricCurves{{"loss", {{1, 4.5}}}, {"grad_norm", {{1, 2.0}}}});
  write_file_atomically(run.file("metrics.jsonl"), first + damaged + "\n" + first);
  CHECK_THROWS_AS(read_metric_curves(run.path()), FileError);
}

TEST_CASE("a line that is not one of metrics is named, and so is a missing file") {
  const TemporaryDirectory run;
  CHECK_THROWS_AS(read_metric_curves(run.path()), FileError);
  CHECK_THROWS_WITH(read_metric_curves(run.path()), Catch::Contains("metrics.jsonl: cannot"));
  write_file_atomically(run.file("metrics.jsonl"), "{\"step\": 1, \"loss\": 4}\n{\"loss\": 4}\n");
  CHECK_THROWS_AS(read_metric_curves(run.path()), FileError);
  CHECK_THROWS_WITH(read_metric_curves(run.path()),
                    Catch::Contains("metrics.jsonl: line 2: step: required key is missing"));
}

TEST_CASE("common steps without a number in both runs are counted") {
  const double nan = std::nan("");
  const CurveComparison loss = compare_curves({{"loss", {{1, 4.0}, {2, nan}, {3, nan}}}},
                                              {{"loss", {{1, 4.0}, {2, nan}, {3, 2.0}, {4, nan}}}})
                                   .at(0);
  CHECK(loss.num_common == 3);
  CHECK(loss.num_not_finite == 1);
  CHECK(std::isinf(loss.largest_relative()));
}

TEST_CASE("first and largest difference are found over common steps") {
  const MetricCurves a = {{"loss", {{1, 4.0}, {2, 3.0}, {3, 2.0}, {4, 1.0}}}};
  const MetricCurves b = {{"loss", {{2, 3.0}, {3, 2.5}, {4, 2.0}, {5, 9.0}, {6, 9.0}}},
                          {"grad_norm", {{2, 1.0}}}};
  const std::vector<CurveComparison> all = compare_curves(a, b);
  REQUIRE(all.size() == 2);
  const CurveComparison& loss = comparison_of(all, "loss");
  CHECK(loss.num_common == 3);
  CHECK(loss.num_only_a == 1);
  CHECK(loss.num_only_b == 2);
  CHECK(loss.first->step == 3);
  CHECK(loss.first->relative == Approx(0.2));
  CHECK(loss.largest->step == 4);
  CHECK(loss.largest_relative() == Approx(0.5));
  CHECK(comparison_of(all, "grad_norm").num_common == 0);
  CHECK(comparison_of(all, "grad_norm").num_only_b == 1);
}

TEST_CASE("equal values do not differ, zeros and two NaN included; one NaN differs without bound") {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const MetricCurves a = {{"loss", {{1, 0.0}, {2, kNan}, {3, 5.0}}}};
  const CurveComparison same = compare_curves(a, a).front();
  CHECK(same.num_common == 3);
  CHECK_FALSE(same.first);
  CHECK(same.largest_relative() == 0.0);
  const MetricCurves b = {{"loss", {{1, 0.0}, {2, 4.0}, {3, 5.0}}}};
  CHECK(std::isinf(compare_curves(a, b).front().largest_relative()));
}

}  // namespace slackline
