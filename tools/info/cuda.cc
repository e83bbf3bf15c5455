// What the CUDA driver and each device offer to communicators of GPU memory, found out as these do: by
// trying.
#include <fmt/format.h>

#include "base/settings.h"
#include "engine/gpu/device_executor.h"
#include "info/section.h"
#include "transport/ofi.h"

namespace weft::info {
namespace {

using Json = nlohmann::ordered_json;
namespace cuda = device::cuda;

/// What a device has, or why not.
class Abilities {
 public:
  Abilities(Section& section, const std::string& device) : section_(section) {
    section_.text += device + "\n";
    json_ = {{"device", device}};
  }
  void add(const char* key, const char* name, const Status& has, const char* instead) {
    section_.text += has.ok() ? fmt::format("  {:<26} yes\n", name)
                              : fmt::format("  {:<26} no, {}: {}\n", name, instead, has.message());
    json_[key] = has.ok() ? Json(true) : Json{{"why_not", has.message()}};
  }
  void keep() { section_.json["devices"].push_back(std::move(json_)); }

 private:
  Section& section_;
  Json json_;
};

struct GpuDirect {
  Status memory, files;
};

/// As ranks on several nodes would have it.
GpuDirect gpu_direct_of(int ordinal) {
  const auto neither = [](const Status& why) { return GpuDirect{why, why}; };
  if (settings().gpu_direct == "off") return neither(fail(Code::unsupported, "WEFT_GPU_DIRECT is off"));
  const bool over_ofi = settings().net == "ofi" || (settings().net == "auto" && transport::efa_is_usable());
  if (!over_ofi)
    return neither(fail(Code::unsupported, "nodes meet over sockets (WEFT_NET=ofi may do more)"));
  transport::OfiTransport::Options options;
  options.provider = settings().provider;
  options.rails = settings().rails;
  options.cuda_device = ordinal;
  const auto transport = transport::OfiTransport::create(0, 1, options);
  if (!transport.ok()) return neither(transport.status());
  return {(*transport)->gpu_direct_with(0), (*transport)->takes_dma_bufs()};
}

void add_device(Section& section, int ordinal) {
  const auto device = cuda::Device::open(ordinal);
  if (!device.ok()) {
    section.text += fmt::format("CUDA device {} cannot be used: {}\n", ordinal, device.status().message());
    section.json["devices"].push_back({{"device", ordinal}, {"error", device.status().message()}});
    return;
  }
  const cuda::Scope scope(**device);
  const auto executor = engine::DeviceExecutor::open(ordinal);
  Abilities abilities(section, (*device)->describe());
  abilities.add("memory_operations", "stream memory operations", (*device)->why_no_memory_operations(),
                "calls return only when the result is there");
  abilities.add("graphs", "CUDA graphs", (*device)->can_be_captured(), "a call in a capture is an error");
  abilities.add("ipc", "CUDA IPC", executor.ok() ? (*executor)->why_not_shared() : executor.status(),
                "peers' memory is staged in pinned host memory");
  abilities.add("kernels", "reduction kernels",
                executor.ok() ? (*executor)->why_no_kernels() : executor.status(),
                "reductions are the CPU's");
  const GpuDirect direct = gpu_direct_of(ordinal);
  abilities.add("gpu_direct", "GPUDirect", direct.memory, "what goes to other nodes is staged");
  abilities.add("dma_bufs", "GPUDirect by dma-bufs", direct.files, "the network plugin does not offer it");
  abilities.keep();
}

}  // namespace

Section cuda_section() {
  Section section{"cuda", "", Json::object()};
  const Result<const cuda::Driver*> driver = cuda::driver();
  const Result<int> count = cuda::Device::count();
  if (!count.ok()) {
    section.text = count.status().message() + "\n";
    section.json["error"] = count.status().message();
    return section;
  }
  const std::string version = fmt::format("{}.{}", (*driver)->version / 1000, (*driver)->version % 1000 / 10);
  section.text =
      fmt::format("a driver for CUDA {} with {} device{}\n", version, *count, *count == 1 ? "" : "s");
  section.json = {{"driver_for", version}, {"devices", Json::array()}};
  for (int ordinal = 0; ordinal < *count; ++ordinal) add_device(section, ordinal);
  return section;
}

}  // namespace weft::info
