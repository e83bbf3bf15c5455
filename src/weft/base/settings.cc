// The table of settings, and what follows from it: parsing, documentation rows, current values. Nothing else
// in the library reads a WEFT_* variable. It does not act on any setting; each layer does that for its own.
#include "base/settings.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>
#include <variant>

#include "base/nearest_name.h"

namespace weft {
namespace {

using Member = std::variant<bool Settings::*, int Settings::*, int64_t Settings::*, double Settings::*,
                            std::string Settings::*>;

/// What a value may be. The member's type says how it is written: int64_t members are bytes, doubles are
/// seconds.
struct Bounds {
  double min = 0, max = 0;
  bool or_zero = false;           // 0 is right too, below min
  std::string_view choices = {};  // "auto, tcp, ofi"; of texts only
  bool secret = false;
};

struct Row {
  std::string_view name;
  Member member;
  Bounds bounds;
  std::string_view group;
  std::string_view meaning;
};

constexpr Bounds kAny = {};
constexpr Bounds kSecret = {.secret = true};
constexpr double kKiB = 1 << 10, kMiB = 1 << 20, kGiB = 1 << 30;
constexpr double kWeek_s = 7 * 24 * 3600;
constexpr Bounds kLaunched = {.min = -1, .max = std::numeric_limits<int>::max() - 1};
constexpr std::string_view kMeet = "Nodes and rendezvous", kTransports = "Transports",
                           kAlgorithms = "Algorithms", kGpu = "GPUs and NCCL", kProgress = "Progress",
                           kFailure = "Failures", kInsight = "Log, trace and flight recorder",
                           kLauncher = "launcher";

constexpr Row kRows[] = {
    {"WEFT_HOSTID", &Settings::hostid, kAny, kMeet,
     "The name of this process's node. Ranks with the same name share a node. Empty: the machine's own "
     "identity. Different names make one machine count as several nodes."},
    {"WEFT_ROOT", &Settings::root, kAny, kMeet,
     "The address of the rendezvous, as `host:port`. Rank 0 listens there. An IPv6 address stands in "
     "brackets, a link-local one with this host's interface: `[fe80::1%eth0]:4711`. Empty: the address that "
     "the launcher gives."},
    {"WEFT_SOCKET_IFNAME", &Settings::socket_ifname, kAny, kMeet,
     "The network interfaces for sockets, in NCCL's syntax. `eth,ens5` are prefixes of names. `=eth0,eth1` "
     "are whole names. A leading `^` excludes: `^docker,virbr`, `^=docker0`. Empty: the interface by which "
     "the rank reaches rank 0, and the other physical interfaces. Weft uses an interface with only a "
     "link-local address if no selected interface has another address, or if the rendezvous is on its "
     "link."},
    {"WEFT_INIT_TIMEOUT_S",
     &Settings::init_timeout_s,
     {.min = 0.1, .max = kWeek_s},
     kMeet,
     "How long the creation of a communicator waits for all ranks. The error then names the missing ranks."},

    {"WEFT_NET",
     &Settings::net,
     {.choices = "auto, tcp, ofi"},
     kTransports,
     "The transport between nodes. `tcp`: sockets. `ofi`: libfabric. `auto`: libfabric if all ranks have "
     "EFA, "
     "otherwise sockets."},
    {"WEFT_PROVIDER", &Settings::provider, kAny, kTransports,
     "The libfabric provider, as `fi_info` names it: `efa`, `tcp`, `verbs`. Empty: the best provider on this "
     "host."},
    {"WEFT_OFI_DOMAINS", &Settings::ofi_domains, kAny, kTransports,
     "The domains of libfabric, that is NICs, in the syntax of `WEFT_SOCKET_IFNAME`: `rdmap`, "
     "`=mlx5_0,mlx5_1`, `^mlx5_bond`. Each domain that names choose is a rail, in the order of the names. "
     "Empty: all of an RDMA fabric; of a plain network, the interface by which the rank reaches rank 0."},
    {"WEFT_SHM", &Settings::shm, kAny, kTransports,
     "Whether ranks of one node use shared memory. Off: they use the network, as if they were on two nodes."},
    {"WEFT_CMA", &Settings::cma, kAny, kTransports,
     "Whether a rank reads large messages directly from the memory of a peer on its node, with "
     "process_vm_readv. Off: Weft copies them through shared memory. It does so too where the kernel forbids "
     "such reads."},
    {"WEFT_RAILS",
     &Settings::rails,
     {.min = 0, .max = 64},
     kTransports,
     "The most network interfaces that a process uses. 0: all. Over sockets, a peer's rail N is reached from "
     "this rank's interface N, if the host routes by source address (`ip rule add from ADDRESS table ...`). "
     "Otherwise the routes decide, and `WEFT_LOG=info` names the interface."},

    {"WEFT_ALGO", &Settings::algo, kAny, kAlgorithms,
     "Pins or bans algorithms. Rules are separated by semicolons, and the first pin that fits is used. "
     "`allreduce=ring` pins. `allgather@4K-1M=direct` pins for a range of sizes. `broadcast=!binomial` bans. "
     "`*` stands for every collective. Empty: the tuner chooses. `weft_info` lists all names."},
    {"WEFT_STRICT", &Settings::strict, kAny, kAlgorithms,
     "Whether reductions have the same bits for every message size, algorithm, transport and layout of "
     "nodes. Weft then adds contributions in a balanced binary tree over rank numbers, which costs bandwidth "
     "between nodes. Off: the same call on the same communicator has the same bits."},
    {"WEFT_EAGER_INTRA_BYTES",
     &Settings::eager_intra_bytes,
     {.min = 0, .max = kMiB},
     kAlgorithms,
     "The longest message inside a node that is sent before its receiver has exposed a buffer. 0: the "
     "transport's limit."},
    {"WEFT_EAGER_INTER_BYTES",
     &Settings::eager_inter_bytes,
     {.min = 0, .max = kMiB},
     kAlgorithms,
     "The longest message between nodes that is sent before its receiver has exposed a buffer. 0: the "
     "transport's limit."},
    {"WEFT_EARLY_BYTES",
     &Settings::early_bytes,
     {.min = kMiB, .max = 1024 * kGiB},
     kAlgorithms,
     "How many bytes a rank keeps of messages for operations that it has not called yet. Only eager messages "
     "come so early (`WEFT_EAGER_INTRA_BYTES`, `WEFT_EAGER_INTER_BYTES`). From 4 MiB on, or a quarter of the "
     "limit if that is less, the rank reads little from ranks whose messages it does not need yet. From half "
     "of the limit on it reads nothing from them, so they wait. If the limit is reached all the same, the "
     "communicator fails."},
    {"WEFT_SLICE_BYTES",
     &Settings::slice_bytes,
     {.min = 4 * kKiB, .max = kGiB, .or_zero = true},
     kAlgorithms,
     "The length of the slices of a long message. Slices let the network and the inside of a node work at "
     "the same time. 0: the tuner chooses."},
    {"WEFT_TUNE",
     &Settings::tune,
     {.choices = "auto, off, refresh"},
     kAlgorithms,
     "Whether Weft measures memory and links, for the choice of algorithms. `auto`: once for each kind of "
     "machine and job, when a communicator is created; this takes a few hundred milliseconds. `refresh`: "
     "once in this process, in any case. `off`: never; Weft uses what the host states, and defaults. Rank "
     "0's value counts for all ranks."},
    {"WEFT_TUNE_CACHE", &Settings::tune_cache, kAny, kAlgorithms,
     "The directory of the measurements. Rank 0 reads and writes it. `none`: they are not kept. Empty: "
     "`$XDG_CACHE_HOME/weft`, or `~/.cache/weft`."},

    {"WEFT_BACKEND",
     &Settings::backend,
     {.choices = "auto, weft, nccl"},
     kGpu,
     "Which library does the operations of a communicator; equal on all ranks. `weft`: Weft. `nccl`: NCCL. "
     "`auto`: Weft, with two exceptions that a warning reports. NCCL takes all operations if the driver or "
     "the device lacks something that Weft needs. In a program of Weft, NCCL also takes device memory on a "
     "communicator of host memory."},
    {"WEFT_NCCL_LIBRARY", &Settings::nccl_library, kAny, kGpu,
     "The file of the NCCL library to load, such as /usr/lib/x86_64-linux-gnu/libnccl.so.2. Empty: Weft "
     "searches the linker's path, LD_LIBRARY_PATH, the folder of a PyTorch that the process has loaded, and "
     "the usual folders."},
    {"WEFT_CUDA_LIBRARY", &Settings::cuda_library, kAny, kGpu,
     "The name or path of CUDA's driver library. Empty: `libcuda.so.1`. Weft initializes it only when a "
     "program asks for GPU memory."},
    {"WEFT_CUDA_IPC", &Settings::cuda_ipc, kAny, kGpu,
     "Whether processes of one node map each other's GPU memory through CUDA IPC. Off: Weft stages the data "
     "in pinned host memory. It always does so for memory that CUDA cannot share."},
    {"WEFT_CUDA_REDUCE",
     &Settings::cuda_reduce,
     {.choices = "gpu, cpu"},
     kGpu,
     "Where Weft reduces GPU memory. `gpu`: by kernels. `cpu`: in pinned host memory, which costs copies and "
     "leaves the GPU's processors free. Weft uses the CPU too if it has no kernels for the device."},
    {"WEFT_CUDA_KERNEL", &Settings::cuda_kernel, kAny, kGpu,
     "Whether a collective may run as one kernel on the caller's CUDA stream, where every rank of the "
     "communicator can do that and has it on. Between nodes the progress thread helps the kernel. No GPU has "
     "measured this yet."},
    {"WEFT_CUDA_COPY_BYTES",
     &Settings::cuda_copy_bytes,
     {.min = 64 * kKiB, .max = 1024 * kGiB, .or_zero = true},
     kGpu,
     "How much GPU memory a communicator takes on each rank to stage long messages of one node. With it, a "
     "long AllGather, Broadcast, Gather, Scatter or AlltoAll is copies on the caller's CUDA stream, where "
     "every rank of the communicator can do that. Calls of several communicators on one stream then keep one "
     "order on all ranks. The least value of all ranks counts. 0: never. No GPU has measured this yet."},
    {"WEFT_CUDA_COPY_FROM",
     &Settings::cuda_copy_from,
     {.min = 1, .max = 1024 * kGiB, .or_zero = true},
     kGpu,
     "From which message size on copies on the caller's CUDA stream take a collective "
     "(WEFT_CUDA_COPY_BYTES). "
     "The greatest value of all ranks counts. 0: where the tuner predicts that they are faster, or 4 MiB if "
     "nothing was measured."},
    {"WEFT_CUDA_BLOCKS",
     &Settings::cuda_blocks,
     {.min = 1, .max = 1024},
     kGpu,
     "The most thread blocks of the reduction kernels that run at a time for a rank, over all its "
     "operations."},
    {"WEFT_CUDA_KEEP_BYTES",
     &Settings::cuda_keep_bytes,
     {.min = 0, .max = 1024 * kGiB},
     kGpu,
     "How much pinned host memory, and how much GPU memory, a rank keeps for later operations. Weft returns "
     "the rest to the driver when no CUDA stream of the process waits for Weft and no captured graph holds a "
     "call."},
    {"WEFT_CUDA_MEMOPS",
     &Settings::cuda_memops,
     {.choices = "auto, on, off"},
     kGpu,
     "Whether CUDA streams wait for Weft by stream memory operations. `off`: a call on a CUDA stream returns "
     "when its result is there. `auto`: streams wait, unless CUDA was initialized with fewer than 16 "
     "connections or loads kernels lazily. `on`: streams wait in any case."},
    {"WEFT_CUDA_POLL_US",
     &Settings::cuda_poll_us,
     {.min = 1, .max = 1e6},
     kGpu,
     "How long a progress thread sleeps between polls of operations that their CUDA stream has not reached."},
    {"WEFT_GPU_DIRECT",
     &Settings::gpu_direct,
     {.choices = "auto, on, off"},
     kGpu,
     "Whether the network reads and writes GPU memory itself (GPUDirect, FI_HMEM). `auto`: if libfabric and "
     "the device of every rank offer it; otherwise Weft stages the data in pinned host memory, and the log "
     "gives the reason. `on`: without GPUDirect, the communicator is not created and the NCCL plugin does "
     "not start. `off`: Weft stages the data."},

    {"WEFT_PROGRESS_THREADS",
     &Settings::progress_threads,
     {.min = 1, .max = 64},
     kProgress,
     "The threads of a process that move operations for which no thread waits. All communicators share "
     "them."},
    {"WEFT_PIN", &Settings::pin, kAny, kProgress,
     "Whether Weft pins progress threads to CPUs of their own, if every thread can have one. While Weft "
     "measures the machine, it also pins ranks that share CPUs."},
    {"WEFT_SPIN_US",
     &Settings::spin_us,
     {.min = 0, .max = 1e6},
     kProgress,
     "How long a waiting thread polls without giving up its CPU."},
    {"WEFT_YIELD_US",
     &Settings::yield_us,
     {.min = 0, .max = 1e7},
     kProgress,
     "How long a waiting thread then polls and yields its CPU between polls, before it sleeps. It is a "
     "quarter of this for long data whose pieces arrive more than 0.1 ms apart."},

    {"WEFT_TIMEOUT_S",
     &Settings::timeout_s,
     {.min = 0.1, .max = kWeek_s},
     kFailure,
     "How long an operation may take before it fails, counted from when its rank first had to wait for it. "
     "The error names the ranks that did not arrive. PyTorch's groups ignore this setting: theirs is "
     "`timeout=` of init_process_group, 30 minutes by default."},
    {"WEFT_STALL_CHECK_S",
     &Settings::stall_check_s,
     {.min = 0.05, .max = 3600},
     kFailure,
     "After how long without progress a rank asks its peers which operation they are in. This finds "
     "mismatched calls."},
    {"WEFT_MEMORY_WATCH", &Settings::memory_watch, kAny, kFailure,
     "Whether an operation fails with an error if its buffer is unmapped while Weft uses it. Off: the "
     "process ends with SIGSEGV. The watch installs a handler of SIGSEGV, which passes all other faults to "
     "the handler before it."},

    {"WEFT_LOG",
     &Settings::log,
     {.choices = "none, error, warn, info, trace"},
     kInsight,
     "The least important level that Weft logs."},
    {"WEFT_LOG_FILE", &Settings::log_file, kAny, kInsight,
     "The file that Weft appends log lines to. `%h` becomes the host's name and `%p` the process id. Empty: "
     "standard error."},
    {"WEFT_TRACE", &Settings::trace, kAny, kInsight,
     "The file of the timeline, which Perfetto (ui.perfetto.dev) opens. All ranks that see the same file "
     "append to it. Empty: none."},
    {"WEFT_RECORDER_DIR", &Settings::recorder_dir, kAny, kInsight,
     "The directory where the flight recorder writes on a failure or a signal. `none`: it writes nothing. "
     "Empty: the directory for temporary files."},
    {"WEFT_RECORDER_SIGNAL",
     &Settings::recorder_signal,
     {.choices = "none, USR1, USR2, QUIT"},
     kInsight,
     "The signal at which the flight recorders are written while the program goes on. Weft uses it only if "
     "the program does not handle it."},
    {"WEFT_RECORDER_OPS",
     &Settings::recorder_ops,
     {.min = 1, .max = 1e6},
     kInsight,
     "How many operations the flight recorder keeps for each communicator."},

    {"WEFT_RANK", &Settings::rank, kLaunched, kLauncher,
     "The rank of this process in the job. -1: not launched."},
    {"WEFT_WORLD_SIZE", &Settings::world_size, kLaunched, kLauncher,
     "The number of ranks in the job. -1: not launched."},
    {"WEFT_LOCAL_RANK", &Settings::local_rank, kLaunched, kLauncher,
     "The number of this rank on its node. -1: not launched."},
    {"WEFT_LOCAL_SIZE", &Settings::local_size, kLaunched, kLauncher,
     "The number of ranks on this rank's node. -1: not launched."},
    {"WEFT_NODE", &Settings::node, kLaunched, kLauncher,
     "The number of this rank's node in the job. -1: not launched."},
    {"WEFT_JOB_SECRET", &Settings::job_secret, kSecret, kLauncher,
     "The secret of the job, from which its processes authenticate their first connection. It is never "
     "printed."},
};

const Row* find_row(std::string_view name) {
  const auto row =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.name == name; });
  return row == std::end(kRows) ? nullptr : row;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

// ---- Values as text

/// 65536 as "64K": the largest suffix that loses nothing.
std::string bytes_text(int64_t bytes) {
  for (const auto& [shift, suffix] : {std::pair{30, 'G'}, {20, 'M'}, {10, 'K'}}) {
    if (bytes != 0 && bytes % (int64_t{1} << shift) == 0) return fmt::format("{}{}", bytes >> shift, suffix);
  }
  return fmt::format("{}", bytes);
}

struct ValueText {
  const Settings& settings;
  std::string operator()(bool Settings::*m) const { return settings.*m ? "on" : "off"; }
  std::string operator()(int Settings::*m) const { return fmt::format("{}", settings.*m); }
  std::string operator()(int64_t Settings::*m) const { return bytes_text(settings.*m); }
  std::string operator()(double Settings::*m) const { return fmt::format("{:g}", settings.*m); }
  std::string operator()(std::string Settings::*m) const { return settings.*m; }
};

std::string value_text(const Row& row, const Settings& settings) {
  const std::string text = std::visit(ValueText{settings}, row.member);
  return row.bounds.secret && !text.empty() ? "(set)" : text;
}

std::string kind_text(const Row& row) {
  constexpr std::string_view kinds[] = {"flag", "integer", "bytes", "seconds", "text"};
  if (row.name.ends_with("_US")) return "microseconds";
  if (!row.bounds.choices.empty()) return "choice";
  return std::string(kinds[row.member.index()]);
}

std::string bounds_text(const Row& row) {
  const Bounds& b = row.bounds;
  if (std::holds_alternative<bool Settings::*>(row.member)) return "on, off";
  if (std::holds_alternative<std::string Settings::*>(row.member)) return std::string(b.choices);
  const bool bytes = std::holds_alternative<int64_t Settings::*>(row.member);
  const auto text = [&](double v) {
    if (bytes) return bytes_text(static_cast<int64_t>(v));
    return v == std::floor(v) ? fmt::format("{:.0f}", v) : fmt::format("{:g}", v);
  };
  if (b.max == kLaunched.max) return fmt::format("{} or more", text(b.min));
  return fmt::format("{}{} to {}", b.or_zero ? "0, or " : "", text(b.min), text(b.max));
}

// ---- Values from text

/// The whole text as a number, or false: no blanks, no trailing characters.
template <typename T>
bool read_number(std::string_view text, T* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size();
}

bool read_bytes(std::string_view text, int64_t* out) {
  constexpr std::string_view suffixes = "KMG";
  int shift = 0;
  if (const char last = text.back(); last > '9') {
    const size_t at = suffixes.find(last >= 'a' ? static_cast<char>(last - 'a' + 'A') : last);
    if (at == std::string_view::npos) return false;
    shift = 10 * (static_cast<int>(at) + 1);
    text.remove_suffix(1);
  }
  if (!read_number(text, out) || *out > (INT64_MAX >> shift) || *out < 0) return false;
  *out <<= shift;
  return true;
}

/// Reads one value into a member; false where it is not one of the row's kind or out of bounds.
struct ReadValue {
  Settings& settings;
  std::string_view text;
  const Bounds& bounds;

