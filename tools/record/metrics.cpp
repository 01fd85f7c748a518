#include "tools/record/metrics.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/joined_text.h"
#include "core/json_string.h"
#include "parallel/plan/transfer_class_json.h"

namespace slackline {

namespace {

std::string axes_text(const StepRecord& record) {
  std::string text;
  for (std::size_t i = 0; i < kReportedAxes.size(); ++i) {
    if (i == kOuterAxis && !record.has_workers) {
      continue;
    }
    const AxisTraffic& axis = record.axes[i];
    text += fmt::format(
        R"({}"{}": {{"raw_bytes": {:.0f}, "sent_bytes": {:.0f}, {}"exposed_seconds": {}}})",
        i == 0 ? "" : ", ",
        kReportedAxes[i],
        axis.raw_bytes,
        axis.sent_bytes,
        axis.across_bytes ? fmt::format(R"("across_bytes": {:.0f}, )", *axis.across_bytes) : "",
        json_number(axis.exposed_seconds));
  }
  return text;
}

std::string quality_text(const ClassQuality& row) {
  std::string text = fmt::format(R"({{{}, "elements": {}, "relative_error": {}, )"
                                 R"("cosine": {}, "raw_norm": {}, "residual_norm": {})",
                                 transfer_class_members(row.members),
                                 row.elements,
                                 json_number(row.relative_error),
                                 json_number(row.cosine),
                                 json_number(row.raw_norm),
                                 json_number(row.residual_norm));
  if (row.lazy) {
    text += fmt::format(R"(, "activation_cosine": {}, "residual_mean": {}, "residual_rms": {}, )"
                        R"("activation_difference_mean": {}, "activation_difference_rms": {})",
                        json_number(row.lazy->activation_cosine),
                        json_number(row.lazy->residual_mean),
                        json_number(row.lazy->residual_rms),
                        json_number(row.lazy->activation_difference_mean),
                        json_number(row.lazy->activation_difference_rms));
  }
  return text + "}";
}

// Writes what sampled steps measured, for the end of their lines.
std::string compression_text(const StepRecord& record) {
  return record.compression.empty()
             ? ""
             : fmt::format(R"(, "compression": [{}])",
                           joined_of(record.compression, ", ", quality_text));
}

// Writes how a round has travelled, behind the other fields of `outer`.
std::string travel_text(const std::optional<TravelRecord>& travel) {
  return travel ? fmt::format(R"(, "sent_step": {}, "round_seconds": {}, "period_seconds": {}, )"
                              R"("wait_seconds": {})",
                              travel->sent_step,
                              json_number(travel->round_seconds),
                              json_number(travel->period_seconds),
                              json_number(travel->wait_seconds))
                : "";
}

// Writes what the end of an outer round adds to a line.
std::string round_text(const StepRecord& record) {
  if (!record.round) {
    return "";
  }
  const std::optional<double>& clipped = record.round->clipped;
  return fmt::format(R"(, "worker_losses": [{}], "outer": {{"penalty": {}, "distance": {}, )"
                     R"("period": {}, "left_out": {}{}{}}})",
                     joined_of(record.round->worker_losses, ", ", json_number),
                     json_number(record.round->penalty),
                     json_number(record.round->distance),
                     record.round->period,
                     record.round->left_out,
                     clipped ? fmt::format(R"(, "clipped": {})", json_number(*clipped)) : "",
                     travel_text(record.round->travel));
}

// Empty where one rank had nobody to wait for.
std::string waits_text(const StepRecord& record) {
  if (record.seconds.bubble + record.seconds.exposed == 0.0) {
    return "";
  }
  const double percent = 100.0 / record.step_seconds;
  std::string text = fmt::format(" | compute {:.0f} %, bubble {:.0f} %",
                                 percent * record.seconds.compute,
                                 percent * record.seconds.bubble);
  for (std::size_t i = 0; i < kReportedAxes.size(); ++i) {
    if (record.axes[i].sent_bytes > 0.0) {
      text +=
          fmt::format(", {} {:.0f} %", kReportedAxes[i], percent * record.axes[i].exposed_seconds);
    }
  }
  return text;
}

// Model FLOPs utilization, of the dense peak.
std::string utilization_text(double flops, std::optional<double> peak) {
  if (!peak) {
    return "";
  }
  return *peak > 0.0 ? fmt::format(", MFU {:.1f} %", 100.0 * flops / *peak) : ", MFU n/a";
}

}  // namespace

std::string step_line(const StepRecord& record) {
  return fmt::format(R"({{"step": {}, "loss": {}, "grad_norm": {}, "lr": {}, "tokens": {}, )"
                     R"("step_seconds": {}, "tokens_per_second": {}, )"
                     R"("seconds": {{"compute": {}, "bubble": {}, "exposed": {}, "other": {}}}, )"
                     R"("axes": {{{}}}, "slowest": {{"rank": {}, "host": {}, )"
                     R"("compute_seconds": {}}}, "time": {:.3f}{}{}{}}})",
                     record.step,
                     json_number(record.loss),
                     json_number(record.grad_norm),
                     json_number(record.lr),
                     record.tokens,
                     json_number(record.step_seconds),
                     json_number(static_cast<double>(record.tokens) / record.step_seconds),
                     json_number(record.seconds.compute),
                     json_number(record.seconds.bubble),
                     json_number(record.seconds.exposed),
                     json_number(record.seconds.other),
                     axes_text(record),
                     record.slowest.rank,
                     json_string(record.slowest.host),
                     json_number(record.slowest.compute_seconds),
                     record.time,
                     round_text(record),
                     compression_text(record),
                     record.skipped ? R"(, "skipped": true)" : "");
}

std::string evaluation_line(std::int64_t step, double loss, double time) {
  return fmt::format(
      R"({{"step": {}, "eval_loss": {}, "time": {:.3f}}})", step, json_number(loss), time);
}

std::string console_line(const StepRecord& record, const ConsoleContext& context) {
  const double tokens_per_second = static_cast<double>(record.tokens) / record.step_seconds;
  const double left = static_cast<double>(context.steps - record.step) * context.seconds_per_step;
  const std::string learned = record.rehearsed
                                  ? "rehearsed"
                                  : fmt::format("loss {:.4f} | grad norm {:.3f} | lr {:.2e}",
                                                record.loss,
                                                record.grad_norm,
                                                record.lr);
  const double flops = tokens_per_second * context.flops_per_token;
  return fmt::format("step {}/{} | {} | {:.0f} tokens/s | {:.3f} TFLOP/s{}{} | ETA {}{}",
                     record.step,
                     context.steps,
                     learned,
                     tokens_per_second,
                     flops * 1e-12,
                     utilization_text(flops, context.peak_flops),
                     waits_text(record),
                     duration_text(left),
                     record.skipped ? " | skipped: not finite" : "");
}

std::string duration_text(double seconds) {
  const auto total = static_cast<std::int64_t>(std::llround(std::max(0.0, seconds)));
  const std::int64_t minutes = total / 60;
  const std::int64_t hours = minutes / 60;
  if (hours >= 24) {
    return fmt::format("{}d{:02}h", hours / 24, hours % 24);
  }
  if (hours > 0) {
    return fmt::format("{}h{:02}m", hours, minutes % 60);
  }
  if (minutes > 0) {
    return fmt::format("{}m{:02}s", minutes, total % 60);
  }
  return fmt::format("{}s", total);
}

}  // namespace slackline
