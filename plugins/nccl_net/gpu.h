// The plugin's own part of GPU memory: which network devices reach it (GPUDirect), the flush that NCCL asks
// for after a receive, and copies of data that no network wrote there. The transport moves the data
// (transport::GpuDirect).
//
// Why a flush is CUDA's. libfabric reports when a write has been placed (fi_cq(3), FI_DELIVERY_COMPLETE),
// but does not promise that a device sees it then. CUDA states for each device whether it does
// (CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING). If it does not, cuFlushGPUDirectRDMAWrites returns
// when the device sees the write. The other way is a read by the network card. PCIe orders it only after
// writes of the same card, so every rail would have to make one.
//
// Thread safety: all functions.
#pragma once

#include "device/cuda/device.h"
#include "devices.h"

namespace weft::nccl_net::gpu {

/// The CUDA device whose memory endpoints that this thread opens are to reach: its current one. Errors:
/// unsupported, or what the driver says, where there is none, or WEFT_GPU_DIRECT is off.
Result<device::cuda::Device*> wanted();

/// What a network device does with GPU memory.
struct Reach {
  Status direct;    // ok: it reads and writes it; else why not
  Status files;     // ok: it takes dma-bufs of it; else why not
  Status in_order;  // else why a card writes what a GPU looks into without keeping 128 bytes in order
  bool needs_flush = false;  // before the GPU sees what came
};
/// Found out at the first call by opening the device; of the CUDA device that is current then. Errors:
/// unsupported if WEFT_GPU_DIRECT is on and it does not.
Result<Reach> reach_of(const Device& device);

/// Copies host memory into memory of CUDA device `ordinal`, and returns when it is there.
Status copy_in(int ordinal, void* to, const void* from, size_t bytes);
/// Where memory that the network writes into begins, and the driver's number of what was there when it was
/// registered; 0: not known. (What lies behind may have other numbers: an address range may be put together.)
struct Buffer {
  const void* address;
  uint64_t number;
};
/// Returns when the CUDA device sees all that the network has written into its memory. Errors: invalid_usage
/// if one of the buffers is not there any more: a network holds its pages and writes on, for nobody.
Status flush(int ordinal, std::span<const Buffer> buffers);

}  // namespace weft::nccl_net::gpu
