// Google Benchmark program of what stands between a call and its data: the interpreter's cost per step, a
// whole call, the queues that operations pass, the message slots, making and preparing plans. One process;
// the slots' benchmark with "/2" uses two threads.
//
//   engine_bench --benchmark_filter='interpreter/.*' --benchmark_repetitions=5
//   --benchmark_report_aggregates_only
//
// `per_item` is the time of one step, message or plan.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "engine/context/context.h"
#include "engine/run/communicator.h"
#include "engine/run/interpreter.h"
#include "engine/run/stream.h"
#include "job/founding.h"
#include "plan/plan.h"
#include "transport/shm_fifo.h"

namespace weft::engine {
namespace {

using plan::Builder;
using plan::Collective;
using plan::Plan;
using plan::Region;
using plan::Request;
using plan::Space;

constexpr int kSteps = 1000;
constexpr uint64_t kStepBytes = 8;

template <typename T>
T must(Result<T> result) {
  if (result.ok()) return result.take();
  fmt::print(stderr, "{}\n", result.status().message());
  std::_Exit(1);
}
void must(const Status& status) { (void)must(status.ok() ? Result<int>(0) : Result<int>(status)); }

void count_items(benchmark::State& state, int64_t each) {
  state.SetItemsProcessed(state.iterations() * each);
  state.counters["per_item"] = benchmark::Counter(static_cast<double>(state.iterations() * each),
                                                  benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

/// A communicator of this process alone: one rank, no peers.
Communicator& alone() {
  static const std::shared_ptr<Communicator> comm =
      must(job::create(must(bootstrap::create_unique_id("127.0.0.1")), 0, 1, {}));
  return *comm;
}

// --- The interpreter: plans of one rank of two, whose peer is never asked for anything. ---

enum class Mix { copies, reduces, waits, chained, lanes };

Plan plan_of(Mix mix) {
  const Request request{.collective = Collective::all_reduce, .count = 2 * kSteps * kStepBytes / 4};
  Builder builder("bench", request, 2, 0);
  int lane = builder.new_lane();
  plan::StepId last = plan::kNoStep;
  for (int i = 0; i < kSteps; ++i) {
    const uint64_t at = static_cast<uint64_t>(i) * kStepBytes;
    const plan::Source sources[] = {{builder.input(at)}, {builder.output(at)}};
    if (mix == Mix::waits) {
      builder.wait(lane, 1, static_cast<uint32_t>(i));
    } else if (mix == Mix::reduces) {
      builder.reduce(lane, sources, builder.output(at), kStepBytes);
    } else if (mix == Mix::chained && last != plan::kNoStep) {
      last = builder.copy(lane, builder.input(at), builder.output(at), kStepBytes, {&last, 1});
    } else {
      last = builder.copy(lane, builder.input(at), builder.output(at), kStepBytes);
    }
    if (mix == Mix::lanes) lane = builder.new_lane();
  }
  return builder.finish();
}

void interpreter(benchmark::State& state, Mix mix) {
  Communicator& comm = alone();
  const topology::Layout layout(std::vector<int>{0, 0});
  std::vector<std::byte> input(2 * kSteps * kStepBytes), output(input.size());
  Operation op;
  op.comm = &comm;
  op.context = &comm.context();
  op.tables = PlanTables::make(plan_of(mix), layout);
  op.reduction = {.type = device::DataType::float32, .op = device::ReduceOp::sum};
  op.memory.base[static_cast<int>(Space::input)] = input.data();
  op.memory.base[static_cast<int>(Space::output)] = output.data();
  for (auto _ : state) {
    op.progress.reset_arrivals(*op.tables);
    op.progress.reset_steps(*op.tables, 0);
    std::fill(op.progress.arrived.begin(), op.progress.arrived.end(), uint8_t{1});
    for (bool moved = true; moved && !complete(op);) moved = must(advance(comm.environment(), op));
  }
  if (!complete(op)) state.SkipWithError("the plan did not come to its end");
  count_items(state, kSteps);
}

// --- A call: checks, the lock, the plan's lookup, the recorder; 8 bytes copied. ---

void blocking_call(benchmark::State& state) {
  Communicator& comm = alone();
  float in = 1, out = 0;
  Call call;
  call.send = &in;
  call.recv = &out;
  call.count = 1;
  for (auto _ : state) must(comm.run(call));
  count_items(state, 1);
}

void stream_call(benchmark::State& state) {
  Communicator& comm = alone();
  const auto stream = std::make_unique<Stream>();
  float in = 1, out = 0;
  Call call;
  call.send = &in;
  call.recv = &out;
  call.count = 1;
  call.stream = stream.get();
  for (auto _ : state) {
    must(comm.run(call));
    must(stream->synchronize());
  }
  count_items(state, 1);
}

void record(benchmark::State& state) {
  Recorder recorder(1024);
  for (auto _ : state) {
    Record& record = recorder.next();
    record = Record();
    record.number = 1;
    record.count = static_cast<uint64_t>(state.iterations());
    benchmark::DoNotOptimize(record);
  }
  count_items(state, 1);
}

// --- Queues: an operation from the pool, on its way into the context, and in a stream. ---

void pool(benchmark::State& state) {
  Context& context = alone().context();
  const Lock lock = context.lock();
  for (auto _ : state) {
    Operation* op = context.operations().acquire();
    benchmark::DoNotOptimize(op);
    context.operations().release(op);
  }
  count_items(state, 1);
}

/// An operation that has ended, as one that was cancelled while it was queued: nothing is left to be done
/// with it but to queue it.
Operation* ended_operation(Context& context, Stream& stream) {
  Operation* op = context.operations().acquire();
  op->call.stream = &stream;
  op->end.finished.store(true);
  return op;
}

/// `batch` operations handed over, and the turn that takes them in.
void submissions(benchmark::State& state, int batch) {
  Context& context = alone().context();
  const Lock lock = context.lock();
  const auto stream = std::make_unique<Stream>();
  Operation* op = ended_operation(context, *stream);
  for (auto _ : state) {
    for (int i = 0; i < batch; ++i) context.submit(op);
    context.turn();
  }
  context.operations().release(op);
  count_items(state, batch);
}

/// Behind `ahead` others that have not ended: into a stream's queue and out of it.
void stream_queue(benchmark::State& state, int ahead) {
  Context& context = alone().context();
  const Lock lock = context.lock();
  const auto stream = std::make_unique<Stream>();
  Operation* op = ended_operation(context, *stream);
  std::vector<Operation*> others;
  for (int i = 0; i < ahead; ++i) {
    others.push_back(ended_operation(context, *stream));
    stream->push(others.back(), Stream::new_batch());
  }
  for (auto _ : state) {
    stream->push(op, Stream::new_batch());
    stream->on_finished(*op);
    context.operations().release(op);  // the stream's reference
  }
  for (Operation* other : others) {
    stream->on_finished(*other);
    context.turn();  // takes in the next one, which that has submitted
    context.operations().release(other), context.operations().release(other);
  }
  context.operations().release(op);
  count_items(state, 1);
}

// --- Message slots. ---

/// Private memory that plays the shared one.
struct Fifo {
  static constexpr uint64_t kRingBytes = 64 << 10;
  std::vector<transport::shm::Slot> slots{transport::shm::kSlots};
  std::vector<std::byte> ring{kRingBytes};
  transport::shm::Consumed consumed;
  transport::shm::FifoMemory memory() {
    return {.slots = slots.data(), .ring = ring.data(), .consumed = &consumed, .ring_bytes = kRingBytes};
  }
};

/// One message after another, sent and received by one thread: what the code costs without the cache lines'
/// way.
void slots_one_thread(benchmark::State& state, size_t bytes) {
  Fifo fifo;
  transport::shm::FifoSender sender(fifo.memory());
  transport::shm::FifoReceiver receiver(fifo.memory());
  const std::vector<std::byte> payload(bytes);
  transport::Envelope envelope;
  envelope.bytes = static_cast<uint32_t>(bytes);
  int64_t received = 0;
  for (auto _ : state) {
    if (!sender.send(envelope, payload.data())) state.SkipWithError("no room");
    received += receiver.receive([](const auto&, auto, const std::byte* at) { benchmark::DoNotOptimize(at); })
                    .messages;
  }
  if (received != state.iterations()) state.SkipWithError("messages are missing");
  count_items(state, 1);
}

/// Back and forth between two threads; an item is one way.
void slots_two_threads(benchmark::State& state, size_t bytes) {
  Fifo there, back;
  const std::vector<std::byte> payload(bytes);
  transport::Envelope envelope;
  envelope.bytes = static_cast<uint32_t>(bytes);
  std::atomic<bool> stop{false};
  const auto receive_one = [&](transport::shm::FifoReceiver& receiver) {
    const auto look = [](const auto&, auto, const std::byte* at) { benchmark::DoNotOptimize(at); };
    while (receiver.receive(look).messages == 0) {
      if (stop.load(std::memory_order_relaxed)) return false;
    }
    return true;
  };
  std::thread echo([&] {
    transport::shm::FifoReceiver receiver(there.memory());
    transport::shm::FifoSender sender(back.memory());
    while (receive_one(receiver)) sender.send(envelope, payload.data());
  });
  transport::shm::FifoSender sender(there.memory());
  transport::shm::FifoReceiver receiver(back.memory());
  for (auto _ : state) {
    sender.send(envelope, payload.data());
    receive_one(receiver);
  }
  stop = true;
  echo.join();
  count_items(state, 2);
}

// --- Plans: what the first call of a size costs. ---

void make_plan(benchmark::State& state, const plan::Algorithm& algorithm, int ranks, bool prepare) {
  const topology::Layout layout(std::vector<int>(static_cast<size_t>(ranks), 0));
  const Request request{.collective = algorithm.collective, .count = 1 << 20};
  for (auto _ : state) {
    Plan plan = algorithm.make(request, layout, {}, 0);
    if (prepare) {
      benchmark::DoNotOptimize(PlanTables::make(std::move(plan), layout));
    } else {
      benchmark::DoNotOptimize(plan);
    }
  }
  count_items(state, 1);
}

void add_all() {
  const auto add = [](const std::string& name, auto body) {
    return benchmark::RegisterBenchmark(name.c_str(), body);
  };
  const std::pair<const char*, Mix> mixes[] = {{"copies", Mix::copies},
                                               {"reduces", Mix::reduces},
                                               {"waits", Mix::waits},
                                               {"chained_copies", Mix::chained},
                                               {"lanes_of_one_copy", Mix::lanes}};
  for (const auto& [name, mix] : mixes)
    add(fmt::format("interpreter/{}", name), [mix = mix](benchmark::State& s) { interpreter(s, mix); });
  add("call/blocking", blocking_call);
  add("call/stream", stream_call)->UseRealTime();
  add("recorder", record);
  add("queues/pool", pool);
  for (const int batch : {1, 64})
    add(fmt::format("queues/submissions/{}", batch), [=](benchmark::State& s) { submissions(s, batch); });
  for (const int ahead : {1, 16})
    add(fmt::format("queues/stream/{}", ahead), [=](benchmark::State& s) { stream_queue(s, ahead); });
  for (const size_t bytes : {0, 8, 32, 128, 512, 4096, 16384}) {
    add(fmt::format("slots/{}", bytes), [=](benchmark::State& s) { slots_one_thread(s, bytes); });
    add(fmt::format("slots/{}/2", bytes), [=](benchmark::State& s) {
      slots_two_threads(s, bytes);
    })->UseRealTime();
  }
  for (const plan::Algorithm& algorithm : plan::algorithms()) {
    if (algorithm.collective != Collective::all_reduce) continue;
    for (const int ranks : {8, 64}) {
      const topology::Layout layout(std::vector<int>(static_cast<size_t>(ranks), 0));
      const Request request{.collective = algorithm.collective, .count = 1 << 20};
      if (!algorithm.fits(request, layout, {}).ok()) continue;
      for (const bool prepare : {false, true}) {
        add(fmt::format("{}/{}/{}", prepare ? "plan+prepare" : "plan", algorithm.name, ranks),
            [&algorithm, ranks, prepare](benchmark::State& s) { make_plan(s, algorithm, ranks, prepare); });
      }
    }
  }
}

}  // namespace
}  // namespace weft::engine

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  weft::engine::add_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
