// GPU memory, as far as the plugin itself has to do with it: which network devices reach it (GPUDirect), the
// flush that NCCL asks for after a receive, and copies of what came where no network put it. The way there is
// the transport's (transport::GpuDirect).
//
// Why a flush is CUDA's: libfabric tells when a write has been placed (fi_cq(3), FI_DELIVERY_COMPLETE), and
// leaves open whether a device sees it by then. CUDA says so of each device
// (CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING), and where it does not, cuFlushGPUDirectRDMAWrites
// returns when it does. A read by the network card, the other way, has PCIe's word for what went through the
// same card, and would have to be made on every rail.
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
