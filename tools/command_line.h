// What the tools' command lines share: --help goes to stdout; a mistake is one sentence on stderr, after the
// tool's name, and exit code 2. What the options are, each tool declares itself.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>
#include <string_view>

namespace weft::tools {

inline constexpr int kWrongUsage = 2;

/// Says on stderr what is wrong; returns the exit code, `code`.
inline int complain(const CLI::App& app, std::string_view problem, int code = kWrongUsage) {
  fmt::print(stderr, "{}: {}\n", app.get_name(), problem);
  return code;
}

/// Reads the command line into what `app` declares. An exit code where nothing is left to do: help was asked
/// for and given, or an option is wrong and that has been said, and what tells more: `advice`, or --help.
inline std::optional<int> parse(CLI::App& app, int argc, char** argv, std::string_view advice = "") {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return 0;
  } catch (const CLI::ParseError& error) {
    // What could not be made sense of comes before what is missing for that reason.
    const std::vector<std::string> left = app.remaining();
    const bool no_command = app.get_require_subcommand_min() > 0 && app.get_subcommands().empty();
    if (!left.empty() && (no_command || left.front().starts_with("-")))
      return complain(app, fmt::format("unknown {} {}; {}", no_command ? "command" : "option", left.front(),
                                       advice.empty() ? fmt::format("{} --help lists them", app.get_name())
                                                      : std::string(advice)));
    if (!advice.empty()) return complain(app, fmt::format("{}; {}", error.what(), advice));
    return complain(app, fmt::format("{}; {} --help lists the options", error.what(), app.get_name()));
  }
  return std::nullopt;
}

}  // namespace weft::tools
