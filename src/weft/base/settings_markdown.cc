// docs/reference/settings.md, written from the rows that settings.cc publishes.
#include "base/settings.h"

namespace weft {
namespace {

constexpr std::string_view kHead =
    R"(# Settings

This page lists every environment variable that Weft reads. It is generated from the table in
`src/weft/base/settings.cc`. `weft_info --settings` prints the values in force. [Loom's](tools.md#loom) are
`LOOM_INSTRUCTIONS`, `LOOM_CUBLASLT_LIBRARY` and `LOOM_CUDNN_LIBRARY`.

An unset or empty variable has its default. Weft refuses an unknown `WEFT_*` variable and a wrong value. The creation
of a communicator then returns `weftInvalidSetting`, and the error names the variable, its value and what is allowed.
A process reads its environment once.

Flags take `on`, `off`, `yes`, `no`, `true`, `false`, `1` or `0`. Bytes take a suffix `K`, `M` or `G` (powers of 1024).
Seconds may have a fraction.
)";

constexpr std::string_view kLauncherText =
    R"(`weft_run` sets these variables for its processes. Without a launcher, set `WEFT_RANK`, `WEFT_WORLD_SIZE`, `WEFT_ROOT`
and `WEFT_JOB_SECRET` for each process. `weftCommInitEnv` also reads the variables of other launchers.
)";

std::string code(const std::string& text) { return text.empty() ? "" : "`" + text + "`"; }

}  // namespace

std::string settings_markdown() {
  std::string page(kHead), group;
  for (const SettingDoc& doc : setting_docs()) {
    if (doc.group != group) {
      group = doc.group;
      page += group == "launcher" ? fmt::format("\n## Set by the launcher\n{}", kLauncherText)
                                  : fmt::format("\n## {}\n", group);
      page += "\n| variable | kind | default | allowed | meaning |\n| --- | --- | --- | --- | --- |\n";
    }
    page += fmt::format("| `{}` | {} | {} | {} | {} |\n", doc.name, doc.kind, code(doc.default_value),
                        doc.bounds, doc.meaning);
  }
  return page;
}

}  // namespace weft
