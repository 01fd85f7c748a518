#pragma once

#include <optional>
#include <vector>

#include "compress/codec.h"
#include "compress/codec_setting.h"
#include "parallel/schedule/transfer_class.h"

namespace slackline {

// The loss of a codec on a class's messages, as |x - y| / |x|.
struct CodecError {
  schedule::TransferClass members{};
  CodecSetting codec{};
  double relative_error = 0.0;

  friend bool operator==(const CodecError&, const CodecError&) = default;
};

// Returns what a codec may lose of a class's messages, or owe of them, where `of_site` is the bound
// of its site: that much, but a fifth of it where sums leave things out with error feedback.
// Integers owe another rounding after each step, low ranks the same directions again, and for a
// share that is owed the loss of training suffers so much more (docs/results/quality.md).
[[nodiscard]] double error_bound(const schedule::TransferClass& members,
                                 const CodecSetting& codec,
                                 double of_site);

// Errors of codecs on real messages, measured in two ways. Trials of candidates
// (parallel/channel/message_trial.h) are of one message, without what error feedback brings: they
// compare codecs with each other. Samples are of a codec in force, feedback and all (lost_share()
// in parallel/plan/compression_quality.h), and may be larger than 1: they are compared with a
// bound alone. A value; where it decides, the same on all ranks.
class CodecErrors {
 public:
  // Each takes the place of what was known in the same way of that codec on that class.
  void note_trial(const CodecError& tried) { note(tried_, tried); }

  void note_sample(const CodecError& sampled) { note(sampled_, sampled); }

  // Returns by what codecs of a class are compared: the error of a trial on it; where it has none,
  // the mean of its site's others; where these have none either, as expected of a message of
  // `shape` (compress/expected_error.h). What a codec leaves out again counts as what it comes to
  // owe, by as much more as its bound is tighter.
  [[nodiscard]] double of(const schedule::TransferClass& members,
                          const CodecSetting& codec,
                          const MatrixShape& shape) const;

  // Gives what is to be compared with a bound: the class's last sample, else what its trial lets
  // expect of samples, else its site's; nothing where nothing was measured.
  [[nodiscard]] std::optional<double> measured(const schedule::TransferClass& members,
                                               const CodecSetting& codec) const;

  // Both are in the order in which they were first noted.
  [[nodiscard]] const std::vector<CodecError>& tried() const { return tried_; }

  [[nodiscard]] const std::vector<CodecError>& sampled() const { return sampled_; }

  friend bool operator==(const CodecErrors&, const CodecErrors&) = default;

 private:
  static void note(std::vector<CodecError>& list, const CodecError& error);
  [[nodiscard]] std::optional<double> tried_on(const schedule::TransferClass& members,
                                               const CodecSetting& codec) const;

  std::vector<CodecError> tried_{};
  std::vector<CodecError> sampled_{};
};

}  // namespace slackline
