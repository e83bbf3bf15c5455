// A device of PyTorch whose memory, streams and events are those of a CUDA driver: torch's private device
// type over the fake driver of tests/cuda. With it the backend's device path runs without a GPU. It computes
// on the CPU: an operator's arguments are copied to the host in the order of the current stream, and results
// back. Device memory faults when a CPU touches it, and streams are late, so a missing copy or wait shows. It
// is no test of CUDA's own allocator, streams or kernels.
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/extension.h>
#include <torch/library.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "device.h"
#include "driver.h"

namespace stand_in {

namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;
constexpr auto kKeys = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device to) const override {
    const c10::Device before = getDevice();
    setDevice(to);
    return before;
  }
  c10::Device getDevice() const override {
    return c10::Device(kType, static_cast<c10::DeviceIndex>(current_device()));
  }
  void setDevice(c10::Device to) const override {
    TORCH_CHECK(to.index() < deviceCount(), "there is no device ", to);
    if (to.index() >= 0) set_device(to.index());
  }
  void uncheckedSetDevice(c10::Device to) const noexcept override {
    if (to.index() >= 0) set_device(to.index());
  }
  c10::Stream getStream(c10::Device of) const override { return current_stream(index(of)); }
  c10::Stream getDefaultStream(c10::Device of) const override { return default_stream(index(of)); }
  c10::Stream getStreamFromGlobalPool(c10::Device of, bool) const override { return pool_stream(index(of)); }
  c10::Stream getNewStream(c10::Device of, int) const override { return pool_stream(index(of)); }
  c10::Stream exchangeStream(c10::Stream to) const override { return set_stream(to); }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return handle_of(stream); }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(driver().contexts.size());
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    Driver& cuda = driver_on(stream.device_index());
    if (*event == nullptr) check(cuda.event_create(event, 2), "cuEventCreate");
    check(cuda.event_record(*event, handle_of(stream)), "cuEventRecord");
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    check(driver_on(stream.device_index()).stream_wait_event(handle_of(stream), event, 0),
          "cuStreamWaitEvent");
  }
  bool queryEvent(void* event) const override {
    if (event == nullptr) return true;
    const int state = driver().event_query(event);
    TORCH_CHECK(state == 0 || state == kNotReady, "the stand-in's driver: cuEventQuery returned ", state);
    return state == 0;
  }
  void synchronizeEvent(void* event) const override {
    while (!queryEvent(event)) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    if (event != nullptr) driver().event_destroy(event);
  }
  bool queryStream(const c10::Stream& stream) const override {
    return driver_on(stream.device_index()).stream_query(handle_of(stream)) == 0;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    check(driver_on(stream.device_index()).stream_synchronize(handle_of(stream)), "cuStreamSynchronize");
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    record_block(data.get(), stream);
  }

 private:
  static int index(c10::Device device) { return device.has_index() ? device.index() : current_device(); }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return Guard().deviceCount(); }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(current_device());
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return Guard().exchangeDevice(c10::Device(kType, device)).index();
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchangeDevice(device);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
    c10::DataPtr data = allocator()->allocate(bytes);
    const size_t kept = std::min(bytes, impl->nbytes());
    const c10::Stream stream = current_stream(current_device());
    if (kept > 0) {
      check(driver_on(current_device())
                .copy(reinterpret_cast<uint64_t>(data.get()), reinterpret_cast<uint64_t>(impl->data()), kept,
                      handle_of(stream)),
            "cuMemcpyAsync");
    }
    impl->set_data_ptr_noswap(std::move(data));
    impl->set_nbytes(bytes);
  }
};

// ---- Operators

void copy_bytes(const c10::Device& device, void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  check(driver_on(device.index())
            .copy(reinterpret_cast<uint64_t>(to), reinterpret_cast<uint64_t>(from), bytes,
                  handle_of(current_stream(device.index()))),
        "cuMemcpyAsync");
}

size_t span(const at::Tensor& tensor) {
  return at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.element_size());
}

