// The one registry of environment settings. Every WEFT_* variable that the library reads is a row of
// settings.cc: name, default, bounds and meaning; docs/reference/settings.md and weft_info print that table,
// and a test compares them.
//
// Thread safety: every function may be called from any thread; what settings() returns never changes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace weft {

/// The parsed values, one member a row. Times are in the unit that the name ends with.
struct Settings {
  // Where ranks are and how they meet.
  std::string hostid;          // WEFT_HOSTID
  std::string root;            // WEFT_ROOT
  std::string socket_ifname;   // WEFT_SOCKET_IFNAME
  double init_timeout_s = 60;  // WEFT_INIT_TIMEOUT_S
  // Transports.
  std::string net = "auto";  // WEFT_NET: auto, tcp, ofi
  std::string provider;      // WEFT_PROVIDER: libfabric provider
  std::string ofi_domains;   // WEFT_OFI_DOMAINS
  bool shm = true;           // WEFT_SHM
  bool cma = true;           // WEFT_CMA
  int rails = 0;             // WEFT_RAILS: network interfaces to use at most, 0 = all
  // GPU memory.
  std::string cuda_library;           // WEFT_CUDA_LIBRARY: "" = libcuda.so.1
  bool cuda_ipc = true;               // WEFT_CUDA_IPC
  std::string cuda_reduce = "gpu";    // WEFT_CUDA_REDUCE: gpu, cpu
  bool cuda_kernel = false;           // WEFT_CUDA_KERNEL
  int64_t cuda_copy_bytes = 0;        // WEFT_CUDA_COPY_BYTES, 0 = no copies on callers' streams
  int64_t cuda_copy_from = 0;         // WEFT_CUDA_COPY_FROM, 0 = the tuner's choice
  int cuda_blocks = 16;               // WEFT_CUDA_BLOCKS
  int64_t cuda_keep_bytes = 1 << 30;  // WEFT_CUDA_KEEP_BYTES
  std::string cuda_memops = "auto";   // WEFT_CUDA_MEMOPS: auto, on, off
  int cuda_poll_us = 50;              // WEFT_CUDA_POLL_US
  std::string gpu_direct = "auto";    // WEFT_GPU_DIRECT: auto, on, off
  // Algorithms.
  std::string algo;                 // WEFT_ALGO: pins and bans
  bool strict = false;              // WEFT_STRICT
  int64_t eager_intra_bytes = 0;    // WEFT_EAGER_INTRA_BYTES, 0 = the transport's choice
  int64_t eager_inter_bytes = 0;    // WEFT_EAGER_INTER_BYTES
  int64_t early_bytes = 256 << 20;  // WEFT_EARLY_BYTES
  int64_t slice_bytes = 0;          // WEFT_SLICE_BYTES, 0 = the tuner's choice
  std::string tune = "auto";        // WEFT_TUNE: auto, off, refresh
  std::string tune_cache;           // WEFT_TUNE_CACHE: directory, or "none"
  // GPUs and NCCL.
  std::string backend = "auto";  // WEFT_BACKEND: auto, weft, nccl
  std::string nccl_library;      // WEFT_NCCL_LIBRARY
  // Progress.
  int progress_threads = 1;  // WEFT_PROGRESS_THREADS
  bool pin = true;           // WEFT_PIN
  int spin_us = 20;          // WEFT_SPIN_US
  int yield_us = 2000;       // WEFT_YIELD_US
  // When things break.
  double timeout_s = 600;    // WEFT_TIMEOUT_S
  double stall_check_s = 2;  // WEFT_STALL_CHECK_S
  bool memory_watch = true;  // WEFT_MEMORY_WATCH
  // Seeing what happens.
  std::string log = "warn";              // WEFT_LOG: none, error, warn, info, trace
  std::string log_file;                  // WEFT_LOG_FILE
  std::string trace;                     // WEFT_TRACE
  std::string recorder_dir;              // WEFT_RECORDER_DIR
  int recorder_ops = 256;                // WEFT_RECORDER_OPS
  std::string recorder_signal = "USR2";  // WEFT_RECORDER_SIGNAL: none, USR1, USR2, QUIT
  // Set by launchers; -1 and "" where there was none.
  int rank = -1;           // WEFT_RANK
  int world_size = -1;     // WEFT_WORLD_SIZE
  int local_rank = -1;     // WEFT_LOCAL_RANK
  int local_size = -1;     // WEFT_LOCAL_SIZE
  int node = -1;           // WEFT_NODE
  std::string job_secret;  // WEFT_JOB_SECRET: never printed
};

/// The process's settings, read from the environment at the first call. A wrong value leaves its default in
/// place and is reported by settings_status().
const Settings& settings();
/// ok, or the first unknown WEFT_* variable or value out of range, naming the nearest right one.
/// Communicators are not created while it is not ok.
const Status& settings_status();

/// Parses `environment` ("NAME=value" entries) as settings() does; for tests.
Result<Settings> parse_settings(const std::vector<std::string>& environment);

/// A row of the table.
struct SettingDoc {
  std::string name, kind, default_value, bounds, meaning, group;
};
std::vector<SettingDoc> setting_docs();
/// The row's value in the running process, as the variable would spell it ("64K", "on"); a secret is only
/// said to be set. Empty for a name that is no row.
std::string current_value(const std::string& name);
/// docs/reference/settings.md, whole.
std::string settings_markdown();

}  // namespace weft
