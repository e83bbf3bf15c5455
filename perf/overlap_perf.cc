// overlap_perf: how much of a transfer is hidden behind what the caller does meanwhile, and what that costs
// the caller.
//
// A collective is started on a stream; the caller then computes (a fixed amount of work, no call into the
// library) or sleeps, for `--factor` times as long as the transfer takes alone; then it synchronizes.
// Then, as the columns are called:
//
// hidden: (transfer alone + caller alone - both together) / the shorter of the two. 1: the shorter is free.
//
// longer: by what share the computation takes longer than alone.
//
// slowed: the same without the CPU time that the transfer itself needs, which is measured while callers
// sleep, and shared out over the CPUs that the ranks of one host have.
//
// asleep: what is hidden of the transfer while the caller sleeps.
//
// After that: AllGather and ReduceScatter on two streams of one communicator, together over the longer one.
//
// Times are medians over iterations, of the slowest rank.
#include <fmt/format.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "options.h"
#include "session.h"

namespace weft::perf {
namespace {

constexpr int kWrongResults = 1, kWrongUsage = 2;

struct Settings {
  std::vector<size_t> sizes;  // bytes, as nccl-tests counts them
  int iterations = 10;
  double factor = 1.5;
  double timeout_s = 0;
  std::string json;
};

double us_of(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}
double now_us() { return us_of(CLOCK_MONOTONIC); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// A fixed amount of arithmetic: what is taken from its CPU makes it longer.
void compute(uint64_t units) {
  double a = 1, b = 2, c = 3, d = 4;
  for (uint64_t i = 0; i < units * 64; ++i) {
    a = a * 0.999999 + 1e-6;
    b = b * 0.999999 + 1e-6;
    c = c * 0.999999 + 1e-6;
    d = d * 0.999999 + 1e-6;
  }
  const double sum = a + b + c + d;
  asm volatile("" : : "m"(sum));  // so that it is not left out
}

void sleep_for(double us) {
  const auto ns = static_cast<int64_t>(us * 1e3);
  const timespec t{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
  nanosleep(&t, nullptr);
}

enum class Kind { all_reduce, all_gather, reduce_scatter };
const char* name_of(Kind kind) {
  return kind == Kind::all_reduce ? "all_reduce" : kind == Kind::all_gather ? "all_gather" : "reduce_scatter";
}

/// A collective of one size on a stream of its own, over inputs of ones.
class Transfer {
 public:
  Transfer(const Session& session, Kind kind, size_t bytes)
      : session_(session),
        kind_(kind),
        count_(std::max<size_t>(1, bytes / sizeof(float) / (kind == Kind::all_reduce ? 1 : ranks()))),
        in_(count_ * (kind == Kind::reduce_scatter ? ranks() : 1), 1.f),
        out_(count_ * (kind == Kind::all_gather ? ranks() : 1), 0.f) {
    session_.must(weftStreamCreate(&stream_), "weftStreamCreate");
  }
  ~Transfer() { session_.must(weftStreamDestroy(stream_), "weftStreamDestroy"); }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  size_t bytes() const { return sizeof(float) * std::max(in_.size(), out_.size()); }
  void start() {
    const weftComm_t comm = session_.comm();
    switch (kind_) {
      case Kind::all_reduce:
        return session_.must(
            weftAllReduce(in_.data(), out_.data(), count_, weftFloat32, weftSum, comm, stream_),
            "weftAllReduce");
      case Kind::all_gather:
        return session_.must(weftAllGather(in_.data(), out_.data(), count_, weftFloat32, comm, stream_),
                             "weftAllGather");
      case Kind::reduce_scatter:
        return session_.must(
            weftReduceScatter(in_.data(), out_.data(), count_, weftFloat32, weftSum, comm, stream_),
            "weftReduceScatter");
    }
  }
  void finish() { session_.must(weftStreamSynchronize(stream_), "weftStreamSynchronize"); }
  bool right() const {
    const float expected = kind_ == Kind::all_gather ? 1.f : static_cast<float>(session_.ranks());
    return std::all_of(out_.begin(), out_.end(), [=](float x) { return x == expected; });
  }

 private:
  size_t ranks() const { return static_cast<size_t>(session_.ranks()); }

  const Session& session_;
  const Kind kind_;
  const size_t count_;
  std::vector<float> in_, out_;
  weftStream_t stream_ = nullptr;
};

struct Overlap {
  double transfer_us, transfer_cpu_us;  // alone
  double compute_us, hidden_computing;
  double longer, slowed;  // by what share the computation takes longer; without the transfer's CPU time
  double sleep_us, hidden_asleep;
};

struct Pair {
  double all_gather_us, reduce_scatter_us, together_us;
  double ratio() const { return together_us / std::max(all_gather_us, reduce_scatter_us); }
};

class Bench {
 public:
  Bench(Session& session, const Settings& settings) : session_(session), settings_(settings) {}

  Overlap overlap(Transfer& transfer);
  Pair pair(Transfer& gather, Transfer& scatter);
  bool all_right(const std::vector<const Transfer*>& transfers) {
    int wrong = 0;
    for (const Transfer* transfer : transfers) wrong += !transfer->right();
    return most(wrong) == 0;
  }

 private:
  double most(double mine) {
    const std::vector<double> all = session_.gather(mine);
    return *std::max_element(all.begin(), all.end());
  }
  /// What `body` takes, with all ranks beginning together.
  double time(const std::function<void()>& body) {
    std::vector<double> times;
    for (int i = 0; i < settings_.iterations; ++i) {
      session_.barrier();
      const double begin = now_us();
      body();
      times.push_back(now_us() - begin);
    }
    return most(median(times));
  }
  /// CPU time of what the transfer costs one CPU of the host that has most to do.
  double cpu_per_core(double mine);

  Session& session_;
  const Settings& settings_;
};

double Bench::cpu_per_core(double mine) {
  struct Cost {
    char host[64];
    double us;
  } own{};
  gethostname(own.host, sizeof own.host - 1);
  own.us = mine;
  double sum = 0, ranks = 0;
  for (const Cost& cost : session_.gather(own)) {
    if (std::string(cost.host) != own.host) continue;
    sum += cost.us;
    ranks += 1;
  }
  return most(sum / std::min(ranks, static_cast<double>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)))));
}

Overlap Bench::overlap(Transfer& transfer) {
  Overlap o{};
  for (int i = 0; i < 2; ++i) {  // connections are made
    transfer.start();
    transfer.finish();
  }
  o.transfer_us = time([&] {
    transfer.start();
    transfer.finish();
  });
  const double wanted_us = settings_.factor * o.transfer_us;

  // How much work takes so long while every rank works.
  constexpr uint64_t kProbe = 2000;
  const double probe_us = time([] { compute(kProbe); });
  const auto units = static_cast<uint64_t>(most(std::max(1.0, wanted_us / probe_us * kProbe)));
  o.compute_us = time([=] { compute(units); });
  o.sleep_us = time([=] { sleep_for(wanted_us); });

  double cpu_us = 0;
  const double asleep_us = time([&] {
    const double begin = us_of(CLOCK_PROCESS_CPUTIME_ID);
    transfer.start();
    sleep_for(wanted_us);
    transfer.finish();
    cpu_us += (us_of(CLOCK_PROCESS_CPUTIME_ID) - begin) / settings_.iterations;
  });
  o.transfer_cpu_us = cpu_per_core(cpu_us);
  std::vector<double> computing;
  const double busy_us = time([&] {
    transfer.start();
    const double begin = now_us();
    compute(units);
    computing.push_back(now_us() - begin);
    transfer.finish();
  });
  const auto hidden = [&](double own_us, double both_us) {
    return (o.transfer_us + own_us - both_us) / std::min(o.transfer_us, own_us);
  };
  o.hidden_computing = hidden(o.compute_us, busy_us);
  o.hidden_asleep = hidden(o.sleep_us, asleep_us);
  const double computing_us = most(median(computing));
  o.longer = computing_us / o.compute_us - 1;
  o.slowed = (computing_us - o.transfer_cpu_us) / o.compute_us - 1;
  return o;
}

Pair Bench::pair(Transfer& gather, Transfer& scatter) {
  const auto alone = [&](Transfer& transfer) {
    return time([&] {
      transfer.start();
      transfer.finish();
    });
  };
  Pair p{};
  p.all_gather_us = alone(gather);
  p.reduce_scatter_us = alone(scatter);
  p.together_us = time([&] {
    gather.start();
    scatter.start();
    gather.finish();
    scatter.finish();
  });
  return p;
}

/// Settings, or the exit code to end with.
std::optional<Settings> parse(int argc, char** argv, int& code) {
  CLI::App app(
      "How much of a transfer is hidden behind what the caller does meanwhile. Start ranks with weft_run -n, "
      "mpirun or "
      "srun.\nExit code: 0; 1 when results are wrong; 2 when the command line is; 3 when a call fails.");
  Settings settings;
  std::vector<std::string> sizes = {"1M", "4M", "16M"};
  app.add_option("--sizes", sizes, "Sizes, with commas")
      ->delimiter(',')
      ->capture_default_str()
      ->type_name("BYTES,...");
  app.add_option("-n,--iters", settings.iterations, "Iterations of each measurement")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  app.add_option("--factor", settings.factor, "Length of the computation, over the transfer's")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 100.0));
  app.add_option("-T,--timeout", settings.timeout_s, "Seconds that an operation may take")
      ->check(CLI::PositiveNumber);
  app.add_option("-J,--json", settings.json, "Write the results to this file, as JSON");
  app.set_version_flag("--version", version_of(argv[0]), "Print the version and end");
  try {
    app.parse(argc, argv);
    for (const std::string& size : sizes) settings.sizes.push_back(parse_size("--sizes", size));
    if (!is_first_of_launch() || can_write(settings.json)) return settings;
    code = kWrongUsage;
  } catch (const CLI::CallForVersion& version) {
    if (is_first_of_launch()) std::printf("%s\n", version.what());
    code = 0;
  } catch (const CLI::CallForHelp&) {
    if (is_first_of_launch()) std::fputs(app.help().c_str(), stdout);
    code = 0;
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    code = kWrongUsage;
  }
  return std::nullopt;
}

