#include "core/algorithm_cache.h"

#include <atomic>
#include <limits>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/support/environment.h"
#include "tests/support/temporary_directory.h"

namespace slackline {

namespace {

using Algorithm = AlgorithmCache::Algorithm;
using Choice = AlgorithmCache::Choice;

constexpr Algorithm kFirst{1};
constexpr Algorithm kFound{0, 0xfedcba9876543210U, ~std::uint64_t{0}, 3, 4, 5, 6, 7};

// Asks for one problem and counts how often it is measured.
struct Asking {
  [[nodiscard]] AlgorithmCache::Question question(const std::string& problem = "a product") {
    return {.problem = problem,
            .first = kFirst,
            .is_usable = [this](const Choice&) { return usable; },
            .measure =
                [this] {
                  ++measured;
                  return found;
                }};
  }

  Choice found = kFound;
  bool usable = true;
  std::atomic<int> measured = 0;
};

// A cache whose warnings are kept.
struct Process {
  explicit Process(const std::string& path, const std::string& owner = "card, 1.0")
      : cache(path, owner, [this](std::string_view text) { warnings.emplace_back(text); }) {}

  std::vector<std::string> warnings;
  AlgorithmCache cache;
};

}  // namespace

TEST_CASE("an algorithm is measured once and every later process takes it from the file") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("made/for/it/algorithms.json");
  Asking asking;
  {
    Process first(path);
    REQUIRE(first.cache.choose(asking.question()) == Choice(kFound));
    REQUIRE(first.cache.choose(asking.question()) == Choice(kFound));
    asking.found = Choice();
    REQUIRE(first.cache.choose(asking.question("another \"product\"")) == Choice());
    REQUIRE(first.warnings.empty());
  }
  REQUIRE(asking.measured == 2);
  Process second(path);
  asking.found = kFirst;
  REQUIRE(second.cache.choose(asking.question()) == Choice(kFound));
  REQUIRE(second.cache.choose(asking.question("another \"product\"")) == Choice());
  REQUIRE(asking.measured == 2);
  REQUIRE(second.warnings.empty());
}

TEST_CASE("what a process has chosen stays although the file goes") {
  const TemporaryDirectory directory;
  Process process(directory.file("algorithms.json"));
  Asking asking;
  REQUIRE(process.cache.choose(asking.question()) == Choice(kFound));
  remove_tree(directory.file("algorithms.json"));
  asking.found = kFirst;
  REQUIRE(process.cache.choose(asking.question()) == Choice(kFound));
}

TEST_CASE("a choice that the library refuses is measured again") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("algorithms.json");
  Asking asking;
  REQUIRE(Process(path).cache.choose(asking.question()) == Choice(kFound));
  asking.usable = false;
  asking.found = Algorithm{9};
  REQUIRE(Process(path).cache.choose(asking.question()) == Choice(Algorithm{9}));
  asking.usable = true;
  REQUIRE(Process(path).cache.choose(asking.question()) == Choice(Algorithm{9}));
  REQUIRE(asking.measured == 2);
}

TEST_CASE("a file that is damaged or another owner's gets one warning and is written anew") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("algorithms.json");
  Asking asking;
  REQUIRE(Process(path).cache.choose(asking.question()) == Choice(kFound));
  const std::string whole = read_file(path);
  const auto [content, reason] = GENERATE_COPY(table<std::string, std::string>({
      {"", "line 1"},
      {whole.substr(0, whole.size() / 2), "line "},
      {"[]", "no owner"},
      {R"({"owner": "card, 1.0", "algorithms": []})", "no algorithms"},
      {R"({"owner": "card, 0.9", "algorithms": {}})", "card, 0.9"},
      {R"({"owner": 1, "algorithms": {}})", "it is of 1"},
      {R"({"owner": "card, 1.0", "algorithms": {"a product": 7}})", "is number"},
      {R"({"owner": "card, 1.0", "algorithms": {"a product": "12"}})", "2 digits"},
      {R"({"owner": "card, 1.0", "algorithms": {"a product": ")" + std::string(128, 'g') + "\"}}",
       "not hexadecimal"},
  }));
  write_file_atomically(path, content);
  Process process(path);
  REQUIRE(process.cache.choose(asking.question("another")) == Choice(kFound));
  REQUIRE(process.cache.choose(asking.question()) == Choice(kFound));
  REQUIRE(process.warnings.size() == 1);
  REQUIRE_THAT(process.warnings[0], Catch::StartsWith(path + " is passed over"));
  REQUIRE_THAT(process.warnings[0], Catch::Contains(reason));
  REQUIRE(asking.measured == 3);
  REQUIRE(read_file(path).find("another") != std::string::npos);
  REQUIRE(Process(path).cache.choose(asking.question()) == Choice(kFound));
  REQUIRE(asking.measured == 3);
}

