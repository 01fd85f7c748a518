#include "tools/report/page.h"

#include <fmt/format.h>

#include "tools/report/charts/gantt_chart.h"
#include "tools/report/charts/page_style.h"
#include "tools/report/sections.h"

namespace slackline::report {

namespace {

// The policy is a second lock behind escaping: whatever got into the page, nothing would run or be
// fetched.
constexpr char kHead[] = R"(<meta charset="utf-8">)"
                         "\n"
                         R"(<meta name="viewport" content="width=device-width, initial-scale=1">)"
                         "\n"
                         R"(<meta name="color-scheme" content="light dark">)"
                         "\n"
                         R"(<meta http-equiv="Content-Security-Policy" )"
                         R"(content="default-src 'none'; style-src 'unsafe-inline'">)"
                         "\n";

Html run_section(const RunRecord& run) {
  Html all = text_element("h2", fmt::format("Run {}", run.directory));
  all += facts_section(run);
  all += data_section(run);
  all += loss_section(run);
  all += step_time_section(run);
  all += rounds_section(run);
  all += timeline_section(run);
  all += bytes_section(run);
  return element("section", {{"class", "run"}}, all);
}

std::string title_of(const std::vector<RunRecord>& runs, const std::vector<SweepRecord>& sweeps) {
  const std::size_t number = runs.size() + sweeps.size();
  const std::string& first = sweeps.empty() ? runs.front().directory : sweeps.front().directory;
  return number == 1 ? fmt::format("Slackline: {}", first)
                     : fmt::format("Slackline: {} and {} more", first, number - 1);
}

}  // namespace

std::string page(const std::vector<RunRecord>& runs, const std::vector<SweepRecord>& sweeps) {
  const std::string title = title_of(runs, sweeps);
  Html head = Html::literal(kHead);
  head += text_element("title", title);
  head += page_style();
  Html body = chart_patterns();
  body += text_element("h1", title);
  for (const SweepRecord& sweep : sweeps) {
    body += sweep_section(sweep);
  }
  if (runs.size() > 1) {
    body += comparison_section(runs);
  }
  for (const RunRecord& run : runs) {
    body += run_section(run);
  }
  Html content = element("head", {}, head);
  content += element("body", {}, element("main", {}, body));
  return fmt::format("{}{}\n", kPageStart, element("html", {{"lang", "en"}}, content).str());
}

}  // namespace slackline::report
