#include "options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>

namespace weft::perf {
namespace {

const std::map<std::string, weftDataType_t> kTypes = {
    {"int8", weftInt8},         {"uint8", weftUint8},       {"int32", weftInt32},
    {"uint32", weftUint32},     {"int64", weftInt64},       {"uint64", weftUint64},
    {"half", weftFloat16},      {"float", weftFloat32},     {"double", weftDouble},
    {"bfloat16", weftBfloat16}, {"f8e4m3", weftFloat8e4m3}, {"f8e5m2", weftFloat8e5m2}};
/// Other programs' names of the same types.
const std::map<std::string, std::string> kAliases = {
    {"fp16", "half"},      {"float16", "half"},   {"bf16", "bfloat16"},
    {"fp32", "float"},     {"float32", "float"},  {"fp64", "double"},
    {"float64", "double"}, {"fp8e4m3", "f8e4m3"}, {"fp8e5m2", "f8e5m2"}};
const std::map<std::string, Operator> kOperators = {
    {"sum", Operator::sum},   {"prod", Operator::prod}, {"max", Operator::max},
    {"min", Operator::min},   {"avg", Operator::avg},   {"mulsum", Operator::mulsum},
    {"band", Operator::band}, {"bor", Operator::bor},   {"bxor", Operator::bxor}};

template <typename Value>
std::string names_of(const std::map<std::string, Value>& table) {
  std::string names;
  for (const auto& [name, value] : table) names += name + ", ";
  return names + "all";
}

/// The values that `name` stands for; "all" is every one, in the order of their numbers.
template <typename Value>
std::vector<Value> choose(const std::map<std::string, Value>& table, const std::string& option,
                          const std::string& name) {
  std::vector<Value> values;
  for (const auto& [key, value] : table) {
    if (name == "all" || name == key) values.push_back(value);
  }
  if (values.empty())
    throw CLI::ValidationError(option, "is " + name + ", must be one of " + names_of(table));
  std::sort(values.begin(), values.end());
  return values;
}

/// What the options say as text, before it is understood.
struct Texts {
  std::string min = "32M", max = "32M", step = "1M", op = "sum", type = "float", root = "0";
  std::vector<std::string> sizes;
};

void describe(CLI::App& app, Options& o, Texts& text) {
  const CLI::Range binary(0, 1), counted(1, 1 << 30), from_zero(0, 1 << 30);
  const auto size = [&](const char* names, std::string& value, const char* meaning) {
    app.add_option(names, value, meaning)->group("Sizes")->capture_default_str()->type_name("BYTES");
  };
  size("-b,--minbytes", text.min, "Smallest size; K, M and G are powers of 1024");
  size("-e,--maxbytes", text.max, "Largest size");
  size("-i,--stepbytes", text.step, "Step from size to size");
  app.add_option("-f,--stepfactor", o.step_factor, "Factor from size to size, instead of a step")
      ->group("Sizes")
      ->check(CLI::Range(size_t{2}, size_t{1} << 20));
  app.add_option("--sizes", text.sizes, "These sizes instead: 8,1K,4M")
      ->group("Sizes")
      ->delimiter(',')
      ->type_name("BYTES,...");

  app.add_option("-o,--op", text.op, "Operator: " + names_of(kOperators))
      ->group("Operation")
      ->capture_default_str();
  app.add_option("-d,--datatype", text.type,
                 "Element type: " + names_of(kTypes) + "; also bf16, fp16, fp32, fp64, fp8e4m3, fp8e5m2")
      ->group("Operation")
      ->capture_default_str();
  app.add_option("-r,--root", text.root, "Root rank, or all")->group("Operation")->capture_default_str();

  const auto number = [&](const char* names, int& value, const auto& range, const char* meaning) {
    app.add_option(names, value, meaning)->group("Measurement")->capture_default_str()->check(range);
  };
  number("-n,--iters", o.iterations, counted, "Timed iterations");
  number("--time_ms", o.time_ms, CLI::Range(0, 600000),
         "Instead of a number of iterations: as many as take about so many milliseconds at each size, 2 to "
         "10000; "
         "warm-up takes no longer than that either");
  number("-w,--warmup_iters", o.warmup, from_zero, "Iterations before them, at each size");
  number("-m,--agg_iters", o.aggregated, counted, "Operations in one group, in each iteration");
  number(
      "-G,--cudagraph", o.graphs, from_zero,
      "With --device cuda: the timed iterations are captured into one CUDA graph, which is launched so many "
      "times; checked runs are graphs, too. 0: no graph");
  number("-N,--run_cycles", o.cycles, from_zero, "Runs over all sizes; 0: for ever");
  number("-c,--check", o.checks, from_zero, "Checked runs at each size; 0: nothing is checked");
  number("-a,--average", o.average, CLI::Range(0, 3),
         "Time reported: 0 rank 0's, 1 mean, 2 least, 3 most over ranks");
  number("-u,--unalign", o.unaligned, from_zero,
         "Elements by which buffers are shifted from their alignment");
  const auto flag = [&](const char* names, bool& value, const char* meaning) {
    app.add_option(names, value, meaning)->group("Measurement")->capture_default_str()->type_name("0|1");
  };
  flag("-z,--blocking", o.blocking,
       "1: blocking calls (null stream), the default here; 0: calls on a stream, synchronized after the last "
       "iteration");
  app.add_option_function<std::string>(
         "--device", [&](const std::string& device) { o.cuda = device == "cuda"; },
         "Whose memory the buffers are: host; or cuda, with calls on a CUDA stream, and rank r on device r "
         "modulo the "
         "number of devices")
      ->check(CLI::IsMember({"host", "cuda"}))
      ->default_str("host");
  flag("-R,--local_register", o.registered, "Use registered memory of weftMemAlloc");
  flag("--in_place", o.in_place, "Measure the in-place form too");
  flag("-C,--report_cputime", o.cpu_time,
       "Report the time that calls take, not the time until results are there");
  flag("-M,--memory_report", o.memory, "Report memory");
  flag("--rotate", o.rotate, "Use another part of the buffers in each iteration, so that caches are cold");
  app.add_option(
         "--backend", o.backends,
         "Who does the collectives: weft, nccl, or mpi: the MPI whose launcher started the ranks; several, "
         "as in weft,nccl, take turns at each size. Default: what WEFT_BACKEND says")
      ->group("Measurement")
      ->delimiter(',')
      ->type_name("BACKEND,...")
      ->check(CLI::IsMember({"weft", "nccl", "mpi"}));
  app.add_option("-T,--timeout", o.timeout_s, "Seconds that an operation may take")->group("Measurement");
  app.add_option("-J,--output_file,--json", o.json, "Write options and results to this file, as JSON")
      ->group("Measurement");
}

/// Options of nccl-tests that have one possible value here.
void describe_fixed(CLI::App& app) {
  const auto fixed = [&](const char* names, int from, int to, const std::string& meaning) {
    app.add_option(names, meaning)->group("For nccl-tests' sake")->check(CLI::Range(from, to));
  };
  fixed("-t,--nthreads", 1, 1, "1: every rank is a process; start them with weft_run -n, mpirun or srun");
  fixed("-g,--ngpus", 1, 1, "1");
  fixed("-p,--parallel_init", 0, 1, "Accepted: ranks always start in parallel");
}

void interpret(const Texts& text, Options& o) {
  o.min_bytes = parse_size("--minbytes", text.min);
  o.max_bytes = parse_size("--maxbytes", text.max);
  o.step_bytes = parse_size("--stepbytes", text.step);
  for (const std::string& size : text.sizes) o.listed.push_back(parse_size("--sizes", size));
  if (!o.listed.empty()) {
    o.min_bytes = *std::min_element(o.listed.begin(), o.listed.end());
    o.max_bytes = *std::max_element(o.listed.begin(), o.listed.end());
  }
  o.operators = choose(kOperators, "--op", text.op);
  const auto alias = kAliases.find(text.type);
  o.types = choose(kTypes, "--datatype", alias == kAliases.end() ? text.type : alias->second);
  for (const Operator op : o.operators)
    if (text.op != "all" &&
        std::none_of(o.types.begin(), o.types.end(), [op](weftDataType_t type) { return applies(op, type); }))
      throw CLI::ValidationError("--op", "is " + text.op + ", which --datatype " + text.type +
                                             " does not have: must be an integer type");
  if (o.min_bytes > o.max_bytes)
    throw CLI::ValidationError("--minbytes",
                               "is " + text.min + ", must not be more than --maxbytes, " + text.max);
  if (o.step_factor == 1 && o.step_bytes == 0 && o.min_bytes < o.max_bytes)
    throw CLI::ValidationError("--stepbytes", "is 0, must be positive");
  if (std::set<std::string>(o.backends.begin(), o.backends.end()).size() != o.backends.size())
    throw CLI::ValidationError("--backend", "names one twice");
  if (o.backends.size() > 1 && o.registered)
    throw CLI::ValidationError("--backend",
                               "names several, but memory is registered with one: leave -R at 0");
  if (o.measures("mpi") && !o.blocking)
    throw CLI::ValidationError("--backend", "is mpi, which has blocking calls only: leave --blocking at 1");
  if (o.measures("mpi") && o.cuda)
    throw CLI::ValidationError("--backend",
                               "is mpi, which is measured on host memory: leave --device at host");
  if (o.graphs > 0 && !o.cuda)
    throw CLI::ValidationError("--cudagraph", "wants calls on a CUDA stream: set --device cuda");
  if (o.graphs > 0 && o.time_ms > 0)
    throw CLI::ValidationError("--cudagraph", "is a number of launches: leave --time_ms out, set --iters");
  if (o.timeout_s < 0) throw CLI::ValidationError("--timeout", "must be positive");
  if (text.root == "all") {
    o.root.reset();
    return;
  }
  char* end = nullptr;
  const long root = std::strtol(text.root.c_str(), &end, 10);
  if (end == text.root.c_str() || *end != '\0' || root < 0 || root > 1 << 30)
    throw CLI::ValidationError("--root", "is " + text.root + ", must be a rank or all");
  o.root = static_cast<int>(root);
}

}  // namespace

bool is_first_of_launch() {
  for (const char* name : {"WEFT_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const char* rank = std::getenv(name)) return std::string(rank) == "0";
  }
  return true;
}

bool can_write(const std::string& path) {
  if (path.empty() || std::ofstream(path, std::ios::app)) return true;
  std::fprintf(stderr, "--json: cannot write %s: %s\n", path.c_str(), std::strerror(errno));
  return false;
}

std::string version_of(const char* program) {
  const char* const slash = std::strrchr(program, '/');
  return fmt::format("{} {}.{}.{}{}", slash ? slash + 1 : program, WEFT_MAJOR, WEFT_MINOR, WEFT_PATCH,
                     WEFT_SUFFIX);
}

size_t parse_size(const std::string& option, const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  const double scale = unit.empty()                 ? 1
                       : unit == "K" || unit == "k" ? 0x1p10
                       : unit == "M" || unit == "m" ? 0x1p20
                       : unit == "G" || unit == "g" ? 0x1p30
                                                    : -1;
  const double bytes = number * scale;
  if (end == text.c_str() || scale < 0 || !(bytes >= 0) || bytes >= 0x1p62)
    throw CLI::ValidationError(option, "is " + text + ", must be a number of bytes such as 8, 64K, 1M or 2G");
  return static_cast<size_t>(bytes);
}

bool Options::measures(const std::string& backend) const {
  return std::find(backends.begin(), backends.end(), backend) != backends.end();
}

std::vector<size_t> Options::sizes() const {
  if (!listed.empty()) return listed;
  std::vector<size_t> all;
  size_t size = min_bytes;
  for (;;) {
    all.push_back(size);
    const size_t next = step_factor > 1 ? size * step_factor : size + step_bytes;
    if (next <= size || next > max_bytes) return all;
    size = next;
  }
}

const char* name_of(weftDataType_t type) {
  for (const auto& [name, value] : kTypes) {
    if (value == type) return name.c_str();
  }
  return "?";
}

const char* name_of(Operator op) {
  for (const auto& [name, value] : kOperators) {
    if (value == op) return name.c_str();
  }
  return "none";
}

Parsed parse_options(int argc, char** argv, const std::string& title) {
  CLI::App app{title +
               ": speed and correctness, over sizes. Start ranks with weft_run -n, mpirun or srun.\n"
               "Exit code: 0; 1 when results are wrong; 2 when the command line is; 3 when a call fails."};
  Options options;
  Texts text;
  describe(app, options, text);
  describe_fixed(app);
  app.set_version_flag("--version", version_of(argv[0]), "Print the version and end");
  try {
    app.parse(argc, argv);
    interpret(text, options);
    if (is_first_of_launch() && !can_write(options.json)) return {std::nullopt, 2};
    return {options, 0};
  } catch (const CLI::CallForVersion& version) {
    if (is_first_of_launch()) std::printf("%s\n", version.what());
    return {std::nullopt, 0};
  } catch (const CLI::CallForHelp&) {
    if (is_first_of_launch()) std::fputs(app.help().c_str(), stdout);
    return {std::nullopt, 0};
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return {std::nullopt, 2};
  }
}

}  // namespace weft::perf
