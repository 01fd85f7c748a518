#include "tools/infer/task_scores.h"

#include <algorithm>
#include <cmath>
#include <span>

#include <fmt/format.h>

#include "core/error.h"
#include "core/file_errors.h"
#include "core/shown_text.h"
#include "model/generate/decoder.h"
#include "tools/infer/text_tokens.h"

namespace slackline {

namespace {

// Says how likely the model takes a text behind a context to be.
struct Likelihood {
  double log_probability = 0.0;  // of all tokens
  std::int64_t tokens = 0;
  bool is_greedy = true;  // each is the most likely one

  [[nodiscard]] double mean() const { return log_probability / static_cast<double>(tokens); }
};

class TaskScorer {
 public:
  TaskScorer(const InferenceModel& model, const std::string& path, const ScoreOptions& options)
      : model_(model),
        path_(path),
        stream_(options.workers, Decoder::workspace_bytes(model.config, options.workers)),
        decoder_(*model.parameters, model.config, options.filter) {}

  void add(const Task& task, TaskScores& scores) {
    const std::string where = fmt::format("{}: line {}", path_, task.line);
    const TextBefore context =
        reading(where, [&] { return TextBefore(model_, task.context, where); });
    std::vector<Likelihood> choices;
    for (const std::string& choice : task.choices) {
      choices.push_back(likelihood(context, choice, where));
    }
    if (!task.answer) {
      const Likelihood& target = choices.front();
      count(target.is_greedy, scores.greedy);
      scores.target_log_probability += target.log_probability;
      scores.target_tokens += target.tokens;
      return;
    }
    const auto best_by = [&](auto value) {
      return static_cast<std::size_t>(std::ranges::max_element(choices, {}, value) -
                                      choices.begin());
    };
    count(best_by(&Likelihood::log_probability) == *task.answer, scores.by_total);
    count(best_by(&Likelihood::mean) == *task.answer, scores.by_mean);
  }

 private:
  static void count(bool hits, Share& share) {
    share.hits += hits ? 1 : 0;
    ++share.tasks;
  }

  Likelihood likelihood(const TextBefore& context,
                        const std::string& choice,
                        const std::string& where) {
    FollowedText text = reading(where, [&] { return context.followed_by(choice); });
    if (text.after.empty()) {
      throw FileError(fmt::format("{}: '{}' adds no token to its context, so it has no likelihood",
                                  where,
                                  shown_value(choice)));
    }
    // The last token is predicted, and not read.
    const auto room =
        static_cast<std::ptrdiff_t>(model_.config.sequence) - (std::ssize(text.after) - 1);
    if (room < 1) {
      throw FileError(fmt::format("{}: has {} tokens to predict; the model's context has {}",
                                  where,
                                  text.after.size(),
                                  model_.config.sequence));
    }
    if (std::ssize(text.before) > room) {
      text.before.erase(text.before.begin(), text.before.end() - room);
    }
    start(text.before);
    Likelihood found;
    for (std::size_t i = 0; i < text.after.size(); ++i) {
      add_token(text.after[i], where, found);
      if (i + 1 < text.after.size()) {
        decoder_.append(stream_, text.after[i]);
        started_.clear();
      }
    }
    return found;
  }

  // Choices of one token have the logits of one pass.
  void start(const std::vector<TokenId>& context) {
    if (started_ != context) {
      decoder_.start(stream_, context);
      started_ = context;
    }
  }

  void add_token(TokenId token, const std::string& where, Likelihood& sum) const {
    const std::span<const float> logits = decoder_.logits();
    const auto first = std::ranges::max_element(logits);  // of equals, as greedy decoding takes it
    const float most = *first;
    double exponentials = 0.0;
    for (const float logit : logits) {
      exponentials += std::exp(static_cast<double>(logit) - most);
    }
    const float own = logits[static_cast<std::size_t>(token)];
    const double log_probability = static_cast<double>(own) - most - std::log(exponentials);
    if (!std::isfinite(log_probability)) {
      throw NonFiniteError(where + ": the model's logits are not finite");
    }
    sum.log_probability += log_probability;
    sum.is_greedy = sum.is_greedy && token == first - logits.begin();
    ++sum.tokens;
  }

  const InferenceModel& model_;
  const std::string& path_;
  Stream stream_;
  Decoder decoder_;
  std::vector<TokenId> started_{};  // what the decoder has read; empty: something else
};

}  // namespace

double Share::value() const {
  return static_cast<double>(hits) / static_cast<double>(tasks);
}

std::optional<double> Share::standard_error() const {
  return tasks > 1 ? std::make_optional(
                         std::sqrt(value() * (1.0 - value()) / static_cast<double>(tasks - 1)))
                   : std::nullopt;
}

TaskScores score_tasks(const InferenceModel& model,
                       const std::vector<Task>& tasks,
                       const std::string& path,
                       const ScoreOptions& options) {
  TaskScorer scorer(model, path, options);
  TaskScores scores;
  std::int64_t done = 0;
  for (const Task& task : tasks) {
    scorer.add(task, scores);
    if (options.progress) {
      options.progress(++done, std::ssize(tasks));
    }
  }
  return scores;
}

}  // namespace slackline
