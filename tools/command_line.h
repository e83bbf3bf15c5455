// What the tools' command lines share: --help and --version go to stdout; a mistake is one sentence on
// stderr, after the tool's name, and exit code 2. What the options are, each tool declares itself.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>
#include <string_view>

#include "weft/weft.h"

namespace weft::tools {

inline constexpr int kWrongUsage = 2;

/// Says on stderr what is wrong; returns the exit code, `code`.
inline int complain(const CLI::App& app, std::string_view problem, int code = kWrongUsage) {
  fmt::print(stderr, "{}: {}\n", app.get_name(), problem);
  return code;
}

/// What a value is, by the name that CLI11 has for its type, or that the tool gave it.
inline std::string_view kind_of(std::string_view type) {
  if (type == "INT" || type == "UINT") return "a whole number";
  if (type == "FLOAT") return "a number";
  return type == "TEXT" ? "a text" : type;
}

/// What is wrong about an option's value, and what would be right; CLI11 says the former only.
inline std::string explained(const CLI::App& app, const CLI::ParseError& error) {
  const std::string what = error.what();
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name(), type = option->get_type_name();
    if (name.empty()) continue;
    if (error.get_name() == "ArgumentMismatch" && what.starts_with(name + ": ")) {
      const bool none = what.find(" missing") != std::string::npos;
      return fmt::format("{} takes {}{}", name, kind_of(type),
                         none ? ", which is missing" : what.substr(name.size()));
    }
    if (const size_t at = what.find(name + " = ");
        error.get_name() == "ConversionError" && at != std::string::npos) {
      return fmt::format("{} is {}, must be {}", name, what.substr(at + name.size() + 3), kind_of(type));
    }
  }
  return what;
}

/// Reads the command line into what `app` declares. An exit code where nothing is left to do: help or the
/// version was asked for and given, or an option is wrong and that has been said, and what tells more:
/// `advice`, or --help.
inline std::optional<int> parse(CLI::App& app, int argc, char** argv, std::string_view advice = "") {
  app.set_version_flag(
      "--version",
      fmt::format("{} {}.{}.{}{}", app.get_name(), WEFT_MAJOR, WEFT_MINOR, WEFT_PATCH, WEFT_SUFFIX),
      "Print the version and end");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return 0;
  } catch (const CLI::CallForVersion& version) {
    fmt::print("{}\n", version.what());
    return 0;
  } catch (const CLI::ParseError& error) {
    // What could not be made sense of comes before what is missing for that reason.
    const std::vector<std::string> left = app.remaining();
    // "--" ends the options, and is none.
    const bool no_command = app.get_require_subcommand_min() > 0 && app.get_subcommands().empty();
    const bool option = !left.empty() && left.front().starts_with("-") && left.front() != "--";
    if (option || (no_command && !left.empty()))
      return complain(app, fmt::format("unknown {} {}; {}", option ? "option" : "command", left.front(),
                                       advice.empty() ? fmt::format("{} --help lists them", app.get_name())
                                                      : std::string(advice)));
    const CLI::App* const command =
        no_command || app.get_subcommands().empty() ? &app : app.get_subcommands().front();
    const std::string problem = explained(*command, error);
    if (!advice.empty()) return complain(app, fmt::format("{}; {}", problem, advice));
    return complain(app, fmt::format("{}; {} --help lists the options", problem, app.get_name()));
  }
  return std::nullopt;
}

}  // namespace weft::tools
