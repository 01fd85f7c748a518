#include "parallel/predict/timeline/chrome_trace.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "core/file_errors.h"
#include "core/file_io.h"
#include "core/joined_text.h"
#include "core/json_reader.h"
#include "core/json_string.h"
#include "parallel/schedule/printer.h"

namespace slackline::schedule {

namespace {

constexpr double kMicroseconds = 1e6;
constexpr double kMicrosecond = 1e-6;

std::string name_event(const char* kind, int rank, int thread, const std::string& name) {
  return fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})",
                     kind,
                     rank,
                     thread,
                     json_string(name));
}

// To the nanosecond.
std::string bar_event(const TraceBar& bar, int thread) {
  return fmt::format(R"({{"ph":"X","name":{},"pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f}}})",
                     json_string(bar.name),
                     bar.rank,
                     thread,
                     kMicroseconds * bar.start.value,
                     kMicroseconds * bar.duration.value);
}

std::vector<TraceBar> read_events(JsonReader document) {
  constexpr std::int64_t kMostRanks = 1 << 20;
  std::map<std::pair<std::int64_t, std::int64_t>, std::string> tracks;  // by rank and thread
  std::vector<TraceBar> bars;
  for (JsonReader& event : document.sections("traceEvents")) {
    const std::string phase = event.string("ph");
    const std::int64_t rank = event.integer("pid", {.min = 0, .max = kMostRanks});
    const std::int64_t thread = event.integer("tid", {.min = 0});
    const std::string name = event.string("name");
    if (phase == "M" && name == "thread_name") {
      tracks[{rank, thread}] = event.section("args").string("name");
    } else if (phase == "X") {
      bars.push_back({.rank = static_cast<int>(rank),
                      .track = tracks[{rank, thread}],
                      .name = name,
                      .start = {kMicrosecond * event.number("ts")},
                      .duration = {kMicrosecond * event.number("dur", {.min = 0.0})}});
    }
  }
  return bars;
}

}  // namespace

std::string chrome_trace(const std::vector<TraceBar>& bars) {
  std::vector<std::string> events;
  std::map<int, std::map<std::string, int>> threads;  // by rank and track
  for (const TraceBar& bar : bars) {
    const bool new_rank = !threads.contains(bar.rank);
    std::map<std::string, int>& of_rank = threads[bar.rank];
    const auto [track, new_track] = of_rank.emplace(bar.track, static_cast<int>(of_rank.size()));
    if (new_rank) {
      events.push_back(name_event("process_name", bar.rank, 0, fmt::format("rank {}", bar.rank)));
    }
    if (new_track) {
      events.push_back(name_event("thread_name", bar.rank, track->second, bar.track));
    }
    events.push_back(bar_event(bar, track->second));
  }
  return "{\"traceEvents\":[\n" + joined(events, ",\n") + "\n]}\n";
}

std::vector<TraceBar> read_trace(const std::string& path) {
  const std::string text = read_file(path);
  return reading(path, [&] { return read_events(JsonReader::parse(text, path)); });
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
