#include "tools/cli/command_line.h"

#include <charconv>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "core/error.h"
#include "core/shown_text.h"

namespace slackline {

namespace {

// What is wrong with a number that was given; nothing if nothing is.
std::string verdict(const std::string& text, Limit limit, double most) {
  const auto refuse = [&text](const std::string& rule) {
    return fmt::format("must be {}; got {}", rule, shown_value(text));
  };
  double value = 0.0;
  if (!CLI::detail::lexical_cast(text, value)) {
    return refuse("a number");
  }
  // Written so that NaN is refused.
  const bool is_allowed = limit == Limit::positive ? value > 0.0 : value >= 0.0;
  if (!is_allowed) {
    return refuse(limit == Limit::positive ? "greater than 0" : "0 or greater");
  }
  return value <= most ? "" : refuse(fmt::format("at most {}", most));
}

const char* description_of(Limit limit) {
  switch (limit) {
    case Limit::positive:
      return "POSITIVE";
    case Limit::not_negative:
      return "NONNEGATIVE";
    case Limit::none:
      return "";
  }
  return "";
}

// CLI11 reads 010 as 8 and cuts off what is too large. So this reads the text, and leaves what
// there is no other way to read.
template <typename T>
CLI::Validator whole_number(const OptionRules& rules) {
  T least = std::numeric_limits<T>::min();
  if (rules.limit != Limit::none) {
    least = rules.limit == Limit::positive ? 1 : 0;
  }
  T most = std::numeric_limits<T>::max();
  if (rules.most < static_cast<double>(most)) {
    most = static_cast<T>(rules.most);
  }
  return {[least, most](std::string& text) {
            T value{};
            const char* const end = text.data() + text.size();
            const auto [stopped, error] = std::from_chars(text.data(), end, value);
            if (error != std::errc{} || stopped != end || value < least || value > most) {
              return fmt::format(
                  "must be a whole number from {} to {}; got {}", least, most, shown_value(text));
            }
            text = std::to_string(value);
            return std::string();
          },
          description_of(rules.limit)};
}

template <typename T>
struct ValueOf {
  using Type = T;
};

template <typename T>
struct ValueOf<std::optional<T>> {
  using Type = T;
};

}  // namespace

void Command::option(const std::string& name,
                     OptionTarget value,
                     const std::string& help,
                     const OptionRules& rules) {
  CLI::Option* option = std::visit(
      [&](auto* target) {
        using Value = typename ValueOf<std::remove_pointer_t<decltype(target)>>::Type;
        CLI::Option* added = app_->add_option(name, *target, help);
        if constexpr (std::is_integral_v<Value>) {
          added->transform(whole_number<Value>(rules));
        } else if (rules.limit != Limit::none) {
          added->check([limit = rules.limit, most = rules.most](
                           const std::string& text) { return verdict(text, limit, most); },
                       description_of(rules.limit));
        }
        return added;
      },
      value);
  option->required(rules.required);
  if (!rules.one_of.empty()) {
    option->check(CLI::IsMember(rules.one_of));
  }
  if (!rules.value_name.empty()) {
    option->type_name(rules.value_name);
  }
  if (rules.single_values) {
    option->allow_extra_args(false);
  }
  if (rules.shows_default) {
    option->capture_default_str();
  }
}

void Command::flag(const std::string& name, bool* value, const std::string& help) {
  app_->add_flag(name, *value, help);
}

void Command::footer(const std::string& text) {
  app_->footer(text);
}

void Command::runs(std::function<void()> body) {
  app_->callback(std::move(body));
}

Command Command::add_command(const std::string& name, const std::string& description) {
  return Command(*app_->add_subcommand(name, description));
}

CommandLine::CommandLine(const std::string& description, const std::string& program)
    : app_(std::make_unique<CLI::App>(description, program)) {
  app_->require_subcommand(0, 1);  // an unknown one is named as an extra argument
}

CommandLine::~CommandLine() = default;

Command CommandLine::root() {
  return Command(*app_);
}

void CommandLine::version(const std::string& text) {
  app_->set_version_flag("--version", text);
}

bool CommandLine::parse(int argc, const char* const* argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // --help and --version end here too, with exit code 0 and text that is all ours.
    if (error.get_exit_code() == 0) {
      app_->exit(error);
      return false;
    }
    constexpr std::size_t kLongest = 400;  // bytes; it quotes what it did not expect
    const std::string program = app_->get_name();
    throw ConfigError(with_hint(shown_value(error.what(), kLongest),
                                fmt::format("{0} --help, {0} COMMAND --help", program)));
  }
  return true;
}

bool CommandLine::has_command() const {
  return !app_->get_subcommands().empty();
}

}  // namespace slackline
