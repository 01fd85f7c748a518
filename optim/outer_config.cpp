#include "optim/outer_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace slackline {

namespace {

using namespace std::string_view_literals;

// In the order of OuterMethod, OuterPenalty without the constant, OuterReach, OuterClip without
// none, and OuterEnding.
constexpr std::array kMethods = {"none"sv, "co2"sv, "slowmo"sv, "diloco"sv};
constexpr std::array kPenalties = {"none"sv, "gap"sv, "gap_per_tensor"sv};
constexpr std::array kReaches = {"rate"sv, "measured"sv};
constexpr std::array kClipKinds = {"element"sv, "norm"sv};
constexpr std::array kEndings = {"drain"sv, "mean"sv};

constexpr std::int64_t kDefaultPeriod = 12;  // of methods whose steps wait for the round
constexpr double kDefaultMix = 0.5;          // Streaming DiLoCo's
constexpr int kMaxFragments = 1 << 16;
constexpr std::int64_t kMaxPeriod = std::int64_t{1} << 30U;

OuterConfig defaults_of(OuterMethod method) {
  switch (method) {
    case OuterMethod::co2:
      return {.method = method, .lr = 0.5, .momentum = 0.2, .delay = 1};
    case OuterMethod::diloco:
      return {.method = method, .lr = 0.7, .momentum = 0.9, .nesterov = true};
    case OuterMethod::slowmo:
    case OuterMethod::none:
      break;
  }
  return {.method = method};
}

// Rounds that begin where the next step leads bear more momentum than late ones without it: of a
// screen these lose least (docs/results/outer.md).
void set_defaults_of_eager(OuterConfig& config) {
  config.lr = 0.35;
  config.momentum = 0.85;
  config.nesterov = true;
}

void read_period(JsonReader& section, OuterConfig& config) {
  const std::string given = section.json("period");
  if (given == "\"auto\"" || (given.empty() && config.is_late())) {
    static_cast<void>(section.string("period", "auto"));
    if (!config.is_late()) {
      section.fail("period",
                   fmt::format("\"auto\" is the shortest round that hides behind computing, and "
                               "with outer.delay 0 none does; nearest is {}",
                               kDefaultPeriod));
    }
    return;
  }
  config.period =
      section.integer("period", {.default_value = kDefaultPeriod, .min = 1, .max = kMaxPeriod});
}

void read_penalty(JsonReader& section, OuterConfig& config) {
  const std::string given = section.json("penalty");
  if (!given.empty() && given.front() != '"') {
    config.penalty = OuterPenalty::constant;
    config.penalty_value = section.number("penalty", {.min = 0.0, .exclusive_min = true});
  } else {
    constexpr std::array kKinds = {
        OuterPenalty::none, OuterPenalty::gap, OuterPenalty::gap_per_tensor};
    config.penalty = kKinds.at(section.choice("penalty", kPenalties, 0));
  }
  if (config.penalty != OuterPenalty::none && config.method != OuterMethod::co2) {
    section.fail("penalty", R"(is of outer.method "co2"; leave it out)");
  }
}

void read_reach(JsonReader& section, bool waits, OuterConfig& config) {
  config.reach = static_cast<OuterReach>(section.choice("reach", kReaches, 0));
  if (config.reach == OuterReach::measured && !config.measures_moves() && !waits) {
    section.fail("reach", R"(needs outer.penalty "gap" or "gap_per_tensor"; leave it out)");
  }
}

void read_clip(JsonReader& section, OuterConfig& config) {
  if (!section.has("clip")) {
    if (section.has("clip_kind")) {
      section.fail("clip_kind", "needs outer.clip; leave it out");
    }
    return;
  }
  config.clip = section.number("clip", {.min = 0.0, .exclusive_min = true});
  config.clip_kind =
      section.choice("clip_kind", kClipKinds, 0) == 0 ? OuterClip::element : OuterClip::norm;
  if (config.method != OuterMethod::co2) {
    section.fail("clip", R"(is of outer.method "co2"; leave it out)");
  }
}

void read_eager(JsonReader& section, bool waits, OuterConfig& config) {
  config.eager = section.boolean("eager", false);
  if (config.eager) {
    if (!config.is_late() && !waits) {
      section.fail("eager", "needs outer.delay 1: without it nothing is late; leave it out");
    }
    set_defaults_of_eager(config);
  }
  if (!config.eager && !waits) {
    if (section.has("lead")) {
      section.fail("lead", "needs outer.eager true; leave it out");
    }
    return;
  }
  config.lead = section.number("lead", {.default_value = config.lead, .min = 0.0});
  if (config.lead > 1.0) {
    section.fail("lead", "must be at most 1, all of the step");
  }
}

void read_ending(JsonReader& section, bool waits, OuterConfig& config) {
  config.ending = static_cast<OuterEnding>(section.choice("ending", kEndings, 0));
  if (config.ending == OuterEnding::mean && !config.is_late() && !waits) {
    section.fail("ending",
                 "needs outer.delay 1: without it the last round moves the anchor by what has just "
                 "been learned; leave it out");
  }
}

void read_fragments(JsonReader& section, bool waits, OuterConfig& config) {
  config.fragments = static_cast<int>(
      section.integer("fragments", {.default_value = 1, .min = 1, .max = kMaxFragments}));
  const bool has_mix = section.has("mix");
  if (config.has_fragments() || (waits && has_mix)) {
    config.mix = section.number("mix", {.default_value = kDefaultMix, .min = 0.0});
  }
  if (waits) {
    return;
  }
  if (!config.has_fragments()) {
    if (has_mix) {
      section.fail("mix", "needs outer.fragments; leave it out");
    }
    return;
  }
  if (config.method != OuterMethod::diloco) {
    section.fail("fragments", R"(is of outer.method "diloco"; leave it out)");
  }
  if (config.is_late()) {
    section.fail("fragments",
                 "needs outer.delay 0: a fragment travels until the next one is due; leave out "
                 "outer.delay");
  }
  if (*config.period % config.fragments != 0) {
    section.fail("fragments",
                 fmt::format("must divide outer.period {}, for one is due every period / fragments "
                             "steps; nearest is {}",
                             *config.period,
                             std::gcd(*config.period, std::int64_t{config.fragments})));
  }
  if (config.mix >= 1.0) {
    section.fail("mix", "must be below 1: nothing would arrive");
  }
}

// Whether all roots of z^3 + p z^2 + q z + r are inside the unit circle (Jury).
bool is_contraction(double p, double q, double r) {
  return 1.0 + p + q + r > 0.0 && 1.0 - p + q - r > 0.0 && std::abs(r) < 1.0 &&
         std::abs(q - p * r) < 1.0 - r * r;
}

// Says whether late steps decay for a mode that a round learns whole. They follow
// (z - 1)(z - b) z + a step(z) = 0 at the rate a and the momentum b; leads of eager rounds add what
// they bring a round earlier, and are a recursion of their own in what workers differ in.
bool is_stable(const OuterConfig& config, double a) {
  const double b = config.momentum;
  const double step_z = config.nesterov ? 1.0 + b : 1.0;
  const double step_1 = config.nesterov ? -b : 0.0;
  if (!config.eager) {
    return is_contraction(-(1.0 + b), b + a * step_z, a * step_1);
  }
  const double own = (config.nesterov ? 1.0 + b : 1.0) * config.lead;
  const double of_momentum = config.nesterov ? b * b : b;
  return a * own < 1.0 && is_contraction(a * own - (1.0 + b),
                                         b + a * (step_z - own * (1.0 + b) + of_momentum),
                                         a * (step_1 + own * b - of_momentum));
}

}  // namespace

