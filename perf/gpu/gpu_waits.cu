// gpu_waits: what CUDA's driver does with other calls while a stream waits in cuStreamWaitValue32 for a flag
// that a CPU thread sets. A stream waits so for an operation of Weft (docs/explanation/gpus.md, "While a
// stream waits").
//   gpu_waits            every row, each in a process of its own, as a table in Markdown
//   gpu_waits NAME       one row, or a group: behind, spins, connections, mappings
// For each call the table says whether it returns while the stream waits. It also says how long copies and
// event queries of another thread took meanwhile; that thread stands for the progress thread. A program may
// make a call that returns only when the stream goes on. A call that stops the other thread would stop both.
// The groups:
//   behind       which calls of Weft return while a program's thread is in such a call
//   spins        which calls return while a kernel spins on the flag, like one that does a whole collective
//   connections  how many streams may wait until no kernel starts
//   mappings     what happens to mappings of a peer's memory
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "held_stream.cuh"

namespace {

constexpr double kPatienceS = 0.5;          // a call that takes longer waits for the stream
constexpr unsigned kLongestRowS = 20;       // a row that takes longer is stuck
constexpr int kMoreThanAQueueHolds = 4096;  // launches

__global__ void first_launched_while_waiting(int* word) {
  if (word) *word = 1;
}

constexpr const char* kFirstLaunch = "a kernel's first launch, which loads it (CUDA_MODULE_LOADING=LAZY)";
constexpr const char* kEmptyKernel =
    ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry empty() { ret; }\n";

/// A call of a program or of Weft, prepared before the stream waits. `owner`: the call needs memory of
/// another process, which must exist before this process uses CUDA.
struct Call {
  const char* name;
  std::function<std::function<void()>(cudaStream_t waiting, Owner* owner)> ready;
  bool needs_owner = false;
};

/// A stream as Weft makes them; `used`: it has done work.
cudaStream_t stream_of_ours(bool used) {
  cudaStream_t stream = make_stream(true);
  if (!used) return stream;
  must(cudaMemcpyAsync(device_memory(kSmall), pinned_memory(kSmall), kSmall, cudaMemcpyHostToDevice, stream));
  must(cudaStreamSynchronize(stream));
  return stream;
}

void ends(cudaStream_t stream) {
  while (cudaStreamQuery(stream) != cudaSuccess) std::this_thread::yield();
}

std::vector<Call> calls() {
  using Run = std::function<void()>;
  std::vector<Call> all;
  const auto add = [&](const char* name, std::function<Run(cudaStream_t, Owner*)> ready) {
    all.push_back({name, std::move(ready), std::strstr(name, "Ipc") != nullptr});
  };
  add("cudaFree of 64 MiB", [](cudaStream_t, Owner*) -> Run {
    void* const block = device_memory(kLarge);
    return [=] { must(cudaFree(block)); };
  });
  add("cudaFree of 4 KiB", [](cudaStream_t, Owner*) -> Run {
    void* const block = device_memory(kSmall);
    return [=] { must(cudaFree(block)); };
  });
  add("cudaMalloc of 64 MiB", [](cudaStream_t, Owner*) -> Run { return [] { device_memory(kLarge); }; });
  add("cudaMalloc of 4 KiB", [](cudaStream_t, Owner*) -> Run { return [] { device_memory(kSmall); }; });
  add("cudaMallocAsync and cudaFreeAsync of 64 MiB", [](cudaStream_t, Owner*) -> Run {
    return [stream = make_stream()] {
      void* block = nullptr;
      must(cudaMallocAsync(&block, kLarge, stream));
      must(cudaFreeAsync(block, stream));
      must(cudaStreamSynchronize(stream));
    };
  });
  add("cudaHostAlloc of 64 MiB", [](cudaStream_t, Owner*) -> Run { return [] { pinned_memory(kLarge); }; });
  add("cudaFreeHost of 64 MiB", [](cudaStream_t, Owner*) -> Run {
    void* const block = pinned_memory(kLarge);
    return [=] { must(cudaFreeHost(block)); };
  });
  add("cudaHostRegister of 64 MiB", [](cudaStream_t, Owner*) -> Run {
    void* const block = std::aligned_alloc(kSmall, kLarge);
    return [=] { must(cudaHostRegister(block, kLarge, cudaHostRegisterPortable)); };
  });
  add("cudaHostUnregister of 64 MiB", [](cudaStream_t, Owner*) -> Run {
    void* const block = std::aligned_alloc(kSmall, kLarge);
    must(cudaHostRegister(block, kLarge, cudaHostRegisterPortable));
    return [=] { must(cudaHostUnregister(block)); };
  });
  add("cudaIpcOpenMemHandle", [](cudaStream_t, Owner* owner) -> Run {
    return [handle = owner->next().handle] {
      void* block = nullptr;
      must(cudaIpcOpenMemHandle(&block, handle, cudaIpcMemLazyEnablePeerAccess));
    };
  });
  add("cudaIpcCloseMemHandle", [](cudaStream_t, Owner* owner) -> Run {
    void* block = nullptr;
    must(cudaIpcOpenMemHandle(&block, owner->next().handle, cudaIpcMemLazyEnablePeerAccess));
    return [=] { must(cudaIpcCloseMemHandle(block)); };
  });
  add("cudaMemcpy of 64 MiB from pageable memory", [](cudaStream_t, Owner*) -> Run {
    void *const from = std::calloc(1, kLarge), *const to = device_memory(kLarge);
    return [=] { must(cudaMemcpy(to, from, kLarge, cudaMemcpyHostToDevice)); };
  });
  add("cudaMemcpyAsync of 64 MiB from pageable memory, another stream", [](cudaStream_t, Owner*) -> Run {
    void *const from = std::calloc(1, kLarge), *const to = device_memory(kLarge);
    return [=, stream = make_stream()] {
      must(cudaMemcpyAsync(to, from, kLarge, cudaMemcpyHostToDevice, stream));
      must(cudaStreamSynchronize(stream));
    };
  });
  add(kFirstLaunch, [](cudaStream_t, Owner*) -> Run {
    return [stream = make_stream()] {
      first_launched_while_waiting<<<1, 1, 0, stream>>>(nullptr);
      must(cudaGetLastError());
      must(cudaStreamSynchronize(stream));
    };
  });
  add("cuModuleLoadData", [](cudaStream_t, Owner*) -> Run {
    return [load = WEFT_OF_DRIVER(cuModuleLoadData)] {
      CUmodule module;
      must(load(&module, kEmptyKernel));
    };
  });
  add("cudaStreamCreate and cudaStreamDestroy",
      [](cudaStream_t, Owner*) -> Run { return [] { must(cudaStreamDestroy(make_stream())); }; });
  for (const bool used : {false, true}) {
    add(used ? "a kernel in a stream that was used before" : "a kernel in a new stream",
        [used](cudaStream_t, Owner*) -> Run {
          return [stream = stream_of_ours(used)] {
            known<<<1, 1, 0, stream>>>();
            must(cudaGetLastError());
            ends(stream);
          };
        });
    add(used ? "copies in a stream that was used before" : "copies in a new stream",
        [used](cudaStream_t, Owner*) -> Run {
          void *const host = pinned_memory(kLarge), *const from = device_memory(kLarge),
                      *const to = device_memory(kLarge);
          return [=, stream = stream_of_ours(used)] {
            must(cudaMemcpyAsync(from, host, kLarge, cudaMemcpyHostToDevice, stream));
            must(cudaMemcpyAsync(to, from, kLarge, cudaMemcpyDeviceToDevice, stream));
            must(cudaMemcpyAsync(host, to, kLarge, cudaMemcpyDeviceToHost, stream));
            ends(stream);
          };
        });
  }
  add("cudaEventCreate", [](cudaStream_t, Owner*) -> Run {
    return [] {
      for (int i = 0; i < 100; ++i) {
        cudaEvent_t event;
        must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
      }
    };
  });
  add("an event that was made before", [](cudaStream_t, Owner*) -> Run {
    cudaEvent_t event;
    must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return [=, stream = stream_of_ours(true)] {
      must(cudaEventRecord(event, stream));
      while (cudaEventQuery(event) != cudaSuccess) std::this_thread::yield();
    };
  });
  add("4096 launches into another stream", [](cudaStream_t, Owner*) -> Run {
    return [stream = make_stream()] {
      for (int i = 0; i < kMoreThanAQueueHolds; ++i) known<<<1, 1, 0, stream>>>();
      must(cudaStreamSynchronize(stream));
    };
  });
  add("4096 launches into the stream that waits", [](cudaStream_t waiting, Owner*) -> Run {
    return [=] {
      for (int i = 0; i < kMoreThanAQueueHolds; ++i) known<<<1, 1, 0, waiting>>>();
    };
  });
  add("cudaStreamSynchronize of the stream that waits",
      [](cudaStream_t waiting, Owner*) -> Run { return [=] { must(cudaStreamSynchronize(waiting)); }; });
  add("cudaDeviceSynchronize",
      [](cudaStream_t, Owner*) -> Run { return [] { must(cudaDeviceSynchronize()); }; });
  add("a graph's instantiation and launch, another stream", [](cudaStream_t, Owner*) -> Run {
    return [stream = make_stream()] {
      cudaGraph_t graph;
      cudaGraphExec_t executable;
      must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      known<<<1, 1, 0, stream>>>();
      must(cudaStreamEndCapture(stream, &graph));
      must(cudaGraphInstantiate(&executable, graph, 0));
      must(cudaGraphLaunch(executable, stream));
      must(cudaStreamSynchronize(stream));
      must(cudaGraphExecDestroy(executable));
    };
  });
  return all;
}

/// Loads the kernels that several calls share.
void warm_up() {
  known<<<1, 1>>>();
  Flag flag;
  flag.let_go();
  flag.hold(make_stream(), Holder::kernel);
  must(cudaDeviceSynchronize());
}

/// A call on a thread of its own.
class Caller {
 public:
  explicit Caller(std::function<void()> run)
      : begin_(now_s()), thread_([this, run = std::move(run)] {
          must(cudaSetDevice(0));  // makes its context the thread's
          run();
          took_s_ = now_s() - begin_;
          returned_ = true;
        }) {}
  ~Caller() { thread_.join(); }
  bool returns_within(double seconds) const {
    while (!returned_ && now_s() - begin_ < seconds)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    return returned_;
  }
  double took_ms() const { return took_s_ * 1e3; }

