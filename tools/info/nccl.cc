#include <fmt/format.h>

#include "info/section.h"
#include "nccl/decision.h"
#include "nccl/library.h"
#include "nccl/tally.h"

namespace weft::info {
namespace {

using Json = nlohmann::ordered_json;

std::string counted(uint64_t number, const char* thing) {
  return fmt::format("{} {}{}", number, thing, number == 1 ? "" : "s");
}

std::string text_of(const nccl::tally::Share& share, const char* whom) {
  if (share.reasons.empty()) return "";
  const std::string counts = fmt::format("  {} and {} to {}", counted(share.communicators, "communicator"),
                                         counted(share.calls, "call"), whom);
  if (share.reasons.size() == 1) return fmt::format("{}, because {}\n", counts, share.reasons[0].text);
  std::string text = counts + ":\n";
  for (const nccl::tally::Reason& reason : share.reasons)
    text += fmt::format("    {}, because {}\n", counted(reason.communicators, "communicator"), reason.text);
  return text;
}

Json json_of(const nccl::tally::Share& share) {
  Json json{{"communicators", share.communicators}, {"calls", share.calls}, {"reasons", Json::array()}};
  for (const nccl::tally::Reason& reason : share.reasons)
    json["reasons"].push_back({{"communicators", reason.communicators}, {"reason", reason.text}});
  return json;
}

}  // namespace

Section nccl_section() {
  Section section{"nccl", "", Json::object()};
  const Result<const nccl::Library*>& library = nccl::Library::get();
  section.text = library.ok() ? fmt::format("NCCL {} is {}\n", (*library)->version(), (*library)->path())
                              : library.status().message() + "\n";
  if (library.ok())
    section.json["library"] = {{"version", (*library)->version()}, {"path", (*library)->path()}};
  else section.json["library"] = {{"error", library.status().message()}};

  const nccl::Decision decision = nccl::decide(nccl::wanted_backend());
  section.text += fmt::format("with Weft's libnccl.so.2 in front, communicators go to {}, because {}\n",
                              decision.backend == nccl::Backend::nccl ? "NCCL" : "Weft", decision.reason);
  section.json["decision"] = {{"backend", nccl::name_of(decision.backend)}, {"reason", decision.reason}};

  section.json["processes"] = Json::array();
  for (const nccl::tally::View& view : nccl::tally::all()) {
    section.text += fmt::format("process {} ({}){}\n{}{}", view.pid, view.program,
                                view.running ? "" : ", which ended without tidying up",
                                text_of(view.weft, "Weft"), text_of(view.nccl, "NCCL"));
    section.json["processes"].push_back({{"pid", view.pid},
                                         {"program", view.program},
                                         {"running", view.running},
                                         {"weft", json_of(view.weft)},
                                         {"nccl", json_of(view.nccl)}});
  }
  return section;
}

}  // namespace weft::info
