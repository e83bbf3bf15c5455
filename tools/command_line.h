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
    if (!advice.empty()) return complain(app, fmt::format("{}; {}", error.what(), advice));
    return complain(app, fmt::format("{}; {} --help lists the options", error.what(), app.get_name()));
  }
  return std::nullopt;
}

}  // namespace weft::tools
