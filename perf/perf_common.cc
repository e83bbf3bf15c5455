#include "perf_common.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include "options.h"
#include "report.h"
#include "session.h"

namespace weft::perf {
namespace {

constexpr int kWrongResults = 1, kWrongUsage = 2;
constexpr int kLeastIterations = 3, kMostIterations = 200000;  // of --time_ms
constexpr double kEnough = 0.8;                                // … of which so much is long enough
constexpr double kSettleUs = 200e3;  // of --time_ms: until ranks that have just started are spread over cores
constexpr int kPoison = 0xa5;        // what outputs hold before a checked run

double now_us() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

/// CPU time of all threads of this process so far.
double cpu_now_us() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto us = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_usec);
  };
  return us(usage.ru_utime) + us(usage.ru_stime);
}

/// The operator of one row, as a handle; a pre-multiplied sum lives as long as this.
class Handle {
 public:
  Handle(const Session& session, weftDataType_t type, Operator op) : session_(session) {
    made_ = op == Operator::mulsum;
    if (made_) {
      uint64_t scalar = premul_scalar(type, session.rank());
      session_.must(
          weftRedOpCreatePreMulSum(&handle_, &scalar, type, weftScalarHostImmediate, session.comm()),
          "weftRedOpCreatePreMulSum");
    } else if (op != Operator::none) {
      handle_ = static_cast<weftRedOp_t>(op);
    }
  }
  ~Handle() {
    if (made_) session_.must(weftRedOpDestroy(handle_, session_.comm()), "weftRedOpDestroy");
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  weftRedOp_t get() const { return handle_; }

 private:
  const Session& session_;
  bool made_ = false;
  weftRedOp_t handle_ = weftSum;
};
static_assert(static_cast<int>(Operator::bxor) == weftBxor);

/// What one row of the table is about.
struct Case {
  size_t bytes;  // as asked for; the row says what it comes to
  weftDataType_t type;
  Operator op;
  int root;  // 0 for collectives that have none
};

/// One half of one row: a collective, its buffers, and the two things done with them.
class Trial {
 public:
  Trial(const Collective& collective, const Options& options, Session& session, const Case& the_case,
        bool in_place, const Buffer& in, const Buffer& out, size_t capacity)
      : collective_(collective),
        options_(options),
        session_(session),
        case_(the_case),
        in_place_(in_place),
        element_(size_of(the_case.type)),
        shape_(collective.shape(the_case.bytes / element_, session.ranks())),
        share_(collective.share(shape_, session.rank(), session.ranks(), the_case.root)),
        handle_(session, the_case.type, the_case.op),
        input_(in_place ? out : in),
        output_(out),
        in_(input_.data() + (in_place ? offset(shape_.send_offset) : 0)),
        out_(output_.data() + (in_place ? offset(shape_.recv_offset) : 0)),
        extent_(std::max(shape_.send, shape_.recv) * element_),
        margin_(out.data() + (in_place ? extent_ : shape_.recv * element_)),
        turns_(options.rotate && extent_ > 0 ? capacity / extent_ : 1) {}

  const Shape& shape() const { return shape_; }
  size_t extent() const { return extent_; }
  /// What the library chose in the timed iterations.
  const std::string& algorithm() const { return algorithm_; }
  /// What the library says that one operation of such a row should take, in µs.
  double predicted_us() const { return predicted_us_; }

  /// Warms up and times the iterations; the same values on every rank.
  Measurement time();
  /// Runs once on fresh data; elements that are wrong, over all ranks.
  uint64_t check(uint64_t seed);

 private:
  size_t offset(size_t elements) const { return elements * static_cast<size_t>(session_.rank()) * element_; }
  void run(size_t turn);
  void iterate(int iterations);
  template <typename Calls>
  std::unique_ptr<Graph> captured(Calls calls);
  void finish() { session_.finish(); }
  int warm_up();
  int iterations_in_time(double each_us) const;
  Measurement time(int iterations);
  double across_ranks(double mine);
  double mean(double mine);

