// Keeps threads from the interpreter's lock when Python ends. Python then ends a thread that waits for the
// lock. Up to Python 3.13 it calls pthread_exit(), which unwinds through a destructor: std::terminate().
// Later versions let the thread hang. This is a gate in front of such waits. It is not the lock.
#ifndef WEFT_TORCH_PYTHON_ACCESS_H_
#define WEFT_TORCH_PYTHON_ACCESS_H_

namespace weft_torch {

// A thread has one while it does what may take the interpreter's lock: it releases tensors, or runs
// callbacks. It waits for nothing else meanwhile, except in callbacks.
//
// Thread safety: each is used by the thread that made it.
class PythonAccess {
 public:
  PythonAccess();
  ~PythonAccess();
  PythonAccess(const PythonAccess&) = delete;
  PythonAccess& operator=(const PythonAccess&) = delete;

  // False from end_python_access() on.
  bool allowed() const { return allowed_; }

 private:
  const bool allowed_;
};

// Allows no thread access from here on, and waits until no thread has it, for 2 s at most. The caller does
// not hold the interpreter's lock. A second call does the same. A forked child waits for its own threads
// only.
void end_python_access();

}  // namespace weft_torch

#endif  // WEFT_TORCH_PYTHON_ACCESS_H_
