// weft_soak: random collectives on random layouts, with deaths, aborts, stopped processes and slow ranks, for
// as long as asked.
//
//   weft_soak --minutes 60               an hour, with a seed that it prints
//   weft_soak --seed 7 --seconds 10      ten seconds of the rounds of seed 7
//   weft_soak --seed 7 --epoch 3 --round 12 --rounds 1    one round alone, as a finding prints it
//
// An epoch is a set of processes under random settings (environment.h). They live from round to round. A
// round (round.h) is a job of up to 8 ranks, threads of these processes and of others that die in it. Every
// rank checks all its results. An epoch ends with a look at what its processes use (growth.h). Exit code: 0;
// 1 for a finding; 2 for wrong arguments.
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <new>
#include <random>
#include <thread>

#include "growth.h"
#include "processes.h"
#include "random.h"

namespace soak {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kRoundWithin = std::chrono::seconds(150);
constexpr int kLeastEpochs = 8;

struct Arguments {
  uint64_t seed = 0, epoch = 0, round = 0, rounds = UINT64_MAX;
  double minutes = 60, seconds = 0;
  std::string folder = ".";
  bool trace = false;
  double total_s() const { return seconds > 0 ? seconds : minutes * 60; }
};

class Soak {
 public:
  Soak(const Arguments& arguments, Board& board) : arguments_(arguments), board_(board) {}

  /// False: there was a finding.
  bool run() {
    const auto epoch_s = std::min(180.0, std::max(arguments_.total_s() / kLeastEpochs, 2.0));
    for (epoch_ = arguments_.epoch; more(); ++epoch_)
      if (!run_epoch(Clock::now() +
                     std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(epoch_s))))
        return false;
    say_progress(true);
    return true;
  }

 private:
  bool more() const {
    return std::chrono::duration<double>(Clock::now() - begin_).count() < arguments_.total_s() &&
           done_ < arguments_.rounds;
  }

  bool run_epoch(Clock::time_point end) {
    environment_ = make_environment(mix({arguments_.seed, epoch_}));
    environment_.emplace_back("WEFT_TUNE", "off");
    environment_.emplace_back("WEFT_RECORDER_DIR", arguments_.folder);
    environment_.emplace_back("WEFT_LOG", "none");
    Workers workers(board_, environment_);
    std::array<std::vector<Usage>, kWorkers> usage;
    for (round_ = epoch_ == arguments_.epoch ? arguments_.round : 0; more() && Clock::now() < end; ++round_) {
      const Round round = make_round(mix({arguments_.seed, epoch_, round_}));
      if (!run_round(workers, round)) return false;
      for (int worker = 0; worker < kWorkers; ++worker)
        if (round.uses(worker))
          usage[static_cast<size_t>(worker)].push_back(board_.usage[static_cast<size_t>(worker)]);
    }
    for (int worker = 0; worker < kWorkers; ++worker)
      if (const std::string grown = growth_of(usage[static_cast<size_t>(worker)]); !grown.empty())
        return finding("worker " + std::to_string(worker) + ": " + grown, true);
    const std::string wrong = workers.end();
    return wrong.empty() || finding(wrong, true);
  }

  bool run_round(Workers& workers, const Round& round) {
    board_.begin_round(round.seed);
    workers.start(round);
    const auto begin = Clock::now();
    bool paused = round.event != Event::stop;
    for (;;) {
      const Workers::State state = workers.poll();
      if (board_.has_finding) return finding(board_.finding.data());
      if (state == Workers::State::died) return finding(workers.obituary());
      if (state == Workers::State::over) break;
      if (!paused && board_.met == round.ranks()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(round.at_act));
        workers.pause(round.chosen, round.pause_ms);
        paused = true;
      }
      if (Clock::now() - begin > kRoundWithin)
        return finding("the round is not over after 150 s; its threads are in" +
                       workers.dump(arguments_.folder + "/weft_soak-hang-"));
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
    ++done_;
    ++events_[static_cast<size_t>(round.event)];
    died_ += round.dead().size();
    say_progress(false);
    return true;
  }

