#include "api/comm_spec.h"

#include <algorithm>
#include <span>
#include <utility>

#include "api/timeouts.h"
#include "base/settings.h"
#include "device/cuda/device.h"
#include "nccl/gpu.h"

namespace weft::api {
namespace {

using engine::CommOptions;

// The calling thread's device, also with a driver that will not do for Weft.
Result<int> current_device() {
  auto current = device::cuda::Device::current();
  if (current.ok() || !nccl::gpu() || nccl::gpu()->devices() == 0) return current;
  const auto of_thread = nccl::gpu()->current_device();
  return of_thread.ok() ? *of_thread : 0;
}

// Defaults from the settings (or the parent), with what `config` sets on top.
Result<CommOptions> options_from(const weftConfig_t* config, const CommOptions* parent) {
  CommOptions options;
  options.timeout_s = settings().timeout_s;
  options.strict = settings().strict;
  if (parent) {
    options = *parent;
    options.name.clear();
    options.yields_device = false;
  }
  if (!config) return options;
  if (config->size < sizeof(weftConfig_t) || config->magic != WEFT_API_MAGIC)
    return fail(Code::invalid_argument,
                "config does not start as WEFT_CONFIG_INITIALIZER (size {}, magic {:#x})", config->size,
                config->magic);
  if (config->version / 10000 != WEFT_MAJOR)
    return fail(Code::invalid_argument, "config is of version {}, this library is {}", config->version,
                WEFT_VERSION_CODE);
  auto flag = [](const char* name, int value, bool& into) -> Status {
    if (value == WEFT_CONFIG_UNDEF_INT) return {};
    if (value != 0 && value != 1)
      return fail(Code::invalid_argument, "config.{} is {}, must be 0 or 1", name, value);
    into = value == 1;
    return {};
  };
  bool accepted_only = false;
  WEFT_TRY(flag("blocking", config->blocking, options.blocking));
  WEFT_TRY(flag("splitShare", config->splitShare, accepted_only));
  WEFT_TRY(flag("shrinkShare", config->shrinkShare, accepted_only));
  WEFT_TRY(flag("strict", config->strict, options.strict));
  if (config->commName) options.name = config->commName;
  if (config->hostId) options.host_id = config->hostId;
  if (config->device != WEFT_CONFIG_UNDEF_INT) {
    auto device = device_from(config->device);
    if (!device) return device.status();
    options.device = *device;
  }
  if (config->timeoutSeconds > 0) options.timeout_s = std::min(config->timeoutSeconds, kLongestTimeout_s);
  else if (config->timeoutSeconds != static_cast<double>(WEFT_UNDEF_FLOAT))
    return fail(Code::invalid_argument, "config.timeoutSeconds is {}, must be greater than 0",
                config->timeoutSeconds);
  return options;
}

// The library of a communicator: that of the setting, of the parent or of `config`.
Result<nccl::Backend> backend_from(const weftConfig_t* config, weftComm_t parent) {
  constexpr nccl::Backend backends[] = {nccl::Backend::automatic, nccl::Backend::weft, nccl::Backend::nccl};
  const nccl::Backend inherited = parent ? parent->backend : nccl::wanted_backend();
  if (!config || config->backend == WEFT_CONFIG_UNDEF_INT) return inherited;
  if (config->backend < WEFT_BACKEND_AUTO || config->backend > WEFT_BACKEND_NCCL)
    return fail(
        Code::invalid_argument,
        "config.backend is {}, must be WEFT_BACKEND_AUTO (0), WEFT_BACKEND_WEFT (1) or WEFT_BACKEND_NCCL (2)",
        config->backend);
  return backends[config->backend];
}

CommSpec plain(const CommOptions& options, nccl::Backend backend) {
  return {options, backend, options.device, {}};
}

CommSpec yielding(const CommOptions& options, nccl::Backend backend, int device, Status why) {
  CommSpec spec{options, backend, device, std::move(why)};
  spec.options.device = -1;
  spec.options.yields_device = true;
  return spec;
}

// NCCL has no strict order.
CommSpec with_auto(const CommOptions& options, nccl::Backend backend) {
  if (backend != nccl::Backend::automatic || options.device < 0 || options.strict)
    return plain(options, backend);
  Status lacks = nccl::lacking(std::span(&options.device, 1));
  return lacks.ok() ? plain(options, backend) : yielding(options, backend, options.device, std::move(lacks));
}

}  // namespace

Result<int> device_from(int device) {
  if (device == WEFT_DEVICE_HOST) return -1;
  if (device == WEFT_DEVICE_CURRENT) return current_device();
  if (device < 0)
    return fail(Code::invalid_argument,
                "device is {}, must be the number of a CUDA device, WEFT_DEVICE_CURRENT or WEFT_DEVICE_HOST",
                device);
  return device;
}

Result<CommSpec> spec_of(const weftConfig_t* config) {
  auto options = options_from(config, nullptr);
  if (!options) return options.status();
  auto backend = backend_from(config, nullptr);
  if (!backend) return backend.status();
  return with_auto(*options, *backend);
}

Result<CommSpec> spec_of_child(weftComm_t parent, const CommOptions& parents, const weftConfig_t* config,
                               bool is_split) {
  auto options = options_from(config, &parents);
  if (!options) return options.status();
  auto backend = backend_from(config, parent);
  if (!backend) return backend.status();
  const bool inherits = !config || config->device == WEFT_CONFIG_UNDEF_INT;
  if (inherits && parent->yielded_device >= 0 && *backend == nccl::Backend::automatic && !options->strict)
    return yielding(*options, *backend, parent->yielded_device,
                    fail(Code::unsupported, "{}", parent->yielded_for));
  return is_split ? with_auto(*options, *backend) : plain(*options, *backend);
}

}  // namespace weft::api
