#include "parallel/channel/message_trial.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>

#include "compress/codec_traits.h"
#include "compress/message_sums.h"

namespace slackline {

namespace {

using schedule::Site;
using schedule::TransferClass;
using Candidates = std::map<Site, std::vector<CodecSetting>>;

constexpr std::uint64_t kSeed = 1;
constexpr int kWarmRuns = 3;  // of low_rank, whose factors turn towards a message

// Every rank measures these, in the same order: a codec's calls on what is kept of a site and
// stage.
struct Trial {
  Site site{};
  int stage = 0;
  CodecSetting setting{};

  friend bool operator==(const Trial&, const Trial&) = default;
};

std::vector<Trial> trials_of(const Candidates& candidates,
                             const std::vector<TransferClass>& classes) {
  std::vector<Trial> trials;
  for (const TransferClass& members : classes) {
    const auto settings = candidates.find(members.site);
    if (settings == candidates.end()) {
      continue;
    }
    for (const CodecSetting& setting : settings->second) {
      const Trial trial{
          .site = members.site, .stage = members.stage, .setting = setting_of_calls(setting)};
      if (std::find(trials.begin(), trials.end(), trial) == trials.end()) {
        trials.push_back(trial);
      }
    }
  }
  return trials;
}

std::int64_t num_directions(const MatrixShape& shape) {
  return std::min(shape.rows, shape.columns);
}

CodecSetting setting_for_part(CodecSetting setting, const KeptMessages::Message& message) {
  const double share = static_cast<double>(num_directions(message.shape)) /
                       static_cast<double>(num_directions(message.whole));
  setting.rank = std::max(1, static_cast<int>(std::lround(setting.rank * std::min(1.0, share))));
  return setting;
}

MessageSums try_on(const KeptMessages::Message& message,
                   const CodecSetting& setting,
                   const Workers& workers) {
  const std::unique_ptr<Codec> codec =
      make_codec(setting_for_part(setting, message),
                 {{.name = "tried", .shape = message.shape, .moments = message.moments()}},
                 kSeed,
                 workers.device);
  const Backing backing = backing_of(workers.device);
  const Shape shape{message.shape.rows, message.shape.columns};
  const Buffer decoded = make_buffer("tried", DType::f32, shape, backing);
  const Buffer memory("frame", codec->frame_bytes(), backing);
  const Tensor frame = memory.row(DType::u8);
  const Tensor out = decoded.view(DType::f32, shape);
  Stream stream(workers, codec->workspace_bytes(workers), "codec");
  const int runs = traits_of(setting.kind).trains ? kWarmRuns + 1 : 1;
  for (int run = 1; run <= runs; ++run) {
    const MessageKey key{.seed = kSeed, .step = static_cast<std::uint64_t>(run)};
    codec->encode(stream, {message.values()}, {}, key, frame);
  }
  codec->decode(stream, frame, {out}, false);
  stream.synchronize();
  return sums_of_message(message.values(), out, {});
}

}  // namespace

std::vector<CodecError> try_candidates(const KeptMessages& messages,
                                       const Candidates& candidates,
                                       const std::vector<TransferClass>& classes,
                                       const Workers& workers,
                                       Communicator& world) {
  const std::vector<Trial> trials = trials_of(candidates, classes);
  std::vector<double> sums(2 * trials.size());  // |x - y|^2 and |x|^2 of each, over ranks
  for (std::size_t i = 0; i < trials.size(); ++i) {
    for (const KeptMessages::Message& message : messages.all()) {
      if (message.site == trials[i].site && message.stage == trials[i].stage) {
        const MessageSums tried = try_on(message, trials[i].setting, workers);
        sums[2 * i] += tried.error;
        sums[2 * i + 1] += tried.raw;
      }
    }
  }
  if (!sums.empty()) {
    world.all_reduce(Tensor(std::span(sums)), {.what = "errors of codecs"}).wait();
  }
  std::vector<CodecError> errors;
  for (const TransferClass& members : classes) {
    for (std::size_t i = 0; i < trials.size(); ++i) {
      const Trial& trial = trials[i];
      const double error = std::sqrt(sums[2 * i] / sums[2 * i + 1]);
      if (trial.site == members.site && trial.stage == members.stage && std::isfinite(error)) {
        errors.push_back({.members = members, .codec = trial.setting, .relative_error = error});
      }
    }
  }
  return errors;
}

}  // namespace slackline