  const Collective& collective_;
  const Options& options_;
  Session& session_;
  const Case case_;
  const bool in_place_;
  const size_t element_;  // bytes
  const Shape shape_;
  const Share share_;
  const Handle handle_;
  const Buffer& input_;
  const Buffer& output_;
  std::byte* const in_;
  std::byte* const out_;
  const size_t extent_;  // bytes of a buffer that one run touches
  std::string algorithm_;
  double predicted_us_ = WEFT_UNDEF_FLOAT;
  std::byte* const margin_;  // right behind what may be written
  const size_t turns_;       // parts of the buffers that iterations move through
};

void Trial::run(size_t turn) {
  const size_t shift = turn % turns_ * extent_;
  const Call call{in_ + shift, out_ + shift,    shape_.argument,  case_.type,      handle_.get(),
                  case_.root,  session_.rank(), session_.ranks(), session_.comm(), session_.stream()};
  session_.must(collective_.run(call), collective_.title.c_str());
}

void Trial::iterate(int iterations) {
  const bool grouped = options_.aggregated > 1;
  for (int i = 0; i < iterations; ++i) {
    if (grouped) session_.must(weftGroupStart(), "weftGroupStart");
    for (int a = 0; a < options_.aggregated; ++a) run(static_cast<size_t>(i * options_.aggregated + a));
    if (grouped) session_.must(weftGroupEnd(), "weftGroupEnd");
  }
}

/// A CUDA graph of these calls; null where none is asked for.
template <typename Calls>
std::unique_ptr<Graph> Trial::captured(Calls calls) {
  if (options_.graphs == 0) return nullptr;
  auto graph = std::make_unique<Graph>(*session_.cuda());
  calls();
  graph->end();
  return graph;
}

/// Returns the number of iterations to time: the one asked for, or what fits into the time asked for by the
/// measure of the warm-up, which then ends early where an iteration is long.
int Trial::warm_up() {
  if (options_.time_ms == 0) {
    iterate(options_.warmup);
    finish();
    return options_.iterations;
  }
  const double wanted_us = options_.time_ms * 1e3;
  double slowest_us = 0, spent_us = 0;
  const double settle_us = session_.has_just_started() ? kSettleUs : 0;
  for (int done = 0, next = 1; done < std::max(1, options_.warmup) || spent_us < settle_us;
       done += next, next = std::min(2 * done, kMostIterations)) {
    const double begin = now_us();
    iterate(next);
    finish();
    const double mine = (now_us() - begin) / next;
    const std::vector<double> all = session_.gather(mine);
    slowest_us = *std::max_element(all.begin(), all.end());
    spent_us += slowest_us * next;
    const bool is_measure = done > 0;  // the first call alone is none: connections may be made in it
    if (is_measure && spent_us > std::max(wanted_us, settle_us)) break;
  }
  return iterations_in_time(slowest_us);
}

Measurement Trial::time() {
  Measurement measured = time(warm_up());
  // A warm-up that was disturbed, or took another algorithm, promises too little.
  for (int again = 0; again < 2 && options_.time_ms > 0; ++again) {
    const double took_us = measured.time_us * measured.iterations * options_.aggregated;
    if (took_us > options_.time_ms * kEnough * 1e3 || measured.iterations == kMostIterations) break;
    measured = time(iterations_in_time(measured.time_us * options_.aggregated));
  }
  return measured;
}

int Trial::iterations_in_time(double each_us) const {
  return static_cast<int>(
      std::clamp<double>(options_.time_ms * 1e3 / each_us, kLeastIterations, kMostIterations));
}

Measurement Trial::time(int iterations) {
  Measurement measured;
  measured.iterations = iterations;
  const std::unique_ptr<Graph> graph = captured([&] { iterate(iterations); });
  if (graph && options_.warmup > 0) {
    graph->launch();
    finish();
  }
  session_.barrier();
  const double cpu_begin = cpu_now_us(), begin = now_us();
  if (!graph) iterate(iterations);
  for (int i = 0; i < options_.graphs; ++i) graph->launch();
  const double issued = now_us();
  finish();
  const double done = now_us(), cpu_done = cpu_now_us();
  // Before the library is used for anything else.
  if (session_.mpi()) {
    algorithm_ = "mpi";
  } else {
    const weftCommStats_t stats = session_.stats();
    algorithm_ = stats.lastAlgorithm;
    predicted_us_ = stats.lastPredictedTime;
  }
  const int operations = iterations * options_.aggregated * std::max(1, options_.graphs);
  measured.time_us = across_ranks(((options_.cpu_time ? issued : done) - begin) / operations);
  measured.cpu_us = mean((cpu_done - cpu_begin) / operations);
  return measured;
}

double Trial::mean(double mine) {
  double sum = 0;
  for (const double value : session_.gather(mine)) sum += value;
  return sum / session_.ranks();
}

double Trial::across_ranks(double mine) {
  const std::vector<double> all = session_.gather(mine);
  switch (options_.average) {
    case 0: return all[0];
    case 2: return *std::min_element(all.begin(), all.end());
    case 3: return *std::max_element(all.begin(), all.end());
    default: return mean(mine);
  }
}

uint64_t Trial::check(uint64_t seed) {
  const auto contribution = [&](int rank) {
    return Pattern::contribution(case_.type, case_.op, seed, rank, session_.ranks());
  };
  const Pattern input = contribution(session_.rank());
  const size_t input_bytes = share_.input * element_, output_bytes = shape_.recv * element_;
  std::byte* const margin = output_.image(margin_);
  std::memset(output_.image(out_), kPoison, output_bytes);
  std::memset(margin, kPoison, Buffer::kMargin);
  input.fill(input_.image(in_), 0, share_.input);  // after the poison: in place, it is part of the output
  output_.upload(out_, output_bytes);
  output_.upload(margin_, Buffer::kMargin);
  input_.upload(in_, input_bytes);
  session_.barrier();

  const std::unique_ptr<Graph> graph = captured([&] { run(0); });
  if (graph) graph->launch();
  else run(0);
  finish();
  output_.download(out_, output_bytes);
  output_.download(margin_, Buffer::kMargin);
  if (!in_place_) input_.download(in_, input_bytes);

  uint64_t wrong = 0;
  size_t at = 0;  // elements
  for (const Segment& segment : share_.expected) {
    const Pattern expected = segment.source == Segment::kReduced
                                 ? Pattern::reduced(case_.type, case_.op, seed, session_.ranks())
                                 : contribution(segment.source);
    wrong += expected.mismatches(output_.image(out_) + at * element_, segment.first, segment.count);
    at += segment.count;
  }
  // Inputs must not change, and nothing may be written behind the output.
  if (!in_place_) wrong += input.mismatches(input_.image(in_), 0, share_.input);
  wrong += std::any_of(margin, margin + Buffer::kMargin, [](std::byte b) { return b != std::byte{kPoison}; });

  uint64_t total = 0;
  for (const uint64_t count : session_.gather(wrong)) total += count;
  return total;
}

/// All rows, in the order of nccl-tests: types, operators, roots, sizes.
class Scan {
 public:
  Scan(const Collective& collective, const Options& options, Session& session, Report* report)
      : collective_(collective), options_(options), session_(session), report_(report) {}

