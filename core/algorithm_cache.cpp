#include "core/algorithm_cache.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file_io.h"
#include "core/hash.h"
#include "core/locked_file.h"
#include "core/strict_json.h"

namespace slackline {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kDigits = 16;  // of a word

[[noreturn]] void refuse(const std::string& reason) {
  throw JsonSyntaxError(reason);
}

std::string text_of(const AlgorithmCache::Algorithm& algorithm) {
  std::string text;
  for (const std::uint64_t word : algorithm) {
    text += hex_text(word);
  }
  return text;
}

AlgorithmCache::Algorithm algorithm_of(const std::string& text) {
  AlgorithmCache::Algorithm algorithm{};
  if (text.size() != algorithm.size() * kDigits) {
    refuse("an algorithm has " + std::to_string(text.size()) + " digits");
  }
  const char* at = text.data();
  for (std::uint64_t& word : algorithm) {
    const auto [end, error] = std::from_chars(at, at + kDigits, word, 16);
    if (error != std::errc() || end != at + kDigits) {
      refuse("an algorithm is not hexadecimal");
    }
    at += kDigits;
  }
  return algorithm;
}

std::string text_of(const std::string& owner,
                    const std::map<std::string, AlgorithmCache::Choice>& choices) {
  Json algorithms = Json::object();
  for (const auto& [problem, choice] : choices) {
    algorithms[problem] = choice ? Json(text_of(*choice)) : Json(nullptr);
  }
  return Json{{"owner", owner}, {"algorithms", std::move(algorithms)}}.dump(2) + "\n";
}

std::map<std::string, AlgorithmCache::Choice> choices_of(const std::string& text,
                                                         const std::string& owner) {
  const Json document = parse_strict_json(text);
  if (!document.is_object() || !document.contains("owner") || !document.contains("algorithms") ||
      !document["algorithms"].is_object()) {
    refuse("it has no owner or no algorithms");
  }
  if (document["owner"] != owner) {
    refuse("it is of " + document["owner"].dump());
  }
  std::map<std::string, AlgorithmCache::Choice> choices;
  for (const auto& [problem, algorithm] : document["algorithms"].items()) {
    if (!algorithm.is_null() && !algorithm.is_string()) {
      refuse("an algorithm is " + std::string(algorithm.type_name()));
    }
    choices[problem] = algorithm.is_null()
                           ? AlgorithmCache::Choice()
                           : AlgorithmCache::Choice(algorithm_of(algorithm.get<std::string>()));
  }
  return choices;
}

std::string absolute_path(const char* variable) {
  const char* value = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): nobody sets it
  return value != nullptr && value[0] == '/' ? value : "";
}

}  // namespace

AlgorithmCache::AlgorithmCache(std::string path,
                               std::string owner,
                               std::function<void(std::string_view)> warn)
    : path_(std::move(path)), owner_(std::move(owner)), warn_(std::move(warn)) {}

AlgorithmCache::Choice AlgorithmCache::choose(const Question& question) {
  const std::scoped_lock lock(mutex_);
  const auto found = known_.find(question.problem);
  if (found != known_.end()) {
    return found->second;
  }
  std::optional<LockedFile> file;
  if (keeps_) {
    try {
      if (path_.empty()) {
        throw FileError("neither XDG_CACHE_HOME nor HOME says where");
      }
      make_directories(std::filesystem::path(path_).parent_path().string());
      file = LockedFile::wait(path_ + ".lock");
    } catch (const FileError& error) {
      give_up(error.what());
    }
  }
  Choices kept = read();
  const auto in_file = kept.find(question.problem);
  Choice choice = question.first;
  if (in_file != kept.end() && question.is_usable(in_file->second)) {
    choice = in_file->second;
  } else if (file && keeps_) {
    choice = measured(question, std::move(kept));
  }
  known_.emplace(question.problem, choice);
  return choice;
}

AlgorithmCache::Choice AlgorithmCache::measured(const Question& question, Choices kept) {
  const Choice choice = question.measure();
  kept[question.problem] = choice;
  try {
    write_file_atomically(path_, text_of(owner_, kept));
  } catch (const FileError& error) {
    give_up(error.what());
    return question.first;
  }
  return choice;
}

AlgorithmCache::Choices AlgorithmCache::read() {
  try {
    if (!path_.empty() && path_exists(path_)) {
      return choices_of(read_file(path_), owner_);
    }
  } catch (const FileError& error) {
    give_up(error.what());
  } catch (const JsonSyntaxError& error) {
    if (!std::exchange(said_damaged_, true)) {
      warn_(path_ + " is passed over and written anew: " + error.what());
    }
  }
  return {};
}

void AlgorithmCache::give_up(std::string_view reason) {
  if (std::exchange(keeps_, false)) {
    warn_("algorithms are not tuned, since what is found could not be kept: " +
          std::string(reason));
  }
}

std::size_t worth_taking(std::span<const double> seconds) {
  constexpr double kWorthIt = 0.98;
  const auto least = std::min_element(seconds.begin(), seconds.end());
  return *least < kWorthIt * seconds.front() ? static_cast<std::size_t>(least - seconds.begin())
                                             : 0;
}

std::string user_cache_directory() {
  const std::string cache = absolute_path("XDG_CACHE_HOME");
  if (!cache.empty()) {
    return cache + "/slackline";
  }
  const std::string home = absolute_path("HOME");
  return home.empty() ? "" : home + "/.cache/slackline";
}

}  // namespace slackline