// A copy of a device tensor's memory on the host, with the same strides. It waits for the current stream.
at::Tensor to_host(const at::Tensor& tensor) {
  at::Tensor made = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
  copy_bytes(tensor.device(), made.data_ptr(), tensor.data_ptr(), span(tensor));
  Guard().synchronizeStream(current_stream(tensor.device().index()));
  made._set_conj(tensor.is_conj());
  made._set_neg(tensor.is_neg());
  return made;
}

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.is_non_overlapping_and_dense() && a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  if (from.numel() == 0 && to.numel() == 0) return to;
  const c10::Device device = to.is_cpu() ? from.device() : to.device();
  if (same_bytes(from, to)) {
    copy_bytes(device, to.data_ptr(), from.data_ptr(), from.nbytes());
    if (to.is_cpu()) Guard().synchronizeStream(current_stream(device.index()));
    return to;
  }
  const at::Tensor source = from.is_cpu() ? from : to_host(from);
  if (to.is_cpu()) {
    to.copy_(source);
    return to;
  }
  at::Tensor target = to_host(to);
  target.copy_(source);
  copy_bytes(device, to.data_ptr(), target.data_ptr(), span(to));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(device.value_or(Guard().getDevice()));
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), allocator(), kKeys,
                                   c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                         std::optional<at::ScalarType> type, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(device.value_or(Guard().getDevice()));
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
                                           allocator(), kKeys, c10::dtype_or_default(type));
}

at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                      std::optional<c10::SymInt> offset) {
  return at::native::as_strided_tensorimpl(
      self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
      offset ? std::make_optional(offset->guard_int(__FILE__, __LINE__)) : std::nullopt);
}

const at::Tensor& resize(const at::Tensor& self, c10::SymIntArrayRef size,
                         std::optional<at::MemoryFormat> format) {
  return at::native::resize_(self, C10_AS_INTARRAYREF_SLOW(size), format);
}

at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef size) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}

at::Tensor reshape_alias(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}

at::Scalar local_scalar(const at::Tensor& self) { return to_host(self).item(); }

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return at::native::set_tensor_(self, source);
}
at::Tensor& set_storage(at::Tensor& self, at::Storage source) { return at::native::set_(self, source); }
at::Tensor& set_storage_offset(at::Tensor& self, at::Storage source, c10::SymInt offset,
                               c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return at::native::set_storage_cpu_(self, source, offset.guard_int(__FILE__, __LINE__),
                                      C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", as_strided);
  m.impl("resize_", resize);
  m.impl("view", view);
  m.impl("_reshape_alias", reshape_alias);
  m.impl("view_as_real", &at::native::view_as_real);
  m.impl("view_as_complex", &at::native::view_as_complex);
  m.impl("unfold", &at::native::unfold);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar);
  m.impl("set_.source_Tensor", set_tensor);
  m.impl("set_.source_Storage", set_storage);
  m.impl("set_.source_Storage_storage_offset", set_storage_offset);
}

// ---- What tests do to a stream

// Work that is put on the current stream from now on does not begin until release().
class Held {
 public:
  Held() {
    const int device = current_device();
    Driver& cuda = driver_on(device);
    void* memory = nullptr;
    check(cuda.host_alloc(&memory, sizeof(uint32_t), 0), "cuMemHostAlloc");
    flag_ = static_cast<std::atomic<uint32_t>*>(memory);
    *flag_ = 0;
    check(cuda.stream_wait_value(handle_of(current_stream(device)), reinterpret_cast<uint64_t>(memory), 1,
                                 kWaitValueGeq),
          "cuStreamWaitValue32");
  }
  void release() { *flag_ = 1; }

 private:
  std::atomic<uint32_t>* flag_;  // stays
};

}  // namespace
}  // namespace stand_in

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  using namespace stand_in;
  module.def("load", [](const std::string& path) {
    driver(path);
    at::RegisterPrivateUse1HooksInterface(new Hooks);
    c10::SetAllocator(kType, allocator());
  });
  module.def("device_count", [] { return driver().contexts.size(); });
  module.def("current_device", [] { return current_device(); });
  module.def("set_device", [](int device) { set_device(device); });
  module.def("reused_blocks", [] { return reused_blocks(); });
  pybind11::class_<Held>(module, "Held").def(pybind11::init<>()).def("release", &Held::release);
}
