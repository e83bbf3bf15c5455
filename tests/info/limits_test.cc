// weft_info and weft_sim plan with the eager limits of the communicators that they speak for: ranks as
// threads, over shared memory and over the network of the settings. CTest runs this with other settings, too.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/settings.h"
#include "engine/context/context.h"
#include "engine/context/fabric.h"
#include "engine/ranks.h"
#include "info/explain.h"
#include "sim/study.h"

namespace weft::info {
namespace {

using Json = nlohmann::ordered_json;

struct Job {
  const char* name;
  std::vector<std::string> nodes;  // by rank
  int count_nodes;
};
void PrintTo(const Job& job, std::ostream* out) { *out << job.name; }

class Limits : public ::testing::TestWithParam<Job> {
 protected:
  int ranks() const { return static_cast<int>(GetParam().nodes.size()); }

  Json explained(const char* collective, const std::string& size) const {
    Question question;
    question.collective = collective;
    question.size = size;
    question.ranks = ranks();
    question.nodes = GetParam().count_nodes;
    const Result<Section> section = explain(question);
    EXPECT_TRUE(section.ok()) << section.status().message();
    return section.ok() ? section->json : Json();
  }

  /// What weft_sim answers about such nodes, with `net` between them.
  sim::Study simulated(transport::Net net) const {
    const std::string path = ::testing::TempDir() + fmt::format("weft_limits_{}.json", getpid());
    std::ofstream(path) << Json{{"nodes", GetParam().count_nodes},
                                {"ranks_per_node", ranks() / GetParam().count_nodes},
                                {"machine", {{"net", transport::name_of(net)}}}};
    sim::Question question;
    question.cluster = path;
    question.sizes = {"1K"};
    Result<sim::Study> study = sim::answer(question);
    std::filesystem::remove(path);
    EXPECT_TRUE(study.ok()) << study.status().message();
    return study.ok() ? study.take() : sim::Study();
  }
};

void expect_same(const plan::Limits& planned, uint64_t intra, uint64_t inter, const char* by) {
  EXPECT_GT(planned.eager_intra_bytes, 0u);
  EXPECT_GT(planned.eager_inter_bytes, 0u);
  EXPECT_EQ(intra, planned.eager_intra_bytes) << by;
  EXPECT_EQ(inter, planned.eager_inter_bytes) << by;
}

TEST_P(Limits, AreThoseOfACommunicator) {
  const Json explanation = explained("allreduce", "1K");
  engine::run_ranks(GetParam().nodes, [&](engine::Communicator& comm) {
    const plan::Limits planned = comm.plans().limits();
    expect_same(planned, explanation.value("eager_intra_bytes", 0), explanation.value("eager_inter_bytes", 0),
                "weft_info");
    const engine::Fabric& fabric = comm.context().fabric();
    for (int peer = 0; peer < comm.size(); ++peer) {
      if (peer == comm.rank()) continue;
      EXPECT_EQ(comm.members().route(peer)->eager_bytes(),
                planned.eager_bytes(comm.members().layout().same_node(comm.rank(), peer)));
    }
    EXPECT_EQ(settings().net == "ofi" && GetParam().count_nodes > 1, fabric.net() != transport::Net::tcp);
    if (comm.rank() > 0) return;
    const plan::Limits study = simulated(fabric.net()).limits;
    expect_same(planned, study.eager_intra_bytes, study.eager_inter_bytes, "weft_sim");
    EXPECT_EQ(study.slice_bytes, planned.slice_bytes);
  });
}

/// Around the limits, what is explained is what a communicator with the explained machine would choose.
TEST_P(Limits, LeadToTheSamePlans) {
  const std::pair<plan::Collective, const char*> collectives[] = {
      {plan::Collective::all_reduce, "allreduce"},
      {plan::Collective::all_gather, "allgather"},
      {plan::Collective::reduce_scatter, "reducescatter"},
      {plan::Collective::broadcast, "broadcast"}};
  engine::run_ranks(GetParam().nodes, [&](engine::Communicator& comm) {
    if (comm.rank() > 0) return;
    for (const auto& [collective, name] : collectives) {
      for (uint64_t bytes = 2 << 10; bytes <= 256 << 10; bytes *= 2) {
        const Json explanation = explained(name, std::to_string(bytes));
        const Result<model::Machine> machine = model::machine_from_json(explanation["machine"].dump());
        ASSERT_TRUE(machine.ok()) << machine.status().message();
        const bool shared =
            collective == plan::Collective::all_gather || collective == plan::Collective::reduce_scatter;
        const uint64_t count = bytes / 4 / (shared ? static_cast<uint64_t>(comm.size()) : 1);
        const auto choice = comm.plans().choose_on(
            *machine, comm.plans().request_for(engine::in_place(collective, nullptr, count)), model::Pins());
        ASSERT_TRUE(choice.ok()) << choice.status().message();
        const Json& used = explanation["used"];
        EXPECT_EQ(used["algorithm"], choice->algorithm->name) << name << " of " << bytes;
        EXPECT_EQ(used["slice_bytes"], choice->limits.slice_bytes) << name << " of " << bytes;
        EXPECT_EQ(used["predicted_us"], choice->predicted_us) << name << " of " << bytes;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Jobs, Limits,
                         ::testing::Values(Job{"one_node", {"a", "a"}, 1}, Job{"two_nodes", {"a", "b"}, 2},
                                           Job{"two_nodes_of_two", {"a", "a", "b", "b"}, 2}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::info
