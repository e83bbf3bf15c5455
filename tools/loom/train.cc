// loom train.
#include <fmt/format.h>
#include <weft/weft.h>

#include <atomic>
#include <csignal>
#include <thread>
#include <utility>

#include "loom/commands.h"
#include "loom/observer.h"
#include "loom/training.h"
#include "train/config.h"

namespace loom::command {
namespace {

/// The job's communicator, destroyed at the end.
class World {
 public:
  static Result<World> join() {
    World world;
    if (weftCommInitEnv(&world.comm_) != weftSuccess)
      return fail(Code::communication_error, "{}", weftGetLastError(nullptr));
    return world;
  }
  World(World&& other) noexcept : comm_(std::exchange(other.comm_, nullptr)) {}
  ~World() {
    if (comm_ != nullptr) (void)weftCommDestroy(comm_);
  }
  weftComm_t comm() const { return comm_; }

 private:
  World() = default;
  weftComm_t comm_ = nullptr;
};

/// SIGTERM asks a run to end: launchers send it before a job's time is over, or its machines go to another,
/// and kill what does not end by itself in time. From its first step on a run ends by itself, and does not
/// heed a second one: what is left is soon done, and launchers that see one rank end send it to the others.
/// SIGINT, which people send, does the same; a second one is death, for who cannot wait.
///
/// A thread of its own waits for them, and no other is interrupted: under a handler that ran on a thread that
/// was inside dnnl_sgemm, oneDNN 2.6.3 wrote beyond its buffers.
class Termination {
 public:
  /// Before there are other threads, which have the signals blocked, as this one has from now on.
  static void wait_for_signals() {
    sigset_t awaited;
    sigemptyset(&awaited);
    for (const int signal : {SIGTERM, SIGINT}) {
      struct sigaction now;
      if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) sigaddset(&awaited, signal);
    }
    pthread_sigmask(SIG_BLOCK, &awaited, nullptr);
    std::thread([awaited] {
      for (int came = 0, interrupts = 0; sigwait(&awaited, &came) == 0;) {
        if (!heeded_ || (came == SIGINT && ++interrupts > 1)) die(came);
        int none = 0;
        signal_.compare_exchange_strong(none, came);
      }
    }).detach();
  }
  /// Until now a signal ends the process.
  static void heed() { heeded_ = true; }
  static bool asked() { return signal_ != 0; }
  /// 128 + the signal that came first; of a rank that was told by others, SIGTERM.
  static int code() { return 128 + (asked() ? signal_.load() : SIGTERM); }

 private:
  static void die(int came) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, came);
    std::signal(came, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
    (void)raise(came);
  }
  static inline std::atomic<bool> heeded_ = false;
  static inline std::atomic<int> signal_ = 0;
};

}  // namespace

Result<int> train(const TrainOptions& options) {
  const Result<Config> config = Config::read(options.config, options.overrides);
  LOOM_TRY(config.status());
  Termination::wait_for_signals();
  const Result<World> world = World::join();
  LOOM_TRY(world.status());
  const std::unique_ptr<Observer> lines = console(), files = run_files();
  Result<Training> run = Training::create(*config, world->comm(), Measuring::machine);
  LOOM_TRY(run.status());
  LOOM_TRY(run->observe(*lines));
  LOOM_TRY(run->observe(*files));
  Termination::heed();
  LOOM_TRY(run->complete(Termination::asked));
  if (run->rank() == 0) {
    const std::string& out = config->values().run.out;
    fmt::print("{}report in {}/report.html\n",
               run->next_step() == run->steps() ? fmt::format("model in {}/model, ", out) : "", out);
  }
  return run->stopped() ? Termination::code() : 0;
}

}  // namespace loom::command
