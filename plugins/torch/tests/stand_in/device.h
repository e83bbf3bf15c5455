// The stand-in device's streams and memory.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

namespace stand_in {

int current_device();
void set_device(int device);
c10::Stream current_stream(int device);
// Returns the one before.
c10::Stream set_stream(c10::Stream stream);
c10::Stream default_stream(int device);
c10::Stream pool_stream(int device);
void* handle_of(c10::Stream stream);

// As CUDA's caching allocator: a freed block serves the next request of its stream at once, though the device
// may still use it. Other streams delay that only if the block was recorded on them.
c10::Allocator* allocator();
void record_block(void* data, c10::Stream stream);
// How many blocks were given out that had been given out before.
long reused_blocks();

}  // namespace stand_in
