// with_gpu [--nccl] COMMAND [ARGUMENT...]: becomes the command where there is a CUDA device that Weft can use
// (and NVIDIA's NCCL, if asked for), and elsewhere says why there is none and ends with 77, by which ctest
// knows a test that was skipped. So nothing that the command itself prints or fails with can pass for a skip.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "device/cuda/device.h"
#include "nccl/library.h"

namespace {

constexpr int kSkipped = 77, kCannotRun = 126;

weft::Status what_is_needed(bool nccl) {
  if (const auto devices = weft::device::cuda::Device::count(); !devices.ok()) return devices.status();
  return nccl ? weft::nccl::Library::get().status() : weft::Status();
}

}  // namespace

int main(int argc, char** argv) {
  const bool nccl = argc > 1 && std::strcmp(argv[1], "--nccl") == 0;
  char** const command = argv + 1 + nccl;
  if (argc < 2 + nccl) {
    std::fprintf(stderr, "usage: with_gpu [--nccl] COMMAND [ARGUMENT...]\n");
    return kCannotRun;
  }
  if (const weft::Status there = what_is_needed(nccl); !there.ok()) {
    std::printf("skipped: %s\n", there.message().c_str());
    return kSkipped;
  }
  execvp(*command, command);
  std::fprintf(stderr, "with_gpu cannot run %s: %s\n", *command, std::strerror(errno));
  return kCannotRun;
}
