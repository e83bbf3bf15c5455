// with_gpu [--nccl | --gpu-direct] COMMAND [ARGUMENT...]: becomes the command where there is a CUDA device
// that Weft can use (and NVIDIA's NCCL, or a network that reaches the device's memory, if asked for), and
// elsewhere says why there is none and ends with 77, by which ctest knows a test that was skipped. So nothing
// that the command itself prints or fails with can pass for a skip.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "device/cuda/device.h"
#include "nccl/library.h"
#include "transport/ofi.h"

namespace {

constexpr int kSkipped = 77, kCannotRun = 126;

enum class Need { device, nccl, gpu_direct };

weft::Status network_with_gpu_direct() {
  weft::transport::OfiOptions options;
  options.cuda_device = 0;
  const auto network = weft::transport::OfiTransport::create(0, 1, options);
  return network ? (*network)->gpu_direct_with(0) : network.status();
}

weft::Status what_is_needed(Need need) {
  if (const auto devices = weft::device::cuda::Device::count(); !devices.ok()) return devices.status();
  switch (need) {
    case Need::device: break;
    case Need::nccl: return weft::nccl::Library::get().status();
    case Need::gpu_direct: return network_with_gpu_direct();
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view option = argc > 1 ? argv[1] : "";
  const Need need = option == "--nccl"         ? Need::nccl
                    : option == "--gpu-direct" ? Need::gpu_direct
                                               : Need::device;
  const int options = need == Need::device ? 0 : 1;
  char** const command = argv + 1 + options;
  if (argc < 2 + options) {
    std::fprintf(stderr, "usage: with_gpu [--nccl | --gpu-direct] COMMAND [ARGUMENT...]\n");
    return kCannotRun;
  }
  if (const weft::Status there = what_is_needed(need); !there.ok()) {
    std::printf("skipped: %s\n", there.message().c_str());
    return kSkipped;
  }
  execvp(*command, command);
  std::fprintf(stderr, "with_gpu cannot run %s: %s\n", *command, std::strerror(errno));
  return kCannotRun;
}
