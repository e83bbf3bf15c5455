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

/// The generation (base/fork.h) whose connections there are. A forked child has its parent's, and must not
/// speak on them, nor take them down; what it makes itself is noted here.
std::atomic<uint32_t> connections_of{0};  // 0: there are none

/// As guarded(), for calls with something that listen(), connect() or accept() has made.
template <typename Body>
abi::Result guarded_on_connection(Body body) {
  const uint32_t generation = connections_of.load(std::memory_order_relaxed);
  if (generation == 0 || is_of_this_process(generation)) [[likely]]
    return guarded(body);
  return report(fail(Code::invalid_usage,
                     "this process was forked after the connection was made: a forked child cannot use its "
                     "parent's connections"));
}

Status null_pointer(const char* what) { return fail(Code::invalid_argument, "{} is null", what); }

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
    return {};
  });
}

abi::Result finalize_context(void* context) {
  return guarded([&]() -> Status {
    delete static_cast<Context*>(context);
    return {};
  });
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
  return guarded([&]() -> Status {
    *listener = nullptr;
    connections_of.store(process_generation());
    return hand_over<Listener>(context.listen(device, handle), listener);
  });
}

abi::Result connect(Context& context, int device, void* handle, int traffic_class, void** sender) {
  return guarded([&]() -> Status {
    *sender = nullptr;
    connections_of.store(process_generation());
    return hand_over<Connection>(context.connect(device, handle, traffic_class), sender);
  });
}

abi::Result accept(void* listener, void** receiver) {
  return guarded_on_connection([&]() -> Status {
    *receiver = nullptr;
    if (!listener) return null_pointer("the listener");
    return hand_over<Connection>(static_cast<Listener*>(listener)->accept(), receiver);
  });
}

abi::Result close_sender(void* sender) {
  return guarded_on_connection([&]() -> Status {
    delete static_cast<Connection*>(sender);
    return {};
  });
}

abi::Result close_receiver(void* receiver) { return close_sender(receiver); }

abi::Result close_listener(void* listener) {
  return guarded_on_connection([&]() -> Status {
    delete static_cast<Listener*>(listener);
    return {};
  });
}

// ---- Memory

abi::Result register_memory(void* connection, void* data, size_t bytes, int type, void** memory) {
  return guarded_on_connection([&]() -> Status {
    *memory = nullptr;
    if (!connection) return null_pointer("the connection to register memory with");
    Result<Memory*> made = static_cast<Connection*>(connection)->register_memory(data, bytes, type);
    if (!made.ok()) return made.status();
    *memory = *made;
    return {};
  });
}

abi::Result register_dma_buf(void* connection, void* data, size_t bytes, int type, uint64_t offset, int fd,
                             void** memory) {
  return guarded_on_connection([&]() -> Status {
    *memory = nullptr;
    if (!connection) return null_pointer("the connection to register memory with");
    const DmaBuf file{fd, offset};
    Result<Memory*> made = static_cast<Connection*>(connection)->register_memory(data, bytes, type, &file);
    if (!made.ok()) return made.status();
    *memory = *made;
    return {};
  });
}

abi::Result deregister_memory(void* connection, void* memory) {
  return guarded_on_connection([&]() -> Status {
    if (!connection) return null_pointer("the connection to deregister memory from");
    return static_cast<Connection*>(connection)->deregister(static_cast<Memory*>(memory));
  });
}

// ---- Requests

abi::Result send(void* sender, const void* data, size_t bytes, int tag, void* memory, void** request) {
  return guarded_on_connection([&]() -> Status {
    *request = nullptr;
    if (!sender) return null_pointer("the connection to send on");
    Result<Request*> made =
        static_cast<Sender*>(static_cast<Connection*>(sender))->send(data, bytes, tag, memory);
    if (!made.ok()) return made.status();
    *request = *made;
    return {};
  });
}

abi::Result receive(void* receiver, int count, void* const* data, const size_t* bytes, const int* tags,
                    void* const* memory, void** request) {
  return guarded_on_connection([&]() -> Status {
    *request = nullptr;  // it may have come with kOptionalCompletion in it
    if (!receiver) return null_pointer("the connection to receive on");
    Result<Request*> made =
        static_cast<Receiver*>(static_cast<Connection*>(receiver))->receive(count, data, bytes, tags, memory);
    if (!made.ok()) return made.status();
    *request = *made;
    return {};
  });
}

abi::Result flush(void* receiver, int count, void* const* data, const int* bytes, void* const* memory,
                  void** request) {
  return guarded_on_connection([&]() -> Status {
    *request = nullptr;
    if (!receiver) return null_pointer("the connection to flush");
    return static_cast<Receiver*>(static_cast<Connection*>(receiver))->flush(count, data, bytes, memory);
  });
}

abi::Result test(void* request, int* done, int* bytes) {
  return guarded_on_connection([&]() -> Status {
    *done = 0;
    auto* known = static_cast<Request*>(request);
    if (!known || !known->owner)
      return fail(Code::invalid_argument, "a request is tested that is not under way");
    const Result<bool> over = known->owner->test(*known, bytes);
    if (!over.ok()) return over.status();
    *done = *over;
    return {};
  });
}

}  // namespace weft::nccl_net::plugin
