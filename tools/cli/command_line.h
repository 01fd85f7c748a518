#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}

// Commands, their options and help. CLI11 parses them; it costs 15 s of compiling in every file
// that includes it, so command_line.cpp is the only one.
namespace slackline {

// Where an option's value goes; what it holds before parsing is the default. A vector takes every
// value up to the next option, and every time that the option is given.
using OptionTarget = std::variant<std::string*,
                                  std::optional<std::string>*,
                                  std::vector<std::string>*,
                                  int*,
                                  std::int64_t*,
                                  std::optional<std::int64_t>*,
                                  std::uint64_t*,
                                  double*>;

enum class Limit { none, positive, not_negative };

struct OptionRules {
  bool required = false;
  bool shows_default = false;  // in the help
  bool single_values = false;  // of a vector: one value each time that it is given
  Limit limit = Limit::none;   // of a number
  double most = std::numeric_limits<double>::infinity();  // of a number with a limit
  std::vector<std::string> one_of = {};                   // all that is allowed
  std::string value_name = {};                            // in the help, instead of the type
};

// A command as CLI11 holds it, for as long as its CommandLine lives.
class Command {
 public:
  explicit Command(CLI::App& app) : app_(&app) {}

  // `name` is "--name", or "NAME" for an argument without one.
  void option(const std::string& name,
              OptionTarget value,
              const std::string& help,
              const OptionRules& rules = {});
  void flag(const std::string& name, bool* value, const std::string& help);
  // What stands below the options in its help.
  void footer(const std::string& text);
  // Called once its options are parsed.
  void runs(std::function<void()> body);
  Command add_command(const std::string& name, const std::string& description);

 private:
  CLI::App* app_;
};

// The whole of a program's arguments.
class CommandLine {
 public:
  CommandLine(const std::string& description, const std::string& program);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // The program itself, without a subcommand.
  [[nodiscard]] Command root();
  void version(const std::string& text);

  // Fills the targets and runs the subcommand that the arguments name. Returns false where they ask
  // for help or the version, which are printed. Throws ConfigError for anything unexpected, and
  // what the subcommand throws.
  [[nodiscard]] bool parse(int argc, const char* const* argv);
  // Whether the arguments named a subcommand.
  [[nodiscard]] bool has_command() const;

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace slackline
