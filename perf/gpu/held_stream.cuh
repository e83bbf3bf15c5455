// Parts of gpu_waits.cu: a flag that keeps a stream from going on, a thread that works beside that stream,
// and a process that owns memory.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <vector>

#include "cuda_calls.h"

constexpr size_t kSmall = 4096, kLarge = size_t{64} << 20;

inline cudaStream_t make_stream(bool urgent = false) {
  int least = 0, greatest = 0;
  must(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t stream;
  must(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, urgent ? greatest : least));
  return stream;
}

inline void* device_memory(size_t bytes) {
  void* memory = nullptr;
  must(cudaMalloc(&memory, bytes));
  return memory;
}

inline void* pinned_memory(size_t bytes) {
  void* memory = nullptr;
  must(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped | cudaHostAllocPortable));
  return memory;
}

/// How a stream is kept from going on.
enum class Holder { wait, kernel };

__global__ void spin_on(const volatile uint32_t* word) {
  while (*word == 0) __nanosleep(1000);
}

/// A flag for which streams wait.
class Flag {
 public:
  Flag() : word_(static_cast<std::atomic<uint32_t>*>(pinned_memory(64))) { word_->store(0); }
  void hold(cudaStream_t stream, Holder holder = Holder::wait) {
    if (holder == Holder::kernel) {
      spin_on<<<1, 1, 0, stream>>>(reinterpret_cast<const uint32_t*>(word_));
      must(cudaGetLastError());
      return;
    }
    static const auto wait_value = WEFT_OF_DRIVER(cuStreamWaitValue32);
    must(wait_value(stream, reinterpret_cast<CUdeviceptr>(word_), 1, CU_STREAM_WAIT_VALUE_GEQ));
  }
  void let_go() { word_->store(1); }

 private:
  std::atomic<uint32_t>* word_;
};

__global__ void known() {}

/// A thread that copies, launches and asks for the ends, as the progress thread does.
class Progress {
 public:
  Progress() : stream_(make_stream(true)), from_(pinned_memory(kSmall)), to_(device_memory(kSmall)) {
    must(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    round();
    thread_ = std::thread([this] {
      last_s_ = now_s();
      while (!over_) {
        round();
        const double now = now_s();
        longest_s_ = std::max(longest_s_.load(), now - last_s_);
        last_s_ = now;
        ++rounds_;
      }
    });
  }
  ~Progress() {
    over_ = true;
    thread_.join();
  }
  int rounds() const { return rounds_; }
  /// The time of a round; the current round counts, too.
  double longest_ms() const { return std::max(longest_s_.load(), now_s() - last_s_) * 1e3; }

 private:
  void round() {
    must(cudaMemcpyAsync(to_, from_, kSmall, cudaMemcpyHostToDevice, stream_));
    known<<<1, 1, 0, stream_>>>();
    must(cudaGetLastError());
    must(cudaEventRecord(event_, stream_));
    while (cudaEventQuery(event_) != cudaSuccess) std::this_thread::yield();
  }

  cudaStream_t stream_;
  cudaEvent_t event_;
  void *from_, *to_;
  std::atomic<bool> over_{false};
  std::atomic<int> rounds_{0};
  std::atomic<double> longest_s_{0}, last_s_{0};
  std::thread thread_;
};

/// A process that makes `count` allocations of `bytes` that another one can open, and keeps them.
class Owner {
 public:
  Owner(size_t bytes, int count) {
    int answers[2], orders[2];
    if (pipe(answers) != 0 || pipe(orders) != 0) give_up("no pipe");
    child_ = fork();
    if (child_ == 0) {
      close(answers[0]), close(orders[1]);
      for (;;) {
        std::vector<void*> blocks;
        for (int i = 0; i < count; ++i) {
          blocks.push_back(device_memory(bytes));
          cudaIpcMemHandle_t handle;
          must(cudaIpcGetMemHandle(&handle, blocks.back()));
          if (write(answers[1], &handle, sizeof handle) < 0) std::_Exit(1);
          if (write(answers[1], &blocks.back(), sizeof(void*)) < 0) std::_Exit(1);
        }
        char order = 0;
        if (read(orders[0], &order, 1) != 1 || order != 'a') std::_Exit(0);
        for (void* block : blocks) must(cudaFree(block));
      }
    }
    answers_ = answers[0], orders_ = orders[1];
    close(answers[1]), close(orders[0]);
  }
  ~Owner() {
    (void)!write(orders_, "x", 1);
    waitpid(child_, nullptr, 0);
  }
  struct Block {
    cudaIpcMemHandle_t handle;
    void* address;  // the owner's
  };
  Block next() {
    Block block;
    if (read(answers_, &block.handle, sizeof block.handle) != sizeof block.handle ||
        read(answers_, &block.address, sizeof block.address) != sizeof block.address)
      give_up("the owner of the memory has failed");
    return block;
  }
  void allocate_anew() { (void)!write(orders_, "a", 1); }

 private:
  pid_t child_;
  int answers_ = -1, orders_ = -1;
};