  void run();
  /// Halves of rows with wrong elements.
  int wrong() const { return wrong_; }

 private:
  void row(const Case& the_case, size_t backend, const Buffer& in, const Buffer& out);
  Measurement half(Trial& trial);

  const Collective& collective_;  // as Weft does it
  const Options& options_;
  Session& session_;
  Report* const report_;  // null but on rank 0
  uint64_t seed_ = 0;
  int wrong_ = 0;
};

void Scan::run() {
  const auto operators = collective_.reduces ? options_.operators : std::vector{Operator::none};
  std::vector<int> roots = {options_.root.value_or(0)};
  if (collective_.rooted && !options_.root) {
    roots.clear();
    for (int root = 0; root < session_.ranks(); ++root) roots.push_back(root);
  }
  for (const weftDataType_t type : options_.types) {
    const size_t shift = static_cast<size_t>(options_.unaligned) * size_of(type);
    const Buffer in(session_, options_.max_bytes, shift, options_.registered);
    const Buffer out(session_, options_.max_bytes, shift, options_.registered);
    for (const Operator op : operators) {
      if (!applies(op, type)) continue;
      for (const int root : roots) {
        for (const size_t bytes : options_.sizes())
          for (size_t backend = 0; backend < options_.backends.size(); ++backend)
            row({bytes, type, op, root}, backend, in, out);
      }
    }
  }
}

void Scan::row(const Case& the_case, size_t backend, const Buffer& in, const Buffer& out) {
  session_.use(backend);
  Collective collective = collective_;
  if (session_.mpi()) collective.run = session_.mpi()->find(collective_.title.c_str());
  Trial apart(collective, options_, session_, the_case, false, in, out, options_.max_bytes);
  const Measurement out_of_place = half(apart);
  std::optional<Measurement> in_place;
  const bool can = collective_.has_in_place && (collective_.has_in_place_in_nccl || !session_.is_nccls());
  if (can && options_.in_place) {
    Trial together(collective, options_, session_, the_case, true, in, out, options_.max_bytes);
    in_place = half(together);
  }
  if (!report_) return;
  report_->row({apart.extent(), apart.shape().argument, the_case.type, the_case.op,
                collective_.rooted ? the_case.root : -1, apart.algorithm(), apart.predicted_us(),
                options_.backends[backend]},
               out_of_place, in_place);
}

Measurement Scan::half(Trial& trial) {
  Measurement measured = trial.time();
  measured.algbw = static_cast<double>(trial.extent()) / measured.time_us * 1e-3;
  measured.busbw = measured.algbw * collective_.bus_factor(session_.ranks());
  if (const double travelled = measured.busbw * measured.time_us; travelled > 0)  // KB of one rank
    measured.cpu_s_per_gb = measured.cpu_us / travelled;
  for (int i = 0; i < options_.checks && measured.wrong.value_or(0) == 0; ++i)
    measured.wrong = trial.check(++seed_);
  wrong_ += measured.wrong.value_or(0) > 0;
  return measured;
}

Seat own_seat(const weftCommStats_t& stats) {
  Seat seat{};
  gethostname(seat.host, sizeof seat.host - 1);
  seat.pid = getpid();
  seat.node = stats.node;
  return seat;
}

std::string transports_of(const weftCommStats_t& stats) {
  std::string text;
  if (stats.intraTransport[0] != '\0') text = fmt::format("{} inside a node", stats.intraTransport);
  if (stats.interTransport[0] != '\0')
    text += fmt::format("{}{} between nodes", text.empty() ? "" : ", ", stats.interTransport);
  return text;
}

/// What carried the data: Weft's transports, or the library that stood in for Weft.
std::string carriers_of(Session& session, const Options& options) {
  std::string text;
  for (size_t backend = 0; backend < options.backends.size(); ++backend) {
    session.use(backend);
    const std::string carrier = session.mpi()                         ? session.mpi()->version()
                                : options.backends[backend] == "nccl" ? "NCCL"
                                                                      : transports_of(session.stats());
    if (!carrier.empty()) text += (text.empty() ? "" : "; ") + carrier;
  }
  return text;
}

std::string memory_note(Session& session, const char* when) {
  const std::vector<long> all = session.gather(session.grown_kib());
  return fmt::format("Memory of Weft {}: {} KiB a rank at most", when,
                     *std::max_element(all.begin(), all.end()));
}

}  // namespace

