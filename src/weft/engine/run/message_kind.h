// What an envelope's `kind` says: step operations write it, the inbox reads it.
#pragma once

#include <cstdint>

namespace weft::engine {

enum class MessageKind : uint8_t {
  data,           // payload for `space` + `offset` of the receiver
  signal,         // a bare notification
  expose,         // payload is the RemoteBuffer of the sender's `space`
  expose_staged,  // … the RemoteBuffer of the pinned memory in which an operation on GPU memory has it
  expose_device,  // … the cuda::SharedMemory
  announce,       // payload is the PutAnnouncement of a put that begins
};

}  // namespace weft::engine