  bool in_bounds(double v) const {
    return (v >= bounds.min && v <= bounds.max) || (bounds.or_zero && v == 0);
  }
  template <typename T, typename Read>
  bool assign(T Settings::*m, Read read) const {
    T value{};
    if (!read(text, &value) || !in_bounds(static_cast<double>(value)))
      return false;  // a NaN is not in bounds
    settings.*m = value;
    return true;
  }

  bool operator()(bool Settings::*m) const {
    const std::string word = lower(text);
    const auto is_one_of = [&](auto... words) { return ((word == words) || ...); };
    if (is_one_of("1", "true", "on", "yes")) return settings.*m = true;
    if (is_one_of("0", "false", "off", "no")) return settings.*m = false, true;
    return false;
  }
  bool operator()(int Settings::*m) const { return assign(m, read_number<int>); }
  bool operator()(int64_t Settings::*m) const { return assign(m, read_bytes); }
  bool operator()(double Settings::*m) const { return assign(m, read_number<double>); }
  bool operator()(std::string Settings::*m) const {
    if (!bounds.choices.empty() && !is_choice()) return false;
    settings.*m = std::string(text);
    return true;
  }
  bool is_choice() const {
    for (std::string_view rest = bounds.choices; !rest.empty();) {
      const size_t comma = std::min(rest.find(", "), rest.size());
      if (rest.substr(0, comma) == text) return true;
      rest.remove_prefix(std::min(comma + 2, rest.size()));
    }
    return false;
  }
};

Status unknown_setting(std::string_view name) {
  std::vector<std::string_view> known;
  for (const Row& row : kRows) known.push_back(row.name);
  // Half of what follows WEFT_ may be wrong; beyond that a name would only mislead.
  constexpr size_t kPrefix = sizeof "WEFT_" - 1;
  const std::string_view nearest = nearest_name(name, known, (name.size() - kPrefix) / 2);
  if (nearest.empty())
    return fail(Code::invalid_setting,
                "{} is no setting of Weft (weft_info lists all); let no name of yours begin with WEFT_",
                name);
  return fail(Code::invalid_setting, "{} is no setting of Weft; the nearest is {} (weft_info lists all)",
              name, nearest);
}

Status wrong_value(const Row& row, std::string_view value) {
  const std::string kind = kind_text(row), bounds = bounds_text(row);
  if (kind == "choice")
    return fail(Code::invalid_setting, "{} is '{}', must be one of {}", row.name, value, bounds);
  if (kind == "flag") {
    return fail(Code::invalid_setting, "{} is '{}', must be on, off, yes, no, true, false, 1 or 0", row.name,
                value);
  }
  const std::string_view noun = kind == "integer"        ? "an integer"
                                : kind == "bytes"        ? "bytes (K, M or G may follow)"
                                : kind == "microseconds" ? "a whole number of microseconds"
                                                         : "seconds";
  return fail(Code::invalid_setting, "{} is '{}', must be {}, {}", row.name, value, noun, bounds);
}

/// Reads one "NAME=value" entry. An empty value leaves the default, as an unset variable does.
Status parse_entry(std::string_view entry, Settings* settings) {
  const size_t equals = std::min(entry.find('='), entry.size());
  const std::string_view name = entry.substr(0, equals);
  if (!name.starts_with("WEFT_")) return {};
  const Row* row = find_row(name);
  if (row == nullptr) return unknown_setting(name);
  const std::string_view value = entry.substr(std::min(equals + 1, entry.size()));
  if (value.empty() || std::visit(ReadValue{*settings, value, row->bounds}, row->member)) return {};
  return wrong_value(*row, value);
}

/// The environment, read once.
struct Loaded {
  Settings settings;
  Status status;

  Loaded() {
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
      const Status parsed = parse_entry(*entry, &settings);
      if (status.ok()) status = parsed;
    }
  }
};

const Loaded& loaded() {
  static const Loaded instance;
  return instance;
}

}  // namespace

const Settings& settings() { return loaded().settings; }
const Status& settings_status() { return loaded().status; }

Result<Settings> parse_settings(const std::vector<std::string>& environment) {
  Settings settings;
  for (const std::string& entry : environment) WEFT_TRY(parse_entry(entry, &settings));
  return settings;
}

std::vector<SettingDoc> setting_docs() {
  const Settings defaults;
  std::vector<SettingDoc> docs;
  for (const Row& row : kRows) {
    docs.push_back({std::string(row.name), kind_text(row), value_text(row, defaults), bounds_text(row),
                    std::string(row.meaning), std::string(row.group)});
  }
  return docs;
}

std::string current_value(const std::string& name) {
  const Row* row = find_row(name);
  return row == nullptr ? std::string() : value_text(*row, settings());
}

}  // namespace weft
