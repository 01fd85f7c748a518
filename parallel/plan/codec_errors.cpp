#include "parallel/plan/codec_errors.h"

#include <algorithm>

#include "compress/codec_traits.h"
#include "compress/expected_error.h"

namespace slackline {

using schedule::TransferClass;

namespace {

// With error feedback integers owe what they lose of one message, since rounding is another one
// each time. What low ranks and sparse codecs leave out they leave out again, until it has grown,
// and trials are of the first steps, whose gradients have few directions: a low rank of an eighth
// of the width, of which a trial in step 10 lost 0.009, owed 0.11 to 0.17 from step 100 on.
constexpr double kLeftOutAgain = 20.0;

bool leaves_out_again(const CodecSetting& codec) {
  return !traits_of(codec.kind).rounds && codec.error_feedback != ErrorFeedback::none;
}

double lost_in_force(const CodecSetting& codec, double tried) {
  return leaves_out_again(codec) ? kLeftOutAgain * tried : tried;
}

}  // namespace

double error_bound(const TransferClass& members, const CodecSetting& codec, double of_site) {
  constexpr double kForLeftOut = 0.2;
  const bool is_sum = schedule::is_once_a_step(members.phase);
  return is_sum && leaves_out_again(codec) ? kForLeftOut * of_site : of_site;
}

void CodecErrors::note(std::vector<CodecError>& list, const CodecError& error) {
  const auto known = std::find_if(list.begin(), list.end(), [&](const CodecError& before) {
    return before.members == error.members && before.codec == error.codec;
  });
  if (known != list.end()) {
    *known = error;
  } else {
    list.push_back(error);
  }
}

std::optional<double> CodecErrors::tried_on(const TransferClass& members,
                                            const CodecSetting& codec) const {
  double sum = 0.0;
  int count = 0;
  for (const CodecError& error : tried_) {
    if (setting_of_calls(error.codec) != setting_of_calls(codec) ||
        error.members.site != members.site) {
      continue;
    }
    // A message is tried, whatever becomes of it.
    const double of_sum =
        error.relative_error * growth_of_error(codec) / growth_of_error(error.codec);
    if (error.members == members) {
      return of_sum;
    }
    sum += of_sum;
    ++count;
  }
  return count == 0 ? std::nullopt : std::make_optional(sum / count);
}

double CodecErrors::of(const TransferClass& members,
                       const CodecSetting& codec,
                       const MatrixShape& shape) const {
  const double error = tried_on(members, codec).value_or(expected_error(codec, shape));
  return lost_in_force(codec, error) / error_bound(members, codec, 1.0);
}

std::optional<double> CodecErrors::measured(const TransferClass& members,
                                            const CodecSetting& codec) const {
  const auto sample = std::find_if(sampled_.begin(), sampled_.end(), [&](const CodecError& error) {
    return error.members == members && error.codec == codec;
  });
  if (sample != sampled_.end()) {
    return sample->relative_error;
  }
  const std::optional<double> tried = tried_on(members, codec);
  return tried ? std::make_optional(lost_in_force(codec, *tried)) : std::nullopt;
}

}  // namespace slackline
