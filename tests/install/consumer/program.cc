// The same in C++, with a stream and memory that peers reach without a copy.
#include <weft/weft.h>

#include <cstdio>
#include <stdexcept>

static void must(weftResult_t result) {
  if (result != weftSuccess) throw std::runtime_error(weftGetLastError(nullptr));
}

int main() {
  try {
    weftComm_t comm;
    weftStream_t stream;
    int rank, ranks;
    must(weftCommInitEnv(&comm));
    must(weftCommUserRank(comm, &rank));
    must(weftCommCount(comm, &ranks));
    must(weftStreamCreate(&stream));

    void* memory;
    must(weftMemAlloc(&memory, sizeof(int) * static_cast<size_t>(ranks)));
    int* const all = static_cast<int*>(memory);
    all[rank] = rank * rank;
    must(weftAllGather(all + rank, all, 1, weftInt32, comm, stream));
    must(weftStreamSynchronize(stream));
    for (int r = 0; r < ranks; ++r) {
      if (all[r] != r * r) throw std::runtime_error("wrong data");
    }
    std::printf("rank %d of %d: all squares are right\n", rank, ranks);

    must(weftMemFree(memory));
    must(weftStreamDestroy(stream));
    must(weftCommDestroy(comm));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
