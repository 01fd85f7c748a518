#include "parallel/codec_errors.h"

#include <algorithm>

#include "compress/expected_error.h"

namespace slackline {

using schedule::TransferClass;

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
    if (error.codec != codec || error.members.site != members.site) {
      continue;
    }
    if (error.members == members) {
      return error.relative_error;
    }
    sum += error.relative_error;
    ++count;
  }
  return count == 0 ? std::nullopt : std::make_optional(sum / count);
}

double CodecErrors::of(const TransferClass& members,
                       const CodecSetting& codec,
                       const MatrixShape& shape) const {
  const std::optional<double> known = tried_on(members, codec);
  return known ? *known : expected_error(codec, shape);
}

std::optional<double> CodecErrors::measured(const TransferClass& members,
                                            const CodecSetting& codec) const {
  const auto sample = std::find_if(sampled_.begin(), sampled_.end(), [&](const CodecError& error) {
    return error.members == members && error.codec == codec;
  });
  return sample != sampled_.end() ? sample->relative_error : tried_on(members, codec);
}

}  // namespace slackline
