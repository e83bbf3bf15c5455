#include "plugin.h"

#include <atomic>
#include <exception>

#include "base/fork.h"
#include "gpu.h"
#include "low_latency.h"
#include "report.h"

namespace weft::nccl_net::plugin {
namespace {

constexpr int kMostConnections = 65'536;
std::atomic<int> contexts{0};  // that init_context() has made

/// Runs `body`, which returns a Status: the one way out of the plugin.
template <typename Body>
abi::Result guarded(Body body) {
  try {
    return report(body());
  } catch (const std::bad_alloc&) {
    return report(fail(Code::out_of_memory, "there is no memory left"));
  } catch (const std::exception& error) {
    return report(fail(Code::internal_error, "{}", error.what()));
  }
}

Status null_pointer(const char* what) { return fail(Code::invalid_argument, "{} is null", what); }

constexpr const char* name_of(const Context&) { return "the context"; }
constexpr const char* name_of(const Listener&) { return "the listener"; }
constexpr const char* name_of(const Connection&) { return "the connection"; }

/// As guarded(), with something that init_context(), listen(), connect() or accept() has made. A forked child
/// has its parent's, and must not speak on them, nor take them down.
template <typename T, typename Body>
abi::Result guarded_with(T* made, const char* what, Body body) {
  return guarded([&]() -> Status {
    if (!made) return null_pointer(what);
    if (!made->ownership().here()) [[unlikely]]
      return made->ownership().check(name_of(*made));
    return body(*made);
  });
}

/// Null is nothing, and goes without a word.
template <typename T>
abi::Result destroy(T* made) {
  if (!made) return abi::kSuccess;
  return guarded_with(made, "", [](T& own) -> Status {
    delete &own;
    return {};
  });
}

/// NCCL registers memory with either end of a connection, so both are handed out as what they have in common.
template <typename Handed, typename T>
Status hand_over(Result<std::unique_ptr<T>> made, void** into) {
  if (!made.ok()) return made.status();
  *into = static_cast<Handed*>(made.take().release());
  return {};
}

}  // namespace

// Never destroyed: libfabric takes itself down at the end of the process, in an order that nobody states.
Context& process_context() {
  (void)process_generation();  // a child of a raw clone() notices here that it is one
  static std::atomic<Context*> context{nullptr};
  [[maybe_unused]] static const bool made = [] {
    context.store(new Context);
    on_fork_in_child([] { context.store(new Context); });  // the endpoints are the parent's
    return true;
  }();
  return *context.load();
}

abi::Result init(abi::Logger logger) {
  set_logger(logger);
  return guarded([&]() -> Status {
    const Result<Devices*> found = Devices::get();
    if (!found.ok()) return found.status();
    // NCCL unloads the plugin with its last communicator, and then knows nothing of virtual devices.
    if (contexts.load() == 0) (*found)->count_afresh();
    for (int i = 0; i < (*found)->count(); ++i) {
      const Device& device = **(*found)->at(i);
      const Result<gpu::Reach> reach = gpu::reach_of(device);
      if (!reach.ok()) return reach.status();
      inform(fmt::format("device {}: {} over {}, {}", i, device.name,
                         device.way == Way::tcp ? "tcp" : "libfabric " + device.provider,
                         reach->direct.ok() ? "GPU memory as well as host memory (GPUDirect)"
                                            : fmt::format("host memory only ({})", reach->direct.message())));
      if (!reach->in_order.ok()) low_latency::keep_off(device, reach->in_order);
    }
    return {};
  });
}

abi::Result init_context(void** context, int traffic_class, abi::Logger logger) {
  const abi::Result ready = init(logger);
  if (ready != abi::kSuccess) return ready;
  return guarded([&]() -> Status {
    if (!context) return null_pointer("the context to be made");
    *context = new Context(traffic_class);
    ++contexts;
    return {};
  });
}

abi::Result finalize_context(void* context) {
  if (context) --contexts;
  return destroy(static_cast<Context*>(context));
}

// ---- Devices

abi::Result devices(int* count) {
  return guarded([&]() -> Status {
    const Result<Devices*> found = Devices::get();
    if (!found.ok()) return found.status();
    *count = (*found)->count();
    return {};
  });
}

abi::Result properties(int device, Properties* properties) {
  return guarded([&]() -> Status {
    const Result<Devices*> found = Devices::get();
    if (!found.ok()) return found.status();
    const Result<const Device*> description = (*found)->at(device);
    if (!description.ok()) return description.status();
    const Result<gpu::Reach> reach = gpu::reach_of(**description);
    if (!reach.ok()) return reach.status();
    const int memory = abi::kHostMemory | (reach->direct.ok() ? abi::kCudaMemory : 0) |
                       (reach->files.ok() ? abi::kDmaBuf : 0);
    *properties = {*description, memory, reach->needs_flush, 1, kMostConnections};
    return {};
  });
}

abi::Result make_virtual_device(int* device, const int* parts, int count) {
  return guarded([&]() -> Status {
    const Result<Devices*> found = Devices::get();
    if (!found.ok()) return found.status();
    if (count < 0) return fail(Code::invalid_argument, "a virtual device of {} devices was asked for", count);
    const Result<int> made = (*found)->combine({parts, static_cast<size_t>(count)});
    if (!made.ok()) return made.status();
    *device = *made;
    return {};
  });
}

// ---- Connections

abi::Result listen(Context& context, int device, void* handle, void** listener) {
  *listener = nullptr;
  return guarded_with(&context, "the context", [&](Context& own) {
    return hand_over<Listener>(own.listen(device, handle), listener);
  });
}

abi::Result connect(Context& context, int device, void* handle, int traffic_class, void** sender) {
  *sender = nullptr;
  return guarded_with(&context, "the context", [&](Context& own) {
    return hand_over<Connection>(own.connect(device, handle, traffic_class), sender);
  });
}

abi::Result accept(void* listener, void** receiver) {
  *receiver = nullptr;
  return guarded_with(static_cast<Listener*>(listener), "the listener",
                      [&](Listener& own) { return hand_over<Connection>(own.accept(), receiver); });
}

abi::Result close_sender(void* sender) { return destroy(static_cast<Connection*>(sender)); }

abi::Result close_receiver(void* receiver) { return close_sender(receiver); }

abi::Result close_listener(void* listener) { return destroy(static_cast<Listener*>(listener)); }

// ---- Memory

abi::Result register_memory(void* connection, void* data, size_t bytes, int type, void** memory) {
  *memory = nullptr;
  return guarded_with(static_cast<Connection*>(connection), "the connection to register memory with",
                      [&](Connection& own) -> Status {
                        Result<Memory*> made = own.register_memory(data, bytes, type);
                        if (!made.ok()) return made.status();
                        *memory = *made;
                        return {};
                      });
}

abi::Result register_dma_buf(void* connection, void* data, size_t bytes, int type, uint64_t offset, int fd,
                             void** memory) {
  *memory = nullptr;
  return guarded_with(static_cast<Connection*>(connection), "the connection to register memory with",
                      [&](Connection& own) -> Status {
                        const DmaBuf file{fd, offset};
                        Result<Memory*> made = own.register_memory(data, bytes, type, &file);
                        if (!made.ok()) return made.status();
                        *memory = *made;
                        return {};
                      });
}

abi::Result deregister_memory(void* connection, void* memory) {
  return guarded_with(static_cast<Connection*>(connection), "the connection to deregister memory from",
                      [&](Connection& own) { return own.deregister(static_cast<Memory*>(memory)); });
}

// ---- Requests

abi::Result send(void* sender, const void* data, size_t bytes, int tag, void* memory, void** request) {
  *request = nullptr;
  return guarded_with(static_cast<Connection*>(sender), "the connection to send on",
                      [&](Connection& own) -> Status {
                        Result<Request*> made = static_cast<Sender&>(own).send(data, bytes, tag, memory);
                        if (!made.ok()) return made.status();
                        *request = *made;
                        return {};
                      });
}

abi::Result receive(void* receiver, int count, void* const* data, const size_t* bytes, const int* tags,
                    void* const* memory, void** request) {
  *request = nullptr;  // it may have come with kOptionalCompletion in it
  return guarded_with(
      static_cast<Connection*>(receiver), "the connection to receive on", [&](Connection& own) -> Status {
        Result<Request*> made = static_cast<Receiver&>(own).receive(count, data, bytes, tags, memory);
        if (!made.ok()) return made.status();
        *request = *made;
        return {};
      });
}

abi::Result flush(void* receiver, int count, void* const* data, const int* bytes, void* const* memory,
                  void** request) {
  *request = nullptr;
  return guarded_with(static_cast<Connection*>(receiver), "the connection to flush",
                      [&](Connection& own) -> Status {
                        return static_cast<Receiver&>(own).flush(count, data, bytes, memory);
                      });
}

abi::Result test(void* request, int* done, int* bytes) {
  *done = 0;
  auto* known = static_cast<Request*>(request);
  if (!known || !known->owner)
    return report(fail(Code::invalid_argument, "a request is tested that is not under way"));
  return guarded_with(known->owner, "", [&](Connection& own) -> Status {
    const Result<bool> over = own.test(*known, bytes);
    if (!over.ok()) return over.status();
    *done = *over;
    return {};
  });
}

}  // namespace weft::nccl_net::plugin