  bool finding(const std::string& what, bool of_epoch = false) {
    const Round round = make_round(mix({arguments_.seed, epoch_, round_}));
    say_progress(true);
    std::printf("soak: FINDING: %s\n", what.c_str());
    std::printf("soak: settings: %s\n", describe(environment_).c_str());
    if (of_epoch) {
      std::printf("soak: repeat with: weft_soak --seed %llu --epoch %llu --rounds %llu\n",
                  as_printed(arguments_.seed), as_printed(epoch_), as_printed(round_));
    } else {
      std::printf("soak: round %llu of epoch %llu: %s\n", as_printed(round_), as_printed(epoch_),
                  round.describe().c_str());
      std::printf("soak: repeat with: weft_soak --seed %llu --epoch %llu --round %llu --rounds 1\n",
                  as_printed(arguments_.seed), as_printed(epoch_), as_printed(round_));
    }
    return false;
  }

  static unsigned long long as_printed(uint64_t number) { return number; }

  void say_progress(bool last) {
    const auto now = Clock::now();
    if (!last && now < next_progress_) return;
    next_progress_ = now + std::chrono::seconds(10);
    const auto minutes = [](double seconds) { return static_cast<int>(seconds) / 60; };
    const auto rest = [](double seconds) { return static_cast<int>(seconds) % 60; };
    const double passed = std::chrono::duration<double>(now - begin_).count(), total = arguments_.total_s();
    std::printf(
        "soak: %d:%02d of %d:%02d, %llu rounds (%llu with deaths, %llu stopped, %llu slow, %llu aborted), "
        "%llu calls, "
        "%llu ranks died; worker 0: %d descriptors, %d threads, %.1f MiB of heap; epoch %llu: %s\n",
        minutes(passed), rest(passed), minutes(total), rest(total), as_printed(done_), as_printed(events_[1]),
        as_printed(events_[2]), as_printed(events_[3]), as_printed(events_[4]), as_printed(board_.calls),
        as_printed(died_), board_.usage[0].descriptors, board_.usage[0].threads,
        static_cast<double>(board_.usage[0].heap_bytes) / (1 << 20), as_printed(epoch_),
        describe(environment_).c_str());
    std::fflush(stdout);
  }

  const Arguments arguments_;
  Board& board_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point next_progress_ = begin_ + std::chrono::seconds(10);
  Environment environment_;
  uint64_t epoch_ = 0, round_ = 0, done_ = 0, died_ = 0;
  std::array<uint64_t, 5> events_{};
};

}  // namespace
}  // namespace soak

int main(int argc, char** argv) {
  soak::Arguments arguments;
  arguments.seed = std::random_device()() % 1'000'000;
  CLI::App app("Random collectives on random layouts, with deaths, aborts, stopped processes and slow ranks");
  app.add_option("--seed", arguments.seed,
                 "of everything that is random (default: a random one, which is printed)");
  app.add_option("--minutes", arguments.minutes, "how long to go on (60)");
  app.add_option("--seconds", arguments.seconds, "the same");
  app.add_option("--epoch", arguments.epoch, "first epoch (0)");
  app.add_option("--round", arguments.round, "first round of that epoch (0)");
  app.add_option("--rounds", arguments.rounds, "most rounds");
  app.add_option("--folder", arguments.folder, "for what is written about a finding (.)");
  app.add_flag("--trace", arguments.trace, "every rank tells on stderr what it does");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  void* const shared =
      mmap(nullptr, sizeof(soak::Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 2;
  auto* const board = new (shared) soak::Board;
  board->trace = arguments.trace;
  std::printf("soak: seed %llu\n", static_cast<unsigned long long>(arguments.seed));
  std::fflush(stdout);
  return soak::Soak(arguments, *board).run() ? 0 : 1;
}