TEST_CASE("where no file can be kept nothing is measured, and the first suggestion stands") {
  const TemporaryDirectory directory;
  write_file_atomically(directory.file("file"), "");
  for (const std::string& path : {directory.file("file/algorithms.json"), std::string()}) {
    Process process(path);
    Asking asking;
    REQUIRE(process.cache.choose(asking.question()) == Choice(kFirst));
    REQUIRE(process.cache.choose(asking.question("another")) == Choice(kFirst));
    REQUIRE(asking.measured == 0);
    REQUIRE(process.warnings.size() == 1);
    REQUIRE_THAT(process.warnings[0], Catch::StartsWith("algorithms are not tuned"));
  }
}

TEST_CASE("what cannot be written is not used, nor measured a second time") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("algorithms.json");
  make_directories(path + ".partial");  // in the way of the writer
  Process process(path);
  Asking asking;
  REQUIRE(process.cache.choose(asking.question()) == Choice(kFirst));
  REQUIRE(process.cache.choose(asking.question("another")) == Choice(kFirst));
  REQUIRE(asking.measured == 1);
  REQUIRE(process.warnings.size() == 1);
}

TEST_CASE("a file in a place that cannot be written is read all the same") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("algorithms.json");
  Asking asking;
  REQUIRE(Process(path).cache.choose(asking.question()) == Choice(kFound));
  remove_tree(path + ".lock");
  make_directories(path + ".lock");  // nobody can lock a directory by opening it for writing
  Process process(path);
  REQUIRE(process.cache.choose(asking.question()) == Choice(kFound));
  REQUIRE(process.cache.choose(asking.question("another")) == Choice(kFirst));
  REQUIRE(asking.measured == 1);
  REQUIRE(process.warnings.size() == 1);
}

TEST_CASE("threads of one process and caches of several agree and measure one after the other") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("algorithms.json");
  constexpr std::size_t kOwn = 4;
  constexpr std::size_t kThreads = 8;  // half of which share a cache
  constexpr int kProblems = 8;
  Process shared(path);
  std::vector<std::unique_ptr<Process>> own;
  std::atomic<int> measured = 0;
  std::atomic<int> at_once = 0;
  std::atomic<int> most_at_once = 0;
  std::vector<std::vector<Choice>> chosen(kThreads);
  std::vector<std::thread> threads;
  own.reserve(kOwn);
  for (std::size_t i = 0; i < kOwn; ++i) {
    own.push_back(std::make_unique<Process>(path));
  }
  for (std::size_t i = 0; i < kThreads; ++i) {
    AlgorithmCache& cache = i < kOwn ? own[i]->cache : shared.cache;
    threads.emplace_back([&, i, cache = &cache] {
      for (int problem = 0; problem < kProblems; ++problem) {
        chosen[i].push_back(
            cache->choose({.problem = std::to_string(problem),
                           .first = kFirst,
                           .is_usable = [](const Choice&) { return true; },
                           .measure =
                               [&] {
                                 most_at_once = std::max<int>(most_at_once, ++at_once);
                                 std::this_thread::yield();
                                 --at_once;
                                 return Choice(Algorithm{static_cast<std::uint64_t>(++measured)});
                               }}));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  REQUIRE(measured == kProblems);
  REQUIRE(most_at_once == 1);
  for (const std::vector<Choice>& choices : chosen) {
    REQUIRE(choices == chosen[0]);
  }
}

TEST_CASE("processes that ask at the same time agree") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("algorithms.json");
  constexpr int kProcesses = 4;
  constexpr int kProblems = 5;
  std::vector<pid_t> children;
  for (int rank = 0; rank < kProcesses; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {  // what each has chosen goes into a file of its own
      AlgorithmCache cache(path, "card, 1.0");
      std::string text;
      for (int problem = 0; problem < kProblems; ++problem) {
        const Choice choice =
            cache.choose({.problem = std::to_string(problem),
                          .first = kFirst,
                          .is_usable = [](const Choice&) { return true; },
                          .measure = [&] { return Algorithm{std::uint64_t(10 + rank)}; }});
        text += std::to_string((*choice)[0]) + " ";
      }
      write_file_atomically(path + "." + std::to_string(rank), text);
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
  }
  for (int rank = 0; rank < kProcesses; ++rank) {
    REQUIRE(read_file(path + "." + std::to_string(rank)) == read_file(path + ".0"));
  }
}

TEST_CASE("another algorithm than the first is taken where it is 2 % faster") {
  const double never = std::numeric_limits<double>::infinity();
  REQUIRE(worth_taking(std::vector{1.0}) == 0);
  REQUIRE(worth_taking(std::vector{1.0, 0.985, 0.981}) == 0);
  REQUIRE(worth_taking(std::vector{1.0, 0.97, 0.5, 0.6}) == 2);
  REQUIRE(worth_taking(std::vector{never, 3.0}) == 1);
  REQUIRE(worth_taking(std::vector{never, never}) == 0);
}

TEST_CASE("the cache directory is XDG's, or under the home directory") {
  const Environment home("HOME", "/home/of");
  {
    const Environment cache("XDG_CACHE_HOME", "/cache");
    REQUIRE(user_cache_directory() == "/cache/slackline");
  }
  const Environment relative("XDG_CACHE_HOME", "cache");
  REQUIRE(user_cache_directory() == "/home/of/.cache/slackline");
  const Environment nowhere("HOME", nullptr);
  REQUIRE(user_cache_directory().empty());
}

}  // namespace slackline
