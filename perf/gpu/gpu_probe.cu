// gpu_probe: collectives beside kernels, on one GPU. It is built where nvcc is and runs on any device, since
// it carries PTX. gpu_ranks.cc has the measurements without kernels.
//   census COLLECTIVE         whether it ends, on two ranks, while a kernel holds every multiprocessor
//   beside BACKEND COLLECTIVE BYTES
//                             by how many per cent a matrix product is slower while the collective runs
// COLLECTIVE: all_gather, reduce_scatter; BYTES: of its longer buffer. BACKEND: weft or nccl, under weft_run;
// threads: Weft, the two ranks being threads of this process. Prints one number, or yes or no. Failures are
// sentences, and exit code 1.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "cuda_calls.h"
#include "weft/weft.h"

namespace {

void must(weftResult_t error) {
  if (error != weftSuccess) give_up(weftGetLastError(nullptr));
}
cudaStream_t make_stream() {
  cudaStream_t stream;
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

float* device_memory(size_t bytes) {
  void* memory = nullptr;
  must(cudaMalloc(&memory, bytes));
  must(cudaMemset(memory, 0, bytes));
  return static_cast<float*>(memory);
}

weftResult_t collective(const std::string& name, const float* from, float* to, size_t count, weftComm_t comm,
                        cudaStream_t stream) {
  const auto weft_stream = reinterpret_cast<weftStream_t>(stream);
  if (name == "all_gather") return weftAllGather(from, to, count, weftFloat, comm, weft_stream);
  return weftReduceScatter(from, to, count, weftFloat, weftSum, comm, weft_stream);
}

/// The calling thread becomes rank `rank` of a communicator on GPU memory.
weftComm_t comm_of_thread(int ranks, const weftUniqueId& id, int rank) {
  must(cudaSetDevice(0));
  weftConfig_t config = WEFT_CONFIG_INITIALIZER;
  config.device = 0;
  weftComm_t comm;
  must(weftCommInitRankConfig(&comm, ranks, id, rank, &config));
  return comm;
}

constexpr int kLongestBlock = 1024;  // threads

/// The blocks that fill a multiprocessor together. They use all threads: on devices of compute capability 7 a
/// kernel without shared memory fits beside any use of shared memory. They use all shared memory, too.
struct Filling {
  int blocks, threads, shared_bytes;
};
Filling filling_of_a_multiprocessor() {
  int threads = 0, shared = 0, of_block = 0, reserved = 0;
  must(cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, 0));
  must(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerMultiprocessor, 0));
  must(cudaDeviceGetAttribute(&of_block, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  must(cudaDeviceGetAttribute(&reserved, cudaDevAttrReservedSharedMemoryPerBlock, 0));
  const int blocks = (threads + kLongestBlock - 1) / kLongestBlock;
  return {blocks, threads / blocks, std::min(of_block, shared / blocks - reserved)};
}

/// A block that holds a multiprocessor until the flag is set.
__global__ void __launch_bounds__(kLongestBlock) hold(volatile int* held, volatile int* let_go) {
  if (threadIdx.x == 0) atomicAdd(const_cast<int*>(held), 1);
  while (*let_go == 0) __nanosleep(1000);
}

void census(const std::string& name) {
  constexpr int kRanks = 2;
  constexpr size_t kCount = 1 << 20;
  int multiprocessors = 0;
  must(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  const Filling filling = filling_of_a_multiprocessor();
  const int blocks = multiprocessors * filling.blocks;
  int* words = nullptr;
  must(cudaHostAlloc(&words, 2 * sizeof(int), cudaHostAllocMapped));
  volatile int *held = words, *let_go = words + 1;
  *held = *let_go = 0;

  weftUniqueId id;
  must(weftGetUniqueId(&id));
  std::vector<std::thread> ranks;
  std::atomic<int> ready{0}, ended{0};
  std::atomic<bool> go{false};
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.emplace_back([&, rank] {
      weftComm_t comm = comm_of_thread(kRanks, id, rank);
      cudaStream_t stream = make_stream();
      float *from = device_memory(kRanks * kCount * sizeof(float)),
            *to = device_memory(kRanks * kCount * sizeof(float));
      must(collective(name, from, to, kCount, comm, stream));  // the first call allocates
      must(cudaStreamSynchronize(stream));
      ++ready;
      while (!go) std::this_thread::yield();
      must(collective(name, from, to, kCount, comm, stream));
      must(cudaStreamSynchronize(stream));
      ++ended;
      must(weftCommDestroy(comm));
    });
  while (ready < kRanks) std::this_thread::yield();
  cudaStream_t stream = make_stream();
  must(cudaFuncSetAttribute(hold, cudaFuncAttributeMaxDynamicSharedMemorySize, filling.shared_bytes));
  hold<<<blocks, filling.threads, static_cast<size_t>(filling.shared_bytes), stream>>>(held, let_go);
  must(cudaGetLastError());
  const double begin = now_s();
  while (*held < blocks)
    if (now_s() - begin > 10) give_up("the kernel does not get every multiprocessor: is the GPU in use?");
  go = true;
  while (ended < kRanks && now_s() - begin < 15) std::this_thread::yield();
  const bool without = ended == kRanks;
  *let_go = 1;
  for (auto& rank : ranks) rank.join();
  std::printf("%s\n", without ? "yes" : "no");
}

constexpr int kEdge = 4096, kTile = 32;

/// c = a × b, kEdge × kEdge each: a tile a block, an element a thread.
__global__ void multiply(const float* a, const float* b, float* c) {
  __shared__ float part_a[kTile][kTile], part_b[kTile][kTile];
  const int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (int tile = 0; tile < kEdge; tile += kTile) {
    part_a[threadIdx.y][threadIdx.x] = a[row * kEdge + tile + threadIdx.x];
    part_b[threadIdx.y][threadIdx.x] = b[(tile + threadIdx.y) * kEdge + column];
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += part_a[threadIdx.y][i] * part_b[i][threadIdx.x];
    __syncthreads();
  }
  c[row * kEdge + column] = sum;
}

/// Matrix products per second. `more`, called after every fourth, keeps the other work going.
template <typename More>
double products_per_s(cudaStream_t stream, const float* a, const float* b, float* c, More more) {
  const dim3 grid(kEdge / kTile, kEdge / kTile), block(kTile, kTile);
  const auto four = [&] {
    for (int i = 0; i < 4; ++i) multiply<<<grid, block, 0, stream>>>(a, b, c);
    must(cudaGetLastError());
  };
  four();
  must(cudaStreamSynchronize(stream));
  int products = 0;
  const double begin = now_s();
  while (now_s() - begin < 3) {
    four();
    more();
    must(cudaStreamSynchronize(stream));
    products += 4;
  }
  return products / (now_s() - begin);
}

/// A communicator on GPU memory over the ranks of `world`, Weft's or NCCL's.
weftComm_t comm_of(const std::string& backend, weftComm_t world, int rank) {
  must(cudaSetDevice(0));
  weftConfig_t config = WEFT_CONFIG_INITIALIZER;
  if (backend == "nccl") config.backend = WEFT_BACKEND_NCCL;  // it takes the thread's device
  else config.device = 0;
  weftComm_t comm;
  must(weftCommSplit(world, 0, rank, &comm, &config));
  return comm;
}

// The ranks agree over a communicator of Weft on host memory, since NCCL takes no host variable.
void beside(const std::string& backend, const std::string& name, size_t bytes) {
  setenv("WEFT_BACKEND", "weft", 1);
  weftComm_t world;
  must(weftCommInitEnv(&world));
  int rank = 0, ranks = 0;
  must(weftCommUserRank(world, &rank));
  must(weftCommCount(world, &ranks));
  weftComm_t comm = comm_of(backend, world, rank);
  const size_t count = bytes / sizeof(float) / static_cast<size_t>(ranks);
  float *from = device_memory(bytes), *to = device_memory(bytes);
  cudaStream_t other = make_stream();
  // Every rank makes the same number of calls, so rounds are counted and not timed.
  const auto call = [&] { must(collective(name, from, to, count, comm, other)); };
  int32_t going = 1, all_going = 1;
  const auto agree = [&] {  // rank 0 decides when it is over
    must(weftBroadcast(&going, &all_going, 1, weftInt32, 0, world, nullptr));
    return all_going != 0;
  };
  if (rank != 0) {
    while (agree()) {
      call();
      must(cudaStreamSynchronize(other));
    }
  } else {
    const size_t matrix = size_t{kEdge} * kEdge * sizeof(float);
    float *a = device_memory(matrix), *b = device_memory(matrix), *c = device_memory(matrix);
    cudaStream_t stream = make_stream();
    const double alone = products_per_s(stream, a, b, c, [] {});
    const double together = products_per_s(stream, a, b, c, [&] {
      if (cudaStreamQuery(other) != cudaSuccess) return;  // one is under way
      (void)agree();
      call();
    });
    must(cudaStreamSynchronize(other));
    going = 0;
    (void)agree();
    std::printf("%.1f\n", 100 * (1 - together / alone));  // per cent
  }
  must(weftCommDestroy(comm));
  must(weftCommDestroy(world));
}

/// The same between two threads of this process. Unlike processes they do not take turns on the GPU.
void beside_threads(const std::string& name, size_t bytes) {
  constexpr int kRanks = 2;
  const size_t count = bytes / sizeof(float) / kRanks;
  weftUniqueId id;
  must(weftGetUniqueId(&id));
  std::atomic<int> called{0}, ended{0};
  std::atomic<bool> over{false};
  std::thread peer([&] {
    weftComm_t comm = comm_of_thread(kRanks, id, 1);
    cudaStream_t stream = make_stream();
    float *from = device_memory(bytes), *to = device_memory(bytes);
    for (int done = 0; !over || done < called;) {
      if (done == called) {
        std::this_thread::yield();
        continue;
      }
      ++done;
      must(collective(name, from, to, count, comm, stream));
      must(cudaStreamSynchronize(stream));
    }
    ++ended;
    while (ended < kRanks) std::this_thread::yield();
    must(weftCommDestroy(comm));
  });
  weftComm_t comm = comm_of_thread(kRanks, id, 0);
  cudaStream_t stream = make_stream(), other = make_stream();
  float *from = device_memory(bytes), *to = device_memory(bytes);
  const size_t matrix = size_t{kEdge} * kEdge * sizeof(float);
  float *a = device_memory(matrix), *b = device_memory(matrix), *c = device_memory(matrix);
  const auto call = [&] {
    ++called;
    must(collective(name, from, to, count, comm, other));
  };
  for (int i = 0; i < 10; ++i) call();  // later ones return while the stream waits
  must(cudaStreamSynchronize(other));
  const double alone = products_per_s(stream, a, b, c, [] {});
  const double together = products_per_s(stream, a, b, c, [&] {
    if (cudaStreamQuery(other) == cudaSuccess) call();
  });
  must(cudaStreamSynchronize(other));
  over = true;
  ++ended;
  peer.join();
  must(weftCommDestroy(comm));
  std::printf("%.1f\n", 100 * (1 - together / alone));  // per cent
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto is = [&](const char* what, size_t arguments) {
    return words.size() == 1 + arguments && words[0] == what;
  };
  const auto is_collective = [](const std::string& name) {
    return name == "all_gather" || name == "reduce_scatter";
  };
  const auto is_backend = [](const std::string& name) { return name == "weft" || name == "nccl"; };
  const auto bytes = [](const std::string& word) { return std::strtoull(word.c_str(), nullptr, 10); };
  const bool is_beside =
      is("beside", 3) && is_collective(words[2]) && bytes(words[3]) >= 8 && bytes(words[3]) < size_t{1} << 40;
  if (is("census", 1) && is_collective(words[1])) census(words[1]);
  else if (is_beside && is_backend(words[1])) beside(words[1], words[2], bytes(words[3]));
  else if (is_beside && words[1] == "threads") beside_threads(words[2], bytes(words[3]));
  else
    give_up(
        "usage: gpu_probe census COLLECTIVE | beside BACKEND COLLECTIVE BYTES, where BACKEND is weft or "
        "nccl, "
        "under weft_run, or threads, and COLLECTIVE is all_gather or reduce_scatter");
  return 0;
}
