// What the programs of the peers share: the same measurement as the perf tools make of Weft. For each size: a
// warm-up, then as many back-to-back blocking calls as take about TIME_MS, then one call whose results are
// checked. No part of Weft; built by perf/compare.py.
//
//   PROGRAM COLLECTIVE SIZE,SIZE,… TIME_MS BUDGET_S
//
// Rank 0 prints a line of JSON for the start-up and one for each size and algorithm. After BUDGET_S seconds
// no other row is begun. Sizes count as in nccl-tests: the larger of what a rank sends and receives. Times
// are means over ranks.
#pragma once

#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace peers {

inline double now_us() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

/// CPU time of all threads of this process.
inline double cpu_now_us() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto us = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_usec);
  };
  return us(usage.ru_utime) + us(usage.ru_stime);
}

/// What a peer offers to the sweep.
struct Peer {
  int rank = 0, ranks = 1;
  std::function<void()> barrier;
  std::function<double(double)> sum;  // over ranks
};

/// Buffers of one row, for `count` elements: of AllReduce and Broadcast the whole, of the others one rank's
/// part.
struct Buffers {
  float* send;
  float* recv;
  size_t count;
};

/// One way to do a collective. `input` is the buffer that it reads; in-place ones read and write `recv`.
struct Way {
  std::string algorithm;
  std::function<void()> run;
  bool in_place = false;
};

struct Arguments {
  std::string collective;
  std::vector<size_t> sizes;
  double time_ms = 50, budget_s = 60;
};

inline bool parse(int argc, char** argv, Arguments& a) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: %s COLLECTIVE SIZE,SIZE,... TIME_MS BUDGET_S\n", argv[0]);
    return false;
  }
  a.collective = argv[1];
  for (const char* at = argv[2]; *at;) {
    char* end;
    a.sizes.push_back(std::strtoull(at, &end, 10));
    if (end == at) return false;
    at = *end ? end + 1 : end;
  }
  a.time_ms = std::atof(argv[3]);
  a.budget_s = std::atof(argv[4]);
  return !a.sizes.empty();
}

/// Small whole numbers, so that sums are exact.
inline float value_of(int rank, size_t index) {
  return static_cast<float>(rank + 1 + static_cast<int>(index % 31));
}
inline float sum_of_all(int ranks, size_t index) {
  return static_cast<float>(ranks * (ranks + 1) / 2 + ranks * static_cast<int>(index % 31));
}

class Sweep {
 public:
  using Make = std::function<std::vector<Way>(const std::string& collective, const Buffers& buffers)>;

  Sweep(const Peer& peer, const Arguments& arguments, double startup_us)
      : peer_(peer), arguments_(arguments), begin_us_(now_us()) {
    const double mean_us = peer_.sum(startup_us) / peer_.ranks;
    if (peer_.rank == 0) std::printf("{\"startup_us\": %.1f, \"ranks\": %d}\n", mean_us, peer_.ranks);
  }

  /// The number of wrong elements, over all rows and ranks.
  long run(const Make& make) {
    if (arguments_.collective == "none") return 0;
    const size_t largest = *std::max_element(arguments_.sizes.begin(), arguments_.sizes.end());
    const size_t elements = largest / sizeof(float) + static_cast<size_t>(peer_.ranks);
    std::vector<float> send(elements), recv(elements);
    for (const size_t size : arguments_.sizes) {
      const size_t whole = std::max<size_t>(1, size / sizeof(float));
      const size_t count = one_part() ? whole : std::max<size_t>(1, whole / ranks());
      for (const Way& way : make(arguments_.collective, {send.data(), recv.data(), count})) {
        if (peer_.sum(now_us() - begin_us_) / peer_.ranks > arguments_.budget_s * 1e6) return wrong_;
        row(way, send, recv, count);
      }
    }
    return wrong_;
  }

 private:
  size_t ranks() const { return static_cast<size_t>(peer_.ranks); }
  bool one_part() const { return is("all_reduce") || is("broadcast"); }
  bool is(const char* collective) const { return arguments_.collective == collective; }

