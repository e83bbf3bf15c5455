// weft_run: starts the ranks of a job on this machine, as one node or as several pretended ones, for trying
// and testing. On a cluster, jobs are started by mpirun, srun or torchrun.
//
// This file is the command line; run/ is the rest.
#include <algorithm>
#include <charconv>
#include <iterator>
#include <memory>
#include <string_view>

#include "command_line.h"
#include "run/supervisor.h"

namespace {

constexpr int kMostRanks = 4096;

class HelpText : public CLI::Formatter {
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: weft_run -n RANKS [--nodes N] [OPTIONS] [--] PROGRAM [ARGUMENTS...]\n";
  }
};

/// Options whose value is the next word, unless it is part of theirs.
constexpr std::string_view kWithValue[] = {"-n", "--ranks", "--nodes", "--timeout", "--grace"};

/// mpirun's spelling, which would be taken for -n with "p" for a number.
void take_np(int argc, char** argv) {
  static char ranks[] = "-n";
  for (int i = 1; i < argc && argv[i][0] == '-' && std::string_view(argv[i]) != "--"; ++i) {
    if (std::string_view(argv[i]) == "-np") argv[i] = ranks;
    if (std::ranges::find(kWithValue, std::string_view(argv[i])) != std::end(kWithValue)) ++i;
  }
}

/// CLI11's own complaint about what is no number does not say what is right.
std::string check_ranks(const std::string& text) {
  int ranks = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
  if (error == std::errc() && end == text.data() + text.size()) return "";
  return fmt::format("the number of ranks is {}, must be a whole number from 1 to {}", text, kMostRanks);
}

/// What CLI11 cannot see: how the values fit together.
std::string problem_of(const weft::run::Job& job, bool has_ranks) {
  if (!job.command.empty() && job.command.front().starts_with("-"))
    return fmt::format("unknown option {}; weft_run --help lists them", job.command.front());
  if (!has_ranks)
    return "-n (or --ranks) is missing: the number of ranks to start, for example weft_run -n 4 ./program";
  if (job.ranks < 1 || job.ranks > kMostRanks)
    return fmt::format("-n is {}, must be from 1 to {}", job.ranks, kMostRanks);
  if (job.nodes < 1 || job.nodes > job.ranks)
    return fmt::format("--nodes is {}, must be from 1 to the number of ranks, {}", job.nodes, job.ranks);
  if (job.timeout_s < 0) return fmt::format("--timeout is {}, must be positive (seconds)", job.timeout_s);
  if (job.grace_s < 0) return fmt::format("--grace is {}, must not be negative (seconds)", job.grace_s);
  if (job.command.empty())
    return "no program given, for example: weft_run -n 4 --nodes 2 all_reduce_perf -b 8 -e 1M -f 2";
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  weft::run::Job job;
  bool no_label = false, no_bind = false;
  CLI::App app{
      "Starts the ranks of a job on this machine and waits for them. The exit code is the first failure's (a "
      "signal n\n"
      "counts as 128+n, the timeout as 124), 0 when there was none. Rank 0 gets standard input, unless it is "
      "a terminal.\n"
      "SIGUSR1, SIGUSR2 and SIGQUIT are passed on to ranks that handle them; SIGUSR2 has Weft write its "
      "flight "
      "recorders.\n"
      "Each rank finds WEFT_RANK, WEFT_WORLD_SIZE, WEFT_LOCAL_RANK, WEFT_LOCAL_SIZE, WEFT_NODE, WEFT_ROOT "
      "and\n"
      "WEFT_JOB_SECRET in its environment; weftCommInitEnv() reads them."};
  app.name("weft_run");
  app.formatter(std::make_shared<HelpText>());
  const CLI::Option* const ranks =
      app.add_option("-n,--ranks", job.ranks, "Ranks to start (or -np)")->check(check_ranks);
  app.add_option("--nodes", job.nodes,
                 "Pretend that they sit on this many nodes, in blocks as even as possible");
  app.add_flag("--keep-going", job.keep_going, "Let the others run on when a rank fails");
  app.add_flag("--no-label", no_label, "Print lines as they are, without \"[rank] \" in front");
  app.add_flag("--no-bind", no_bind, "Do not give each rank cores of its own when there are enough");
  app.add_option("--timeout", job.timeout_s, "Stop everything after this many seconds");
  app.add_option("--grace", job.grace_s, "Seconds from SIGTERM to SIGKILL")->capture_default_str();
  app.prefix_command();

  take_np(argc, argv);
  if (const std::optional<int> over = weft::tools::parse(app, argc, argv)) return *over;
  job.command = app.remaining();
  if (!job.command.empty() && job.command.front() == "--") job.command.erase(job.command.begin());
  job.label = !no_label;
  job.bind = !no_bind;
  if (const std::string problem = problem_of(job, ranks->count() > 0); !problem.empty())
    return weft::tools::complain(app, problem);

  weft::run::Supervisor supervisor(job);
  const weft::Result<int> code = supervisor.run();
  if (!code) {
    return weft::tools::complain(
        app, code.status().message(),
        code.status().code() == weft::Code::invalid_argument ? weft::tools::kWrongUsage : 1);
  }
  return *code;
}
