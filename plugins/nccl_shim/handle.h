// Handle: what a program's ncclComm_t points to here: a communicator of Weft or of the real NCCL.
//
// Handles are shells that are never freed, so that one that was destroyed can be recognised.
//
// Thread safety: as NCCL's communicators; any thread may read `live`, note children and ask for them.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "nccl/decision.h"
#include "nccl/library.h"
#include "weft/weft.h"

namespace weft::nccl_shim {

using nccl::Backend;
using nccl::Comm_t;

struct Handle {
  static constexpr uint64_t kMark = 0x6d6d6f4374666577;  // "weftComm"

  const uint64_t mark = kMark;
  const nccl::Decision decision;  // its children's, too
  const Backend backend;          // of the decision: weft or nccl
  std::atomic<bool> live{true};
  int device = -1;         // number of its GPU
  bool of_device = false;  // Weft's communicator is of GPU memory: its streams are CUDA's
  weftComm_t weft = nullptr;
  Comm_t own = nullptr;
  Comm_t* real = &own;  // where NCCL writes its communicator, which may be when a group ends

  explicit Handle(const nccl::Decision& made) : decision(made), backend(made.backend) {}
  Comm_t as_comm() { return reinterpret_cast<Comm_t>(this); }
  bool made() const { return backend == Backend::weft ? weft != nullptr : *real != nullptr; }
};

/// A shell that lives as long as the process.
Handle* new_handle(const nccl::Decision& decision);

/// The handle behind a communicator, also one that could not be created. Errors: invalid_comm (NULL,
/// destroyed, or of another library).
Result<Handle*> handle_of(Comm_t comm);
/// The same, of a communicator that can be used.
Result<Handle*> usable(Comm_t comm);

/// A child of Weft's is being made, without blocking.
void note_child(const Handle* parent, const Handle* child);
/// Whether one of its children is not there yet.
bool is_making_child(const Handle* parent);

}  // namespace weft::nccl_shim
