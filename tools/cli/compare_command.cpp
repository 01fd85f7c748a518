#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/shown_text.h"
#include "core/terminal.h"
#include "tools/cli/commands.h"
#include "tools/report/run_comparison.h"

namespace slackline {

namespace {

// The contract's codes have none for an answer "no"; 1 is what diff and cmp return.
constexpr ExitCode kDiffers{1};

struct CompareOptions {
  std::string run_a;
  std::string run_b;
  double tolerance = 0.0;
};

void print_difference(const char* which, const Difference& difference) {
  print_lines(fmt::format("  {} difference at step {}: {} and {}, relative {:.3g}\n",
                          which,
                          difference.step,
                          difference.a,
                          difference.b,
                          difference.relative));
}

void print(const CurveComparison& curve) {
  const std::string alone =
      curve.num_only_a + curve.num_only_b > 0
          ? fmt::format(" ({} only in A, {} only in B)", curve.num_only_a, curve.num_only_b)
          : "";
  const std::string without =
      curve.num_not_finite > 0
          ? fmt::format(", {} of them without a number in both", curve.num_not_finite)
          : "";
  print_lines(fmt::format("{}: {} common steps{}{}{}\n",
                          shown_value(curve.quantity),
                          curve.num_common,
                          without,
                          alone,
                          curve.first ? "" : ", equal"));
  if (curve.first) {
    print_difference("first", *curve.first);
    print_difference("largest", *curve.largest);
  }
}

ExitCode compare(const CompareOptions& options) {
  const std::vector<CurveComparison> curves =
      compare_curves(read_metric_curves(options.run_a), read_metric_curves(options.run_b));
  const auto losses = std::ranges::find(curves, "loss", &CurveComparison::quantity);
  if (losses == curves.end() || losses->num_common == 0) {
    throw FileError(options.run_b + "/metrics.jsonl: has no step in common with " + options.run_a);
  }
  if (losses->num_not_finite == losses->num_common) {
    throw FileError(options.run_b + "/metrics.jsonl: has no loss that is a number in common with " +
                    options.run_a);
  }
  double largest = 0.0;
  for (const CurveComparison& curve : curves) {
    print(curve);
    largest = std::max(largest, curve.largest_relative());
  }
  const bool same = largest <= options.tolerance;
  print_lines(fmt::format("{}: largest relative difference {:.3g}, tolerance {:.3g}\n",
                          same ? "same" : "differs",
                          largest,
                          options.tolerance));
  return same ? ExitCode::done : kDiffers;
}

}  // namespace

void add_compare_command(Command root, ExitCode& code) {
  auto options = std::make_shared<CompareOptions>();
  Command command = root.add_command("compare", "Compare the losses of two runs step by step");
  command.option("RUN_A", &options->run_a, "Run directory", {.required = true});
  command.option("RUN_B", &options->run_b, "Run directory", {.required = true});
  command.option("--tolerance",
                 &options->tolerance,
                 "Largest relative difference |a - b| / max(|a|, |b|) that counts as the same",
                 {.required = true, .limit = Limit::not_negative});
  command.footer(
      "Compares loss, grad_norm and eval_loss of metrics.jsonl over the steps that both runs "
      "have;\n"
      "steps of one run alone are counted and not compared. Ends with 0 when every difference is\n"
      "within the tolerance, with 1 and a last line \"differs\" when not, with 3 when a run "
      "cannot\n"
      "be read or they have no step with a loss in common.\n"
      "Example: slackline compare runs/first runs/second --tolerance 1e-6");
  command.runs([options, &code] { code = compare(*options); });
}

}  // namespace slackline
