#include "parallel/plan/transfer_class_json.h"

#include <string_view>

#include <fmt/format.h>

#include "compress/codec_setting_json.h"

namespace slackline {

namespace {

using schedule::Phase;
using schedule::Site;

constexpr std::int64_t kMostStages = 1 << 16;
constexpr double kLargestError = 1e30;

}  // namespace

schedule::TransferClass read_transfer_class(JsonReader& section) {
  return {.site = static_cast<Site>(section.choice("site", schedule::kSiteNames)),
          .stage = static_cast<int>(section.integer("stage", {.min = 0, .max = kMostStages})),
          .phase = static_cast<Phase>(section.choice("phase", schedule::kPhaseNames))};
}

std::string transfer_class_members(const schedule::TransferClass& members) {
  return fmt::format(R"("site": "{}", "stage": {}, "phase": "{}")",
                     schedule::site_name(members.site),
                     members.stage,
                     schedule::phase_name(members.phase));
}

std::vector<CodecError> read_codec_errors(JsonReader& document, std::string_view key) {
  std::vector<CodecError> errors;
  for (JsonReader& section : document.sections(key)) {
    CodecError error{.members = read_transfer_class(section)};
    if (!section.has("codec")) {
      section.fail("codec", "is required: a codec setting as in the config");
    }
    JsonReader setting = section.section("codec");
    error.codec = read_codec_setting(setting);
    setting.finish();
    error.relative_error = section.number("relative_error", {.min = 0.0, .max = kLargestError});
    section.finish();
    errors.push_back(error);
  }
  return errors;
}

std::string codec_error_text(const CodecError& error) {
  return fmt::format(R"({{{}, "codec": {}, "relative_error": {}}})",
                     transfer_class_members(error.members),
                     codec_setting_json(error.codec),
                     error.relative_error);
}

}  // namespace slackline
