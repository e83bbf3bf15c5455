#include "python_access.h"

#include <Python.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace weft_torch {

namespace {

std::atomic<int> g_with_access{0};
std::atomic<bool> g_ending{false};

// The parent's threads are not in the child.
const int g_forgets_threads = pthread_atfork(nullptr, nullptr, [] { g_with_access = 0; });

// For programs that leave out handlers of atexit. A thread may still begin to wait just before this is true.
bool interpreter_ends() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

// Both are sequentially consistent: either end_python_access() sees the thread, or the thread sees the end.
bool enter() {
  ++g_with_access;
  return !g_ending && !interpreter_ends();
}

}  // namespace

PythonAccess::PythonAccess() : allowed_(enter()) {}

PythonAccess::~PythonAccess() { --g_with_access; }

void end_python_access() {
  g_ending = true;
  // A callback may never return.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (g_with_access > 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace weft_torch
