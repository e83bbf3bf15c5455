// Devices: where the ranks of a run compute, and what of a GPU's memory a rank may take.
//
// Thread safety: one thread.
#pragma once

#include <weft/weft.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "device/choice.h"
#include "device/device.h"
#include "train/config.h"

namespace loom::train {

/// What a rank tells the others of the GPU that it has found. It travels as it is.
struct ToldGpu {
  uint64_t machine = 0, identity = 0;
  int64_t free_bytes = 0;
  int32_t ordinal = -1;
  char description[120] = "", why_not[600] = "";
};
ToldGpu told_of(const device::FoundGpu& found, uint64_t machine);

/// Where one rank computes. The ranks of a run all have a GPU, or none has.
struct Devices {
  int gpu = -1;                                 // ordinal; -1: CPUs
  std::string description = "CPUs";             // or the GPU's
  std::string reason;                           // why CPUs, where the config does not say so; a clause
  std::string note;                             // what a user would not expect; a sentence
  int64_t memory_bytes = 0;                     // of a GPU that each rank may take
  std::shared_ptr<device::Device> device = {};  // the GPU
};

/// Each rank of `comm` looks for its GPU, as parallel.device asks, and tells the others what it found. A
/// collective; nullptr is one rank. Errors, the same on all ranks: unsupported (a rank has no GPU where the
/// config asks for them, or cards round differently where it promises the same bits); communication_error.
Result<Devices> choose_devices(const Config& config, weftComm_t comm);
/// The choice itself, of what all ranks have told; `rank` is this one. `device` stays empty.
Result<Devices> devices_of(const Config& config, std::span<const ToldGpu> told, int rank);

}  // namespace loom::train
