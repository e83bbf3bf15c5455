// Gloo over TCP, measured as the perf tools measure Weft (see sweep.h). Every algorithm that Gloo has for a
// collective gets rows of its own; perf/compare.py takes the best.
//
// Rank and ranks come from WEFT_RANK and WEFT_WORLD_SIZE, so that weft_run and scripts/cluster.sh can start
// it. GLOO_STORE is an empty folder that all ranks see, GLOO_INTERFACE the network interface (loopback
// without it). With GLOO_THREADS=N and the collective "none", N ranks are threads of this one process.
#include <gloo/allgather.h>
#include <gloo/allgather_ring.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/hash_store.h>
#include <gloo/transport/tcp/device.h>

#include <exception>
#include <memory>
#include <thread>

#include "sweep.h"

namespace {

using Context = std::shared_ptr<gloo::Context>;
using Reducer = void (*)(void*, const void*, const void*, size_t);

std::string setting(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

std::shared_ptr<gloo::transport::Device> make_device() {
  gloo::transport::tcp::attr attributes;
  attributes.iface = setting("GLOO_INTERFACE", "");
  if (attributes.iface.empty()) attributes.hostname = "127.0.0.1";
  return gloo::transport::tcp::CreateDevice(attributes);
}

template <typename T>
void all_reduce(const Context& context, T* in, T* out, size_t count,
                gloo::AllreduceOptions::Algorithm algorithm) {
  gloo::AllreduceOptions options(context);
  options.setAlgorithm(algorithm);
  options.setInput(in, count);
  options.setOutput(out, count);
  options.setReduceFunction(static_cast<Reducer>(&gloo::sum<T>));
  gloo::allreduce(options);
}

/// One of the older algorithms, which are objects, as a way.
template <typename Algorithm, typename... Arguments>
peers::Way prepared(const char* name, bool in_place, Arguments&&... arguments) {
  auto algorithm = std::make_shared<Algorithm>(std::forward<Arguments>(arguments)...);
  return {name, [algorithm] { algorithm->run(); }, in_place};
}

std::vector<peers::Way> all_reduce_ways(const Context& context, const peers::Buffers& b) {
  using Algorithm = gloo::AllreduceOptions::Algorithm;
  std::vector<peers::Way> ways;
  ways.push_back({"ring", [=] { all_reduce(context, b.send, b.recv, b.count, Algorithm::RING); }});
  ways.push_back({"bcube", [=] { all_reduce(context, b.send, b.recv, b.count, Algorithm::BCUBE); }});
  const int count = static_cast<int>(b.count);
  const std::vector<float*> pointers = {b.recv};
  if (count >= 2 * context->size)  // it cuts the data into two chunks a rank
    ways.push_back(
        prepared<gloo::AllreduceRingChunked<float>>("ring_chunked", true, context, pointers, count));
  ways.push_back(
      prepared<gloo::AllreduceHalvingDoubling<float>>("halving_doubling", true, context, pointers, count));
  return ways;
}

std::vector<peers::Way> ways_of(const Context& context, const std::string& collective,
                                const peers::Buffers& b) {
  const size_t all = b.count * static_cast<size_t>(context->size);
  if (collective == "all_reduce") return all_reduce_ways(context, b);
  if (collective == "all_gather") {
    const auto run = [=] {
      gloo::AllgatherOptions options(context);
      options.setInput(b.send, b.count);
      options.setOutput(b.recv, all);
      gloo::allgather(options);
    };
    const std::vector<const float*> inputs = {b.send};
    return {{"allgather", run},
            prepared<gloo::AllgatherRing<float>>("allgather_ring", false, context, inputs, b.recv,
                                                 static_cast<int>(b.count))};
  }
  if (collective == "reduce_scatter") {
    return {prepared<gloo::ReduceScatterHalvingDoubling<float>>(
        "halving_doubling", true, context, std::vector<float*>{b.recv}, static_cast<int>(all),
        std::vector<int>(static_cast<size_t>(context->size), static_cast<int>(b.count)))};
  }
  if (collective == "alltoall") {
    return {{"alltoall", [=] {
               gloo::AlltoallOptions options(context);
               options.setInput(b.send, all);
               options.setOutput(b.recv, all);
               gloo::alltoall(options);
             }}};
  }
  if (collective == "broadcast") {
    return {{"broadcast",
             [=] {
               gloo::BroadcastOptions options(context);
               options.setOutput(b.recv, b.count);
               options.setRoot(0);
               gloo::broadcast(options);
             },
             true}};
  }
  throw std::runtime_error("no collective is called " + collective);
}

/// The mean time that `ranks` threads of this process take to connect to each other.
int start_up_of_threads(int ranks) {
  gloo::rendezvous::HashStore store;
  std::vector<double> times(static_cast<size_t>(ranks));
  std::vector<Context> contexts(times.size());
  std::vector<std::string> errors(times.size());
  const auto device = make_device();  // one for all of them, as a process would have
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto at = static_cast<size_t>(rank);
      const double begin = peers::now_us();
      try {
        auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
        auto its_device = device;
        context->connectFullMesh(store, its_device);
        contexts[at] = context;
      } catch (const std::exception& error) {
        errors[at] = error.what();
      }
      times[at] = peers::now_us() - begin;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) {
    if (error.empty()) continue;
    std::fprintf(stderr, "%s\n", error.c_str());
    return 3;
  }
  double sum = 0;
  for (const double time : times) sum += time;
  std::printf("{\"startup_us\": %.1f, \"ranks\": %d}\n", sum / ranks, ranks);
  return 0;
}

int run(const peers::Arguments& arguments) {
  if (const int threads = std::atoi(setting("GLOO_THREADS", "0").c_str()))
    return start_up_of_threads(threads);
  peers::Peer self;
  self.rank = std::atoi(setting("WEFT_RANK", "0").c_str());
  self.ranks = std::atoi(setting("WEFT_WORLD_SIZE", "1").c_str());

  const double begin = peers::now_us();
  auto device = make_device();
  gloo::rendezvous::FileStore store(setting("GLOO_STORE", "."));
  auto context = std::make_shared<gloo::rendezvous::Context>(self.rank, self.ranks);
  context->connectFullMesh(store, device);
  const double startup_us = peers::now_us() - begin;

  self.barrier = [context] {
    gloo::BarrierOptions options(context);
    gloo::barrier(options);
  };
  self.sum = [context](double mine) {
    double sum = 0;
    all_reduce(context, &mine, &sum, 1, gloo::AllreduceOptions::Algorithm::RING);
    return sum;
  };
  peers::Sweep sweep(self, arguments, startup_us);
  const long wrong = sweep.run([&](const std::string& collective, const peers::Buffers& b) {
    return ways_of(context, collective, b);
  });
  self.barrier();
  return wrong != 0;
}

}  // namespace

int main(int argc, char** argv) {
  peers::Arguments arguments;
  if (!peers::parse(argc, argv, arguments)) return 2;
  try {
    return run(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}
