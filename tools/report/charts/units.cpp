#include "tools/report/charts/units.h"

#include <array>
#include <cmath>
#include <cstddef>

#include <fmt/format.h>

namespace slackline::report {

std::string number_text(double value) {
  constexpr double kLeastWhole = 1e3;
  constexpr double kMostWhole = 1e12;
  if (!std::isfinite(value)) {
    return "-";
  }
  const double size = std::abs(value);
  return size >= kLeastWhole && size < kMostWhole ? fmt::format("{:.0f}", value)
                                                  : fmt::format("{:.4g}", value);
}

std::string percent_text(double share) {
  return std::isfinite(share) ? fmt::format("{:.1f} %", 100.0 * share) : "-";
}

TimeUnit time_unit(double largest) {
  constexpr double kMilli = 1e-3;
  if (largest >= 1.0 || largest <= 0.0) {
    return {};
  }
  return largest >= kMilli ? TimeUnit{.name = "ms", .per_second = 1e3}
                           : TimeUnit{.name = "µs", .per_second = 1e6};
}

std::string seconds_text(double seconds) {
  if (!std::isfinite(seconds)) {
    return "-";
  }
  const TimeUnit unit = time_unit(std::abs(seconds));
  return fmt::format("{:.4g} {}", seconds * unit.per_second, unit.name);
}

std::string bytes_text(double bytes) {
  constexpr std::array<const char*, 6> kUnits = {"B", "kB", "MB", "GB", "TB", "PB"};
  constexpr double kThousand = 1e3;
  if (!std::isfinite(bytes)) {
    return "-";
  }
  std::size_t unit = 0;
  while (std::abs(bytes) >= kThousand && unit + 1 < kUnits.size()) {
    bytes /= kThousand;
    ++unit;
  }
  return fmt::format("{:.4g} {}", bytes, kUnits[unit]);
}

}  // namespace slackline::report
