// Computes while a collective is in flight. A call on a stream returns at once; the stream is synchronized
// when the result is needed. Communicator and stream are C handles, which unique_ptr destroys.
//
//   c++ -std=c++17 02_overlap.cc $(pkg-config --cflags --libs weft) -o overlap
//   weft_run -n 2 ./overlap
#include <weft/weft.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <vector>

namespace {

void check(weftResult_t result) {
  if (result != weftSuccess) throw std::runtime_error(weftGetLastError(nullptr));
}

struct Destroy {
  void operator()(weftComm_t comm) const { weftCommDestroy(comm); }
  void operator()(weftStream_t stream) const { weftStreamDestroy(stream); }
};
using Comm = std::unique_ptr<std::remove_pointer_t<weftComm_t>, Destroy>;
using Stream = std::unique_ptr<std::remove_pointer_t<weftStream_t>, Destroy>;

Comm join() {
  weftComm_t comm = nullptr;
  check(weftCommInitEnv(&comm));
  return Comm(comm);
}

Stream make_stream() {
  weftStream_t stream = nullptr;
  check(weftStreamCreate(&stream));
  return Stream(stream);
}

void run() {
  const Comm comm = join();
  const Stream stream = make_stream();
  int rank = 0, ranks = 0;
  check(weftCommUserRank(comm.get(), &rank));
  check(weftCommCount(comm.get(), &ranks));

  const std::size_t count = 1 << 20;  // floats of every rank
  const std::vector<float> mine(count, static_cast<float>(rank));
  std::vector<float> all(count * static_cast<std::size_t>(ranks));
  check(weftAllGather(mine.data(), all.data(), count, weftFloat, comm.get(), stream.get()));

  double sum = 0;  // meanwhile; `all` belongs to Weft until the stream is synchronized
  for (int i = 1; i <= 1000000; ++i) sum += 1.0 / i;

  check(weftStreamSynchronize(stream.get()));
  bool right = true;
  for (int peer = 0; peer < ranks; ++peer)
    right = right && all[static_cast<std::size_t>(peer) * count] == static_cast<float>(peer);
  std::printf("rank %d: computed %.6f, gathered %s\n", rank, sum, right ? "right" : "wrong");
}

}  // namespace

int main() {
  try {
    run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