/// Only rank 0 prints and remembers.
class Output {
 public:
  Output(const Session& session, const Settings& settings)
      : first_(session.rank() == 0), settings_(settings) {
    say("# Overlap, Weft {}.{}.{}, {} ranks, {} iterations; times in us\n", WEFT_MAJOR, WEFT_MINOR,
        WEFT_PATCH, session.ranks(), settings.iterations);
    say("# {:>10}  {:>14}  {:>10}  {:>10}  {:>10}  {:>8}  {:>8}  {:>8}  {:>8}\n", "size", "collective",
        "transfer", "its CPU", "compute", "hidden", "longer", "slowed", "asleep");
    document_ = {{"version", 1},
                 {"ranks", session.ranks()},
                 {"overlap", nlohmann::json::array()},
                 {"two_streams", nlohmann::json::array()}};
  }
  void add(Kind kind, size_t bytes, const Overlap& o) {
    say("{:>12}  {:>14}  {:>10.1f}  {:>10.1f}  {:>10.1f}  {:>6.0f} %  {:>6.1f} %  {:>6.1f} %  {:>6.0f} %\n",
        bytes, name_of(kind), o.transfer_us, o.transfer_cpu_us, o.compute_us, 100 * o.hidden_computing,
        100 * o.longer, 100 * o.slowed, 100 * o.hidden_asleep);
    document_["overlap"].push_back({{"collective", name_of(kind)},
                                    {"size", bytes},
                                    {"transfer_us", o.transfer_us},
                                    {"transfer_cpu_us", o.transfer_cpu_us},
                                    {"compute_us", o.compute_us},
                                    {"hidden_computing", o.hidden_computing},
                                    {"longer", o.longer},
                                    {"slowed", o.slowed},
                                    {"sleep_us", o.sleep_us},
                                    {"hidden_asleep", o.hidden_asleep}});
  }
  void add(size_t bytes, const Pair& p) {
    say("{:>12}  two streams: all_gather {:.1f}, reduce_scatter {:.1f}, together {:.1f}: {:.2f} of the "
        "longer one\n",
        bytes, p.all_gather_us, p.reduce_scatter_us, p.together_us, p.ratio());
    document_["two_streams"].push_back({{"size", bytes},
                                        {"all_gather_us", p.all_gather_us},
                                        {"reduce_scatter_us", p.reduce_scatter_us},
                                        {"together_us", p.together_us},
                                        {"ratio", p.ratio()}});
  }
  void add_wrong(size_t bytes) { say("{:>12}  results are WRONG\n", bytes); }
  bool write() const {
    if (!first_ || settings_.json.empty()) return true;
    std::ofstream file(settings_.json);
    file << document_.dump(2) << '\n';
    file.close();
    if (!file) std::fprintf(stderr, "--json: cannot write %s\n", settings_.json.c_str());
    return static_cast<bool>(file);
  }

