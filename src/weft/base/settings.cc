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
constexpr std::string_view kMeet = "Where ranks are and how they meet", kTransports = "Transports",
                           kAlgorithms = "Algorithms", kGpu = "GPUs and NCCL", kProgress = "Progress",
                           kFailure = "When things break", kInsight = "Seeing what happens",
                           kLauncher = "launcher";

constexpr Row kRows[] = {
    {"WEFT_HOSTID", &Settings::hostid, kAny, kMeet,
     "Name of the node that this process counts as running on. Ranks with equal names share a node. Empty: "
     "the "
     "machine's own identity. Different names on one machine pretend that it is several nodes."},
    {"WEFT_ROOT", &Settings::root, kAny, kMeet,
     "Address at which the ranks of a launched job meet, as `host:port`; rank 0 listens there. An IPv6 "
     "address stands in brackets, a link-local one with this host's interface: `[fe80::1%eth0]:4711`. Empty: "
     "what the launcher offers."},
    {"WEFT_SOCKET_IFNAME", &Settings::socket_ifname, kAny, kMeet,
     "Network interfaces for sockets, in NCCL's syntax: prefixes of their names, separated by commas "
     "(`eth,ens5`); after a `=`, whole names (`=eth0,eth1`). A leading `^` excludes instead: "
     "`^docker,virbr`, `^=docker0`. Empty: every interface that is up, loopback only when there is no other. "
     "Interfaces that have nothing but a link-local IPv6 address are used only where none that is named here "
     "has another, or where the root's address is on their link."},
    {"WEFT_INIT_TIMEOUT_S",
     &Settings::init_timeout_s,
     {.min = 0.1, .max = kWeek_s},
     kMeet,
     "How long creating a communicator waits for all ranks to join; the error then says how many came."},

    {"WEFT_NET",
     &Settings::net,
     {.choices = "auto, tcp, ofi"},
     kTransports,
     "Transport between nodes. `tcp`: plain sockets. `ofi`: libfabric. `auto`: libfabric where it offers a "
     "network "
     "with remote writes (such as EFA), sockets elsewhere."},
    {"WEFT_PROVIDER", &Settings::provider, kAny, kTransports,
     "The libfabric provider to use, as `fi_info` names it: `efa`, `tcp`, `verbs`. Empty: the best that is "
     "offered."},
    {"WEFT_SHM", &Settings::shm, kAny, kTransports,
     "Whether ranks of one node talk through shared memory. Off: through the network, as if they were on two "
     "nodes."},
    {"WEFT_CMA", &Settings::cma, kAny, kTransports,
     "Whether large messages inside a node may be read straight out of the peer's memory with "
     "process_vm_readv. Off: "
     "they are copied through shared memory. Where the kernel forbids such reads it makes no difference."},
    {"WEFT_RAILS",
     &Settings::rails,
     {.min = 0, .max = 64},
     kTransports,
     "Network interfaces that a process spreads its traffic over, at most; 0: all. Over sockets, what goes "
     "to a peer's rail leaves by this rank's interface of the same number, if the host's routes send by it "
     "what comes from its address (where several are on one network that takes a rule for each, `ip rule "
     "add from ADDRESS table ...`); else as the routes say, and the log of `WEFT_LOG=info` names the "
     "interface."},

    {"WEFT_ALGO", &Settings::algo, kAny, kAlgorithms,
     "Pins or bans algorithms, separated by semicolons: `allreduce=ring` pins one, `allgather@4K-1M=direct` "
     "for a "
     "range of sizes as the perf tools print them, `broadcast=!binomial` bans one, `*` stands for every "
     "collective; "
     "the first pin that applies and fits is used. Empty: the tuner's choice. `weft_info` lists all names."},
    {"WEFT_STRICT", &Settings::strict, kAny, kAlgorithms,
     "Whether reductions give the same bits whatever the message size, algorithm, transport and layout of "
     "nodes: "
     "contributions are added in a balanced binary tree over rank numbers. It costs bandwidth between nodes. "
     "Off: the "
     "same bits for the same call on the same communicator."},
    {"WEFT_EAGER_INTRA_BYTES",
     &Settings::eager_intra_bytes,
     {.min = 0, .max = kMiB},
     kAlgorithms,
     "Largest message inside a node that is sent without asking where it should go; 0: the transport's "
     "choice."},
    {"WEFT_EAGER_INTER_BYTES",
     &Settings::eager_inter_bytes,
     {.min = 0, .max = kMiB},
     kAlgorithms,
     "The same between nodes."},
    {"WEFT_EARLY_BYTES",
     &Settings::early_bytes,
     {.min = kMiB, .max = 1024 * kGiB},
     kAlgorithms,
     "How much a rank keeps of messages for operations that it has not called yet. From half of it on peers "
     "that are further ahead wait; where they cannot, the communicator fails."},
    {"WEFT_SLICE_BYTES",
     &Settings::slice_bytes,
     {.min = 4 * kKiB, .max = kGiB, .or_zero = true},
     kAlgorithms,
     "Length of the slices into which long messages are cut, so that the network and the inside of a node "
     "work at the "
     "same time; 0: the tuner's choice."},
    {"WEFT_TUNE",
     &Settings::tune,
     {.choices = "auto, off, refresh"},
     kAlgorithms,
     "Whether memory and links are measured, which algorithms are chosen by. `auto`: once, when a "
     "communicator is created and nothing is known of such a machine and job; it takes a few hundred "
     "milliseconds. `refresh`: once in this process, whatever is known. `off`: never; what the host states "
     "and defaults are used. Rank 0's setting counts for all ranks."},
    {"WEFT_TUNE_CACHE", &Settings::tune_cache, kAny, kAlgorithms,
     "Directory in which measurements are kept; `none`: they are not. Empty: `$XDG_CACHE_HOME/weft`, or "
     "`~/.cache/weft`. Rank 0 reads and writes it."},

    {"WEFT_BACKEND",
     &Settings::backend,
     {.choices = "auto, weft, nccl"},
     kGpu,
     "Who does the work of a communicator. `weft`: Weft alone. `nccl`: NCCL, for everything. `auto`: Weft, "
     "but NCCL where Weft lacks something of the driver or the device to take the GPU's memory; and, for "
     "programs of Weft, on device memory where the communicator is of host memory. A warning says where it "
     "came to NCCL. It has to be alike on all ranks."},
    {"WEFT_NCCL_LIBRARY", &Settings::nccl_library, kAny, kGpu,
     "The file of the NCCL to load, such as /usr/lib/x86_64-linux-gnu/libnccl.so.2. Empty: as the dynamic "
     "linker finds it, then in the folders of LD_LIBRARY_PATH, beside a PyTorch that the process has loaded, "
     "and in the usual ones."},
    {"WEFT_CUDA_LIBRARY", &Settings::cuda_library, kAny, kGpu,
     "CUDA's driver library, by name or path. Empty: `libcuda.so.1`. It is initialized when somebody asks "
     "for "
     "GPU memory, and only then."},
    {"WEFT_CUDA_IPC", &Settings::cuda_ipc, kAny, kGpu,
     "Whether processes of one node reach each other's GPU memory through CUDA IPC. Off: what peers read or "
     "write is staged in pinned host memory; so is memory that CUDA cannot share."},
    {"WEFT_CUDA_REDUCE",
     &Settings::cuda_reduce,
     {.choices = "gpu, cpu"},
     kGpu,
     "Where contributions in GPU memory are added up. `gpu`: by kernels. `cpu`: in pinned host memory, which "
     "leaves the GPU's processors to others, and costs copies. Without kernels for a device it is the CPU."},
    {"WEFT_CUDA_BLOCKS",
     &Settings::cuda_blocks,
     {.min = 1, .max = 1024},
     kGpu,
     "Thread blocks, at most, of the reduction kernels that run at a time for a rank, over all operations of "
     "its job: the number of multiprocessors that they can keep busy."},
    {"WEFT_CUDA_KEEP_BYTES",
     &Settings::cuda_keep_bytes,
     {.min = 0, .max = 1024 * kGiB},
     kGpu,
     "How much pinned host memory, and how much GPU memory, a rank keeps for later operations, in blocks "
     "from "
     "1 MiB on. More goes back to the driver at the next moment at which no CUDA stream of the process waits "
     "for Weft and no captured graph holds a call."},
    {"WEFT_CUDA_MEMOPS",
     &Settings::cuda_memops,
     {.choices = "auto, on, off"},
     kGpu,
     "Whether CUDA streams and Weft wait for each other by stream memory operations, where the driver has "
     "them. `off`: a call on a CUDA stream returns only when its result is there. `auto`: so, too, where "
     "CUDA "
     "was initialized with too few connections or loads kernels lazily, for then streams that wait can keep "
     "the work away for which they wait. `on`: streams wait even so."},
    {"WEFT_CUDA_POLL_US",
     &Settings::cuda_poll_us,
     {.min = 1, .max = 1e6},
     kGpu,
     "How long a progress thread sleeps between looks at operations whose CUDA stream has not reached them."},
    {"WEFT_GPU_DIRECT",
     &Settings::gpu_direct,
     {.choices = "auto, on, off"},
     kGpu,
     "Whether the network reads and writes GPU memory itself (GPUDirect, FI_HMEM). `auto`: where libfabric "
     "and the device offer it on every rank, else data between nodes is staged in pinned host memory, and "
     "the log says why. `on`: a communicator that would have to stage is not created, nor does the plugin "
     "for NCCL start. `off`: it is staged."},

    {"WEFT_PROGRESS_THREADS",
     &Settings::progress_threads,
     {.min = 1, .max = 64},
     kProgress,
     "Threads of a process that move the operations that nobody waits for; all communicators share them."},
    {"WEFT_PIN", &Settings::pin, kAny, kProgress,
     "Whether progress threads are pinned to CPUs of their own, where every thread can have one, and ranks "
     "that share CPUs while the machine is measured."},
    {"WEFT_SPIN_US",
     &Settings::spin_us,
     {.min = 0, .max = 1e6},
     kProgress,
     "How long a waiting thread polls without giving up its CPU."},
    {"WEFT_YIELD_US",
     &Settings::yield_us,
     {.min = 0, .max = 1e7},
     kProgress,
     "How long it then goes on polling but yields the CPU between polls, before it sleeps; a quarter of that "
     "where long data is waited for whose pieces come more than 0.1 ms apart."},

    {"WEFT_TIMEOUT_S",
     &Settings::timeout_s,
     {.min = 0.1, .max = kWeek_s},
     kFailure,
     "How long an operation may take, from when its rank first had to wait for it, before it fails; the "
     "error "
     "names the ranks that did not arrive."},
    {"WEFT_STALL_CHECK_S",
     &Settings::stall_check_s,
     {.min = 0.05, .max = 3600},
     kFailure,
     "After how long without progress ranks are asked what they are doing, so that mismatched calls are "
     "found."},
    {"WEFT_MEMORY_WATCH", &Settings::memory_watch, kAny, kFailure,
     "Whether a buffer that is unmapped while an operation uses it fails the operation. Off: it ends the "
     "process. It takes a handler for SIGSEGV, which hands on to the one that it found whatever is no fault "
     "of "
     "that kind."},

    {"WEFT_LOG",
     &Settings::log,
     {.choices = "none, error, warn, info, trace"},
     kInsight,
     "The least important lines that are logged."},
    {"WEFT_LOG_FILE", &Settings::log_file, kAny, kInsight,
     "File that log lines are appended to; `%h` becomes the host's name and `%p` the process id. Empty: "
     "standard error."},
    {"WEFT_TRACE", &Settings::trace, kAny, kInsight,
     "File to write a timeline to, which Perfetto (ui.perfetto.dev) opens; all ranks that see the same file "
     "write "
     "into it. Empty: none."},
    {"WEFT_RECORDER_DIR", &Settings::recorder_dir, kAny, kInsight,
     "Directory for what the flight recorder writes when something fails or on a signal. Empty: the "
     "directory for "
     "temporary files; `none`: write nothing."},
    {"WEFT_RECORDER_SIGNAL",
     &Settings::recorder_signal,
     {.choices = "none, USR1, USR2, QUIT"},
     kInsight,
     "Signal at which the flight recorders are written while the program runs on; only if the program does "
     "not "
     "handle that signal itself."},
    {"WEFT_RECORDER_OPS",
     &Settings::recorder_ops,
     {.min = 1, .max = 1e6},
     kInsight,
     "Operations that the flight recorder remembers, per communicator."},

    {"WEFT_RANK", &Settings::rank, kLaunched, kLauncher,
     "Rank of this process in the job; -1: not launched."},
    {"WEFT_WORLD_SIZE", &Settings::world_size, kLaunched, kLauncher,
     "Number of ranks in the job; -1: not launched."},
    {"WEFT_LOCAL_RANK", &Settings::local_rank, kLaunched, kLauncher,
     "Number of this rank among those of its node; -1: not launched."},
    {"WEFT_LOCAL_SIZE", &Settings::local_size, kLaunched, kLauncher,
     "Number of ranks on this rank's node; -1: not launched."},
    {"WEFT_NODE", &Settings::node, kLaunched, kLauncher,
     "Number of this rank's node in the job; -1: not launched."},
    {"WEFT_JOB_SECRET", &Settings::job_secret, kSecret, kLauncher,
     "Secret that the processes of the job share, from which they authenticate their first connection. It is "
     "never "
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
    return fail(Code::invalid_setting, "{} is no setting of Weft (weft_info lists all)", name);
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
