#pragma once

#include <limits>
#include <string>

namespace slackline::report {

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// Numbers for people; "-" for what is not finite.
[[nodiscard]] std::string number_text(double value);     // four digits, or a whole number
[[nodiscard]] std::string percent_text(double share);    // of 1
[[nodiscard]] std::string seconds_text(double seconds);  // "12.3 ms"
[[nodiscard]] std::string bytes_text(double bytes);      // "1.5 MB": powers of 1000

// The unit in which a chart shows times up to `largest` seconds.
struct TimeUnit {
  const char* name = "s";
  double per_second = 1.0;
};

[[nodiscard]] TimeUnit time_unit(double largest);

}  // namespace slackline::report