 private:
  template <typename... Values>
  void say(fmt::format_string<Values...> text, Values&&... values) {
    if (!first_) return;
    fmt::print(text, std::forward<Values>(values)...);
    std::fflush(stdout);
  }
  const bool first_;
  const Settings& settings_;
  nlohmann::json document_;
};

int run(const Settings& settings) {
  Options options;
  options.timeout_s = settings.timeout_s;
  Session session(options);
  Bench bench(session, settings);
  Output output(session, settings);
  bool right = true;
  for (const size_t size : settings.sizes) {
    for (const Kind kind : {Kind::all_reduce, Kind::all_gather}) {
      Transfer transfer(session, kind, size);
      output.add(kind, transfer.bytes(), bench.overlap(transfer));
      if (!bench.all_right({&transfer})) right = false, output.add_wrong(size);
    }
  }
  for (const size_t size : settings.sizes) {
    Transfer gather(session, Kind::all_gather, size), scatter(session, Kind::reduce_scatter, size);
    output.add(gather.bytes(), bench.pair(gather, scatter));
    if (!bench.all_right({&gather, &scatter})) right = false, output.add_wrong(size);
  }
  const bool written = output.write();
  session.barrier();  // a launcher may end rank 0 as soon as another rank ends with wrong results
  return right && written ? 0 : kWrongResults;
}

}  // namespace
}  // namespace weft::perf

int main(int argc, char** argv) {
  int code = 0;
  const auto settings = weft::perf::parse(argc, argv, code);
  return settings ? weft::perf::run(*settings) : code;
}
