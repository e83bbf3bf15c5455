// Races between streams: work that uses the same memory, where one writes and neither comes after the other.
// Which work comes after which is followed by vector clocks (Lamport, 1978; Mattern, 1989): of streams, of
// events, of words that streams write and wait for, and of the host. So a missing wait is found although the
// work happens to be done in the right order. Off unless fake_cuda_follow_races() turned it on.
//
// Work is looked at when it is done, because then it is known what a stream has waited for. The host has one
// clock, since one thread may tell another what it has seen. The host's own reads and writes of words are not
// followed. Instead the host counts as having seen a word as soon as a stream has written it. A stream that
// waits for a word comes after all that the host has seen by then. So threads and words order too much rather
// than too little, and what is reported is a race.
//
// A launched graph is one piece of work. Kernels of whole collectives, and IPC, are not followed.
//
// Thread safety: every function.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/fake_driver/world.h"

namespace fake {

struct Access {
  DevicePointer address;
  uint64_t bytes;
  bool written;
};

/// What the calling thread queues now comes after this.
HostMoment host_moment();
/// The calling thread is a stream's and begins a piece of its work, which was queued then. All below that is
/// said by a stream's thread belongs to that piece.
void begin_piece(StreamHandle* stream, const HostMoment& queued);

/// The piece uses this memory.
void note_accesses(const std::string& name, const std::vector<Access>& accesses);
/// It is the `serial`th record of an event, by whose `reached` it is known, or a wait for that.
void note_record(const void* reached, uint64_t serial);
void note_wait(const void* reached, uint64_t serial);
/// It writes a word, or has seen the value that it waits for.
void note_word_written(const uint32_t* word);
void note_word_seen(const uint32_t* word);

/// The host has seen the end of all work of a stream, or an event's moment.
void host_waited_for(StreamHandle* stream);
void host_waited_for(const void* reached, uint64_t serial);
/// Memory was given back.
void forget_accesses(uintptr_t address, size_t bytes);

}  // namespace fake
