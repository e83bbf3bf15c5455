#include "device/cuda/ipc.h"

#include <algorithm>
#include <random>

#include "device/cuda/surplus.h"

namespace weft::device::cuda {

uint64_t process_number() {
  static const uint64_t number = [] {
    std::random_device random;
    return uint64_t{random()} << 32 | random();
  }();
  return number;
}

Result<SharedMemory> Exporter::describe(const void* address, size_t bytes, bool for_others) {
  auto place = locate(address);
  if (!place) return place.status();
  SharedMemory memory;
  memory.process = process_number();
  memory.address = reinterpret_cast<uintptr_t>(address);
  memory.bytes = bytes;
  memory.ordinal = place->ordinal;
  memory.cuda_version = static_cast<uint16_t>((*driver())->version / 10);
  if (!for_others) return memory;
  if (!place->shareable)
    return fail(Code::unsupported, "CUDA cannot share the memory at {} with other processes", address);
  memory.buffer_id = place->buffer_id;
  memory.offset = memory.address - place->base;
  auto known = handles_.find(place->buffer_id);
  if (known == handles_.end()) {
    IpcHandle handle;
    WEFT_TRY(check((*driver())->ipc_get_mem_handle(&handle, place->base), "cuIpcGetMemHandle"));
    if (handles_.size() == kKept) handles_.clear();
    known = handles_.emplace(place->buffer_id, handle).first;
  }
  memory.handle = known->second;
  return memory;
}

Importer::Mapping::~Mapping() {
  Surplus::instance().add_mapping(device_, base_);
}

Result<Importer::Reached> Importer::reach(const SharedMemory& memory) {
  if (memory.format != kSharedMemoryFormat)
    return fail(
        Code::mismatch,
        "its description of GPU memory has format {}, this library reads {}: use one version of libweft "
        "on all ranks",
        memory.format, kSharedMemoryFormat);
  if (memory.process == process_number()) {
    WEFT_TRY(device_.reach(memory.ordinal));
    return Reached{reinterpret_cast<std::byte*>(memory.address), nullptr};
  }
  auto known = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& k) {
    return k.process == memory.process && k.buffer_id == memory.buffer_id;
  });
  if (known == kept_.end()) {
    DevicePointer base = 0;
    const Driver& d = **driver();
    if (const Status opened =
            check(d.ipc_open_mem_handle(&base, memory.handle, kIpcLazyPeerAccess),
                  "mapping a peer's GPU memory (cuIpcOpenMemHandle; WEFT_CUDA_IPC=off does without)");
        !opened) {
      if (memory.cuda_version == d.version / 10) return opened;
      return fail(opened.code(),
                  "{}; its driver is for CUDA {}.{}, this process's for {}.{}: give both the same one",
                  opened.message(), memory.cuda_version / 100, memory.cuda_version % 100, d.version / 1000,
                  d.version % 1000 / 10);
    }
    if (kept_.size() == kKept) kept_.pop_back();
    known = kept_.insert(kept_.end(),
                         {memory.process, memory.buffer_id, std::make_shared<Mapping>(device_, base)});
  }
  std::rotate(kept_.begin(), known, known + 1);
  const auto& mapping = kept_.front().mapping;
  return Reached{mapping->at(memory.offset), mapping};
}

}  // namespace weft::device::cuda