double largest_stable_rate(const OuterConfig& config) {
  // Some rates above unstable ones are stable again: the first bound counts.
  constexpr double kStep = 1.0 / 256;
  double low = 0.0;
  while (low < 4.0 && is_stable(config, low + kStep)) {
    low += kStep;
  }
  double high = low + kStep;
  for (int i = 0; i < 40; ++i) {
    const double middle = 0.5 * (low + high);
    (is_stable(config, middle) ? low : high) = middle;
  }
  return low;
}

OuterConfig read_outer_config(JsonReader section) {
  const auto given = static_cast<OuterMethod>(section.choice("method", kMethods, 0));
  const std::vector<std::string> keys = section.keys();
  if (given == OuterMethod::none &&
      std::ranges::all_of(keys, [](const std::string& key) { return key == "method"; })) {
    section.finish();
    return {};
  }
  // Settings beside "none" wait for a method, and have the defaults of "co2" meanwhile.
  const OuterMethod method = given == OuterMethod::none ? OuterMethod::co2 : given;
  OuterConfig config = defaults_of(method);
  config.delay = static_cast<int>(
      section.integer("delay", {.default_value = config.delay, .min = 0, .max = 1}));
  if (config.is_late() && method == OuterMethod::slowmo) {
    section.fail("delay", R"(must be 0 under outer.method "slowmo"; use "co2")");
  }
  const bool waits = given == OuterMethod::none;
  read_eager(section, waits, config);
  read_period(section, config);
  config.lr = section.number("lr", {.default_value = config.lr, .min = 0.0});
  config.momentum = section.number("momentum", {.default_value = config.momentum, .min = 0.0});
  if (config.momentum >= 1.0) {
    section.fail("momentum", "must be below 1");
  }
  config.nesterov = section.boolean("nesterov", config.nesterov);
  if (config.nesterov && given == OuterMethod::slowmo) {
    section.fail("nesterov", R"(is not of outer.method "slowmo"; leave it out)");
  }
  read_penalty(section, config);
  read_reach(section, waits, config);
  read_clip(section, config);
  read_ending(section, waits, config);
  read_fragments(section, waits, config);
  section.finish();
  if (waits) {  // other methods have other defaults
    for (const char* key : {"period",
                            "lr",
                            "momentum",
                            "nesterov",
                            "penalty",
                            "reach",
                            "clip_kind",
                            "delay",
                            "eager",
                            "lead",
                            "ending",
                            "fragments",
                            "mix"}) {
      section.leave_open(key);
    }
  }
  config.method = given;
  return config;
}

}  // namespace slackline
