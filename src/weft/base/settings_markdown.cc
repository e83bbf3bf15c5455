// docs/environment.md, written from the rows that settings.cc publishes.
#include "base/settings.h"

namespace weft {
namespace {

constexpr std::string_view kHead =
    R"(# Environment settings

Every variable that Weft reads, from the table in `src/weft/base/settings.cc`; this page is generated from it.
A variable that is unset or empty leaves its default. An unknown `WEFT_*` variable, or a value that is wrong or out of
range, makes the creation of a communicator fail with `weftInvalidSetting` and a sentence that names the variable, its
value and what would be right. The environment is read once in a process.

Flags take `on`, `off`, `yes`, `no`, `true`, `false`, `1` or `0`. Bytes take a suffix `K`, `M` or `G` (powers of
1024). Seconds may have a fraction. `weft_info` prints the values in force.
)";

constexpr std::string_view kLauncherText =
    "`weft_run` sets these for the processes that it starts. Without a launcher, set `WEFT_RANK`, "
    "`WEFT_WORLD_SIZE`,\n"
    "`WEFT_ROOT` and `WEFT_JOB_SECRET` by hand. Other launchers have variables of their own, which "
    "`weftCommInitEnv`\n"
    "knows.\n";

std::string code(const std::string& text) { return text.empty() ? "" : "`" + text + "`"; }

}  // namespace

std::string settings_markdown() {
  std::string page(kHead), group;
  for (const SettingDoc& doc : setting_docs()) {
    if (doc.group != group) {
      group = doc.group;
      page += group == "launcher" ? fmt::format("\n## Set by the launcher\n{}", kLauncherText)
                                  : fmt::format("\n## {}\n", group);
      page += "\n| variable | kind | default | right values | meaning |\n| --- | --- | --- | --- | --- |\n";
    }
    page += fmt::format("| `{}` | {} | {} | {} | {} |\n", doc.name, doc.kind, code(doc.default_value),
                        doc.bounds, doc.meaning);
  }
  return page;
}

}  // namespace weft