  void row(const Way& way, std::vector<float>& send, std::vector<float>& recv, size_t count) {
    constexpr int kWarmup = 5, kLeast = 3, kMost = 200000;
    constexpr double kEnough = 0.8;      // of the time
    constexpr double kSettleUs = 200e3;  // until ranks that have just started are spread over the cores
    const double wanted_us = arguments_.time_ms * 1e3;
    double each_us = 1, spent_us = 0;
    const double settle_us = settled_ ? 0 : kSettleUs;
    settled_ = true;
    std::fill(recv.begin(), recv.end(), 0.f);  // in place, reductions would otherwise overflow in the end
    for (int done = 0, next = 1; done < kWarmup || spent_us < settle_us;
         done += next, next = std::min(2 * done, kMost)) {
      const double begin = now_us();
      for (int i = 0; i < next; ++i) way.run();
      each_us = peer_.sum((now_us() - begin) / next) / peer_.ranks;
      spent_us += each_us * next;
      // The first call alone is no measure: connections may be made in it.
      if (done > 0 && spent_us > std::max(wanted_us, settle_us)) break;
    }
    int iterations = 0;
    double us = each_us, cpu_us = 0;
    for (int attempt = 0; attempt < 3; ++attempt) {  // a warm-up that was disturbed promises too little
      iterations = std::max(kLeast, static_cast<int>(std::min<double>(kMost, wanted_us / us)));
      peer_.barrier();
      const double cpu_begin = cpu_now_us(), begin = now_us();
      for (int i = 0; i < iterations; ++i) way.run();
      const double end = now_us(), cpu_end = cpu_now_us();
      us = peer_.sum((end - begin) / iterations) / peer_.ranks;
      cpu_us = peer_.sum((cpu_end - cpu_begin) / iterations) / peer_.ranks;
      if (us * iterations > kEnough * wanted_us || iterations == kMost) break;
    }
    const double wrong = peer_.sum(check(way, send, recv, count));
    wrong_ += static_cast<long>(wrong);
    if (peer_.rank != 0) return;
    std::printf(
        "{\"collective\": \"%s\", \"bytes\": %zu, \"algorithm\": \"%s\", \"us\": %.4f, \"cpu_us\": %.4f, "
        "\"iterations\": %d, \"wrong\": %.0f}\n",
        arguments_.collective.c_str(), sizeof(float) * count * (one_part() ? 1 : ranks()),
        way.algorithm.c_str(), us, cpu_us, iterations, wrong);
    std::fflush(stdout);
  }

  double check(const Way& way, std::vector<float>& send, std::vector<float>& recv, size_t count) {
    const bool spread = is("reduce_scatter") || is("alltoall");  // the input has a part for every rank
    const bool joined = is("all_gather") || is("alltoall");      // the output has a part of every rank
    const size_t in = spread ? count * ranks() : count, out = joined ? count * ranks() : count;
    std::fill(recv.begin(), recv.end(), -1.f);
    std::vector<float>& input = way.in_place ? recv : send;
    if (!is("broadcast") || peer_.rank == 0) {
      for (size_t i = 0; i < in; ++i) input[i] = value_of(peer_.rank, i);
    }
    peer_.barrier();
    way.run();
    long wrong = 0;
    const size_t mine = static_cast<size_t>(peer_.rank) * count;  // where this rank's part starts
    for (size_t i = 0; i < out; ++i) wrong += recv[i] != expected(i, count, mine);
    return static_cast<double>(wrong);
  }

  float expected(size_t i, size_t count, size_t mine) const {
    const int from = static_cast<int>(i / count);
    if (is("all_reduce")) return sum_of_all(peer_.ranks, i);
    if (is("reduce_scatter")) return sum_of_all(peer_.ranks, mine + i);
    if (is("all_gather")) return value_of(from, i % count);
    if (is("alltoall")) return value_of(from, mine + i % count);
    return value_of(0, i);
  }

  const Peer peer_;
  const Arguments arguments_;
  const double begin_us_;
  long wrong_ = 0;
  bool settled_ = false;
};

}  // namespace peers