 private:
  double begin_;
  std::atomic<bool> returned_{false};
  std::atomic<double> took_s_{0};
  std::thread thread_;
};

std::string when(const Caller& caller, bool by_itself) {
  char text[64];
  std::snprintf(text, sizeof text, by_itself ? "after %.2f ms" : "when the stream goes on", caller.took_ms());
  return text;
}

void measure(const Call& call, Holder holder) {
  std::optional<Owner> owner;
  if (call.needs_owner) owner.emplace(kLarge, 1);
  Flag flag;
  cudaStream_t waiting = make_stream();
  const auto run = call.ready(waiting, owner ? &*owner : nullptr);
  warm_up();
  Progress progress;
  flag.hold(waiting, holder);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  Caller caller(run);
  const bool by_itself = caller.returns_within(kPatienceS);
  // Only a call that has not returned shows whether it stops the other thread.
  const int rounds_before = progress.rounds();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const bool others_went_on = progress.rounds() > rounds_before + 1;
  const double longest_ms = progress.longest_ms();
  flag.let_go();
  char others[64];
  std::snprintf(others, sizeof others, others_went_on ? "%.2f ms at most" : "**stood still**", longest_ms);
  std::printf("| %s%s | %s | %s |\n", call.name, holder == Holder::kernel ? ", while a kernel spins" : "",
              when(caller, by_itself).c_str(), others);
}

/// Makes `call` while another thread is in `first`, which cannot return while the stream waits.
void measure_behind(const Call& first, const Call& call) {
  std::optional<Owner> owner;
  if (call.needs_owner) owner.emplace(kLarge, 1);
  Flag flag;
  cudaStream_t waiting = make_stream();
  const auto run = call.ready(waiting, owner ? &*owner : nullptr);
  const auto run_first = first.ready(waiting, nullptr);
  warm_up();
  flag.hold(waiting);
  std::string said;
  {
    Caller program(run_first);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    Caller weft(run);
    const bool by_itself = weft.returns_within(kPatienceS);
    flag.let_go();
    said = by_itself ? when(weft, true) : "**when the stream goes on**";
  }
  std::printf("| %s, while another thread is in: %s | %s | |\n", call.name, first.name, said.c_str());
}

/// How many streams wait when an older stream cannot work any more: by kernels, copies inside the device, or
/// copies from pinned memory. The copies are too long to be part of the stream itself.
void connections(const char* asked, const char* what) {
  if (*asked) setenv("CUDA_DEVICE_MAX_CONNECTIONS", asked, 1);
  constexpr int kMost = 40;
  constexpr double kLongS = 0.02;
  constexpr size_t kBytes = 65536;
  warm_up();
  void *const host = pinned_memory(kBytes), *const from = device_memory(kBytes),
              *const to = device_memory(kBytes);
  cudaStream_t stream = make_stream(true);
  std::vector<cudaStream_t> waiting;
  for (int i = 0; i < kMost; ++i) waiting.push_back(make_stream());
  const bool kernel = !std::strcmp(what, "a kernel"), inside = !std::strcmp(what, "a copy inside the device");
  Flag flag;
  int held = 0;
  bool ended = true;
  while (ended && held < kMost) {
    flag.hold(waiting[static_cast<size_t>(held++)]);
    std::this_thread::sleep_for(std::chrono::microseconds(300));
    if (kernel) known<<<1, 1, 0, stream>>>();
    else must(cudaMemcpyAsync(to, inside ? from : host, kBytes, cudaMemcpyDefault, stream));
    const double begin = now_s();
    while (!(ended = cudaStreamQuery(stream) == cudaSuccess) && now_s() - begin < kLongS) {
    }
  }
  flag.let_go();
  must(cudaDeviceSynchronize());
  std::printf("| %s, CUDA_DEVICE_MAX_CONNECTIONS %s | ", what, *asked ? asked : "unset");
  std::printf(ended ? "beside %d streams that wait | |\n" : "**not beside %d streams that wait** | |\n",
              held);
}

/// Mappings of a peer's memory after its owner has freed it, and two mappings of one block of the driver.
void mappings() {
  const auto said = [](const char* what, cudaError_t error) {
    std::printf("| %s | %s | |\n", what, error == cudaSuccess ? "ok" : cudaGetErrorName(error));
  };
  const auto open = [](const Owner::Block& block, void** mapped) {
    return cudaIpcOpenMemHandle(mapped, block.handle, cudaIpcMemLazyEnablePeerAccess);
  };
  Owner owner(kLarge, 1), neighbours(kSmall, 2);
  void *old_mapping = nullptr, *mapping = nullptr, *first = nullptr, *second = nullptr;
  const Owner::Block old_block = owner.next();
  said("mapping a peer's 64 MiB", open(old_block, &old_mapping));
  owner.allocate_anew();
  const Owner::Block block = owner.next();
  std::printf("| the peer frees them and allocates as many: the same address | %s | |\n",
              block.address == old_block.address ? "yes" : "no");
  const cudaError_t opened = open(block, &mapping);
  said("mapping the new ones beside the old mapping", opened);
  (void)cudaGetLastError();
  said("closing the old mapping", cudaIpcCloseMemHandle(old_mapping));
  if (opened != cudaSuccess) said("mapping the new ones then", open(block, &mapping));
  said("closing the new mapping", cudaIpcCloseMemHandle(mapping));
  const Owner::Block one = neighbours.next(), other = neighbours.next();
  said("mapping one of a peer's two allocations of 4 KiB", open(one, &first));
  said("mapping the other one beside it", open(other, &second));
  std::printf("| both lie in one block of the driver's | %s | |\n",
              std::memcmp(&one.handle, &other.handle, sizeof one.handle) == 0 ? "one handle" : "two handles");
}

/// Runs `row` in a process of its own, since a stuck row cannot be ended otherwise.
void in_a_process(const std::string& name, const std::function<void()>& row) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(kLongestRowS);
    row();
    std::fflush(stdout);
    std::_Exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status))
    std::printf("| %s | **%s** | |\n", name.c_str(), WTERMSIG(status) == SIGALRM ? "never ended" : "crashed");
  else if (WEXITSTATUS(status) != 0) std::printf("| %s | not measured | |\n", name.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2) {
    std::fprintf(
        stderr,
        "usage: gpu_waits [NAME], where NAME is of the first column of what it prints without, or behind, "
        "spins, connections or mappings\n");
    return 1;
  }
  const std::string asked = argc > 1 ? argv[1] : "";
  unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
  setenv("CUDA_MODULE_LOADING", "LAZY", 1);
  bool found = false;
  const auto row = [&](const std::string& name, const std::function<void()>& measured) {
    if (!asked.empty() && asked != name) return;
    found = true;
    in_a_process(name, measured);
  };
  std::printf("| call | returns | another thread's copies meanwhile |\n| --- | --- | --- |\n");
  const std::vector<Call> all = calls();
  for (const Call& call : all) row(call.name, [&] { measure(call, Holder::wait); });
  const auto named = [&](const char* name) {
    return *std::find_if(all.begin(), all.end(),
                         [&](const Call& call) { return !std::strcmp(call.name, name); });
  };
  for (const char* first : {kFirstLaunch, "cudaFree of 64 MiB"})
    for (const char* call :
         {"cudaMalloc of 64 MiB", "cudaHostAlloc of 64 MiB", "cudaHostRegister of 64 MiB",
          "cudaIpcOpenMemHandle", "a kernel in a new stream", "a kernel in a stream that was used before",
          "copies in a new stream", "copies in a stream that was used before", "cudaEventCreate",
          "an event that was made before"})
      row("behind", [&, first, call] { measure_behind(named(first), named(call)); });
  for (const char* call :
       {"cudaIpcOpenMemHandle", "cudaIpcCloseMemHandle", "cudaMalloc of 64 MiB", "cudaFree of 64 MiB",
        "cudaHostAlloc of 64 MiB", "cudaHostRegister of 64 MiB", kFirstLaunch, "cuModuleLoadData",
        "a kernel in a new stream", "copies in a new stream", "an event that was made before"})
    row("spins", [&, call] { measure(named(call), Holder::kernel); });
  for (const char* asked : {"", "1", "32"})
    for (const char* what : {"a kernel", "a copy inside the device", "a copy from pinned memory"})
      row("connections", [=] { connections(asked, what); });
  row("mappings", mappings);
  if (!found) give_up("there is no row '" + asked + "'");
  return 0;
}
