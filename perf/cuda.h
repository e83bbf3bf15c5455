// GPU memory for the perf tools: the few functions of CUDA's driver that they need, loaded at run time, as
// any program without CUDA's toolkit could. What fails ends the process, with a sentence.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <string>

namespace weft::perf {

class Cuda {
 public:
  /// Loads the driver: WEFT_CUDA_LIBRARY, or libcuda.so.1. `who` begins what is said when something fails.
  explicit Cuda(std::string who);
  int devices() const { return devices_; }
  /// Makes a device current, for everything below.
  void use(int device);
  void* stream() const { return stream_; }
  void synchronize() const;
  std::byte* allocate(size_t bytes) const;
  void free(std::byte* memory) const;
  /// Between any two of device and host memory; returns when it is done.
  void copy(void* to, const void* from, size_t bytes) const;

  /// What is queued on the stream from begin_capture() on becomes a graph, which end_capture() returns.
  void begin_capture();
  void* end_capture();
  void launch(void* graph) const;
  void destroy(void* graph) const;

 private:
  void must(int error, const char* call) const;
  template <typename Function>
  void bind(Function& function, const char* symbol);

  const std::string who_;
  void* library_ = nullptr;
  int devices_ = 0;
  void* stream_ = nullptr;
  int (*count_)(int*) = nullptr;
  int (*retain_)(void**, int) = nullptr;
  int (*push_)(void*) = nullptr;
  int (*alloc_)(unsigned long long*, size_t) = nullptr;
  int (*free_)(unsigned long long) = nullptr;
  int (*copy_)(unsigned long long, unsigned long long, size_t, void*) = nullptr;
  int (*create_)(void**, unsigned) = nullptr;
  int (*synchronize_)(void*) = nullptr;
  // Of graphs, bound by the first capture: an old driver may lack them.
  int (*begin_capture_)(void*, int) = nullptr;
  int (*end_capture_)(void*, void**) = nullptr;
  int (*instantiate_)(void**, void*, unsigned long long) = nullptr;
  int (*launch_)(void*, void*) = nullptr;
  int (*destroy_graph_)(void*) = nullptr;
  int (*destroy_executable_)(void*) = nullptr;
};

/// What was captured on the stream between the constructor and end(), for as long as it lives.
class Graph {
 public:
  explicit Graph(Cuda& cuda) : cuda_(cuda) { cuda_.begin_capture(); }
  ~Graph() { cuda_.destroy(executable_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void end() { executable_ = cuda_.end_capture(); }
  void launch() const { cuda_.launch(executable_); }

 private:
  Cuda& cuda_;
  void* executable_ = nullptr;
};

}  // namespace weft::perf