int perf_main(int argc, char** argv, const Collective& collective) {
  const Parsed parsed = parse_options(argc, argv, collective.title);
  if (!parsed.options) return parsed.exit_code;
  const Options& options = *parsed.options;

  Session session(options);
  if (collective.rooted && options.root.value_or(0) >= session.ranks()) {
    std::fprintf(stderr, "--root is %d, must be below the number of ranks, %d\n", *options.root,
                 session.ranks());
    return kWrongUsage;
  }
  std::unique_ptr<Report> report;
  if (session.rank() == 0) report = std::make_unique<Report>(collective.title, options);
  const auto note_memory = [&](const char* when) {
    if (!options.memory) return;
    const std::string note = memory_note(session, when);
    if (report) report->note(note);
  };

  const std::vector<Seat> seats = session.gather(own_seat(session.stats()));
  note_memory("after creating the communicator");
  if (report) report->heading(seats);
  Scan scan(collective, options, session, report.get());
  for (int cycle = 0; options.cycles == 0 || cycle < options.cycles; ++cycle) scan.run();
  note_memory("at the end");
  bool written = true;
  if (report) written = report->footing(carriers_of(session, options));
  session.barrier();  // a launcher may end rank 0 as soon as another rank ends with wrong results: let it
                      // report first
  return scan.wrong() > 0 || !written ? kWrongResults : 0;
}

std::vector<Segment> everybodys(int ranks, size_t first, size_t count) {
  std::vector<Segment> segments;
  for (int rank = 0; rank < ranks; ++rank) segments.push_back({rank, first, count});
  return segments;
}

double others_share(int ranks) { return static_cast<double>(ranks - 1) / ranks; }

}  // namespace weft::perf
