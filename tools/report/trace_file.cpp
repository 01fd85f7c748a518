#include "tools/report/trace_file.h"

#include <cstdint>
#include <map>
#include <utility>

#include "core/file_errors.h"
#include "core/file_io.h"
#include "core/json_reader.h"

namespace slackline::report {

namespace {

constexpr double kMicrosecond = 1e-6;

std::vector<schedule::TraceBar> read_events(JsonReader document) {
  constexpr std::int64_t kMostRanks = 1 << 20;
  std::map<std::pair<std::int64_t, std::int64_t>, std::string> tracks;  // by rank and thread
  std::vector<schedule::TraceBar> bars;
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

std::vector<schedule::TraceBar> read_trace(const std::string& path) {
  const std::string text = read_file(path);
  return reading(path, [&] { return read_events(JsonReader::parse(text, path)); });
}

}  // namespace slackline::report
