#include "cuda_kernels/emulator/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// An own switch of stacks, since swapcontext() makes a system call each time.
#if defined(__x86_64__)
extern "C" void loom_switch_stacks(void** save, void* load);
__asm__(
    ".text\n"
    ".type loom_switch_stacks, @function\n"
    "loom_switch_stacks:\n"
    "  push %rbp\n  push %rbx\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
    "  mov %rsp, (%rdi)\n"
    "  mov %rsi, %rsp\n"
    "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbx\n  pop %rbp\n"
    "  ret\n"
    ".size loom_switch_stacks, . - loom_switch_stacks\n");
#endif

namespace loom::cuda::emulated {
namespace {

constexpr size_t kGuardBytes = 64 << 10;  // a page, wherever pages are larger
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kStackBytes = 512 << 10;  // every variable has its red zones
#else
constexpr size_t kStackBytes = 128 << 10;
#endif

thread_local Fiber* running = nullptr;
thread_local void* resumer = nullptr;  // its stack
#if defined(__SANITIZE_ADDRESS__)
thread_local void* resumer_sanitizer = nullptr;
thread_local const void* resumer_bottom = nullptr;
thread_local size_t resumer_bytes = 0;
#endif

#if defined(__x86_64__)
void switch_stacks(void** save, void* load) { loom_switch_stacks(save, load); }
#else
void switch_stacks(void** save, void* load) {
  ucontext_t here;
  *save = &here;
  ::swapcontext(&here, static_cast<ucontext_t*>(load));
}
#endif

}  // namespace

Fiber::Fiber(void (*function)()) : function_(function) {
  void* const memory = ::mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || ::mprotect(memory, kGuardBytes, PROT_NONE) != 0) {
    std::perror("the stack of an emulated thread");
    std::abort();
  }
  memory_ = static_cast<std::byte*>(memory);
#if defined(__x86_64__)
  void** top = reinterpret_cast<void**>(memory_ + kGuardBytes + kStackBytes);
  *--top = nullptr;  // the stack is aligned as after a call
  *--top = reinterpret_cast<void*>(&Fiber::begin);
  for (int i = 0; i < 6; ++i) *--top = nullptr;  // the registers that are popped
  stack_ = top;
#else
  auto* const context = new ucontext_t;  // NOLINT: as long as the program
  ::getcontext(context);
  context->uc_stack.ss_sp = memory_ + kGuardBytes;
  context->uc_stack.ss_size = kStackBytes;
  context->uc_link = nullptr;
  ::makecontext(context, &Fiber::begin, 0);
  stack_ = context;
#endif
}

Fiber::~Fiber() {
#if defined(__SANITIZE_ADDRESS__)
  // The sanitizer does not see munmap(): marks of dead variables would stay for the next mapping at this
  // address.
  __asan_unpoison_memory_region(memory_, kGuardBytes + kStackBytes);
#endif
  ::munmap(memory_, kGuardBytes + kStackBytes);
}

void Fiber::begin() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &resumer_bottom, &resumer_bytes);
#endif
  running->function_();
  std::abort();
}

void Fiber::resume() {
  running = this;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&resumer_sanitizer, memory_ + kGuardBytes, kStackBytes);
#endif
  switch_stacks(&resumer, stack_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(resumer_sanitizer, nullptr, nullptr);
#endif
  running = nullptr;
}

void Fiber::yield() {
  Fiber& self = *running;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&self.sanitizer_, resumer_bottom, resumer_bytes);
#endif
  switch_stacks(&self.stack_, resumer);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(self.sanitizer_, &resumer_bottom, &resumer_bytes);
#endif
}

}  // namespace loom::cuda::emulated
