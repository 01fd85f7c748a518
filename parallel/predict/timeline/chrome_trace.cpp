#include "parallel/predict/timeline/chrome_trace.h"

#include <cstddef>
#include <iomanip>
#include <map>
#include <sstream>
#include <utility>

#include "core/json_string.h"
#include "parallel/schedule/printer.h"

namespace slackline::schedule {

namespace {

constexpr double kMicroseconds = 1e6;
constexpr int kDigits = 3;  // nanoseconds

void append_name(
    std::ostream& out, const char* kind, int rank, int thread, const std::string& name) {
  out << R"({"ph":"M","name":")" << kind << R"(","pid":)" << rank << R"(,"tid":)" << thread
      << R"(,"args":{"name":)" << json_string(name) << "}}";
}

void append_bar(std::ostream& out, const TraceBar& bar, int thread) {
  out << R"({"ph":"X","name":)" << json_string(bar.name) << R"(,"pid":)" << bar.rank << R"(,"tid":)"
      << thread << R"(,"ts":)" << kMicroseconds * bar.start.value << R"(,"dur":)"
      << kMicroseconds * bar.duration.value << "}";
}

}  // namespace

std::string chrome_trace(const std::vector<TraceBar>& bars) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(kDigits) << "{\"traceEvents\":[\n";
  const char* separator = "";
  std::map<int, std::map<std::string, int>> threads;  // by rank and track
  for (const TraceBar& bar : bars) {
    const bool new_rank = !threads.contains(bar.rank);
    std::map<std::string, int>& of_rank = threads[bar.rank];
    const auto [track, new_track] = of_rank.emplace(bar.track, static_cast<int>(of_rank.size()));
    if (new_rank) {
      out << std::exchange(separator, ",\n");
      append_name(out, "process_name", bar.rank, 0, "rank " + std::to_string(bar.rank));
    }
    if (new_track) {
      out << std::exchange(separator, ",\n");
      append_name(out, "thread_name", bar.rank, track->second, bar.track);
    }
    out << std::exchange(separator, ",\n");
    append_bar(out, bar, track->second);
  }
  out << "\n]}\n";
  return out.str();
}

std::vector<TraceBar> trace_bars(const Schedule& schedule, const Timeline& timeline) {
  std::vector<TraceBar> bars;
  std::vector<Seconds> free(timeline.ranks.size());  // since when each rank has waited
  for (const int id : timeline.order) {
    const TimelineNode& node = timeline.nodes[static_cast<std::size_t>(id)];
    const bool computes = node.kind == NodeKind::op && is_compute(node.op.kind);
    if (computes || node.kind == NodeKind::optimizer) {
      Seconds& since = free[static_cast<std::size_t>(node.rank)];
      if (node.start > since) {
        bars.push_back({node.rank, "waiting", "waiting", since, node.start - since});
      }
      const std::string name = computes ? op_text(schedule, node.op) : "optimizer";
      bars.push_back({node.rank, "compute", name, node.start, node.duration()});
      since = node.end;
    } else if (is_transfer(node.kind) && !is_empty_part(node)) {
      const std::string track = site_name(node.members.site);
      const bool sent = node.kind == NodeKind::transfer;
      const std::string name = sent ? op_text(schedule, node.op) : track;
      bars.push_back({node.rank, track, name, node.start, node.duration()});
    }
  }
  return bars;
}

}  // namespace slackline::schedule
