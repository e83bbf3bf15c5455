// Races between streams: work that uses the same memory, where one writes and neither comes after the other.
// Which work comes after which is followed by vector clocks (Lamport, 1978; Mattern, 1989): of streams, of
// events, of the host's threads. So a missing wait is found whatever the timing. Off unless
// fake_cuda_follow_races() turned it on; it knows nothing of stream memory operations, graphs and IPC.
//
// Thread safety: every function.
#pragma once

#include <string>
#include <vector>

#include "cuda/fake_driver/world.h"

namespace fake {

struct Access {
  DevicePointer address;
  uint64_t bytes;
  bool written;
};

/// The next piece of a stream's work, which uses this memory.
void note_accesses(StreamHandle* stream, const std::string& name, const std::vector<Access>& accesses);
void note_record(EventHandle* event, StreamHandle* stream);
void note_wait(EventHandle* event, StreamHandle* stream);
/// The calling thread has seen the end of all work of a stream, or an event's moment.
void host_waited_for(StreamHandle* stream);
void host_waited_for(EventHandle* event);
/// Memory was given back.
void forget_accesses(uintptr_t address, size_t bytes);

}  // namespace fake
