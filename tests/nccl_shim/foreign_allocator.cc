// An allocator that a program may have in front of libc's (LD_PRELOAD). Each block lies behind a header, so
// libc's free() stops the process at one of these, and this free() at one of libc's.
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#define EXPORT extern "C" __attribute__((visibility("default")))

extern "C" {
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* block);
}

namespace {

struct Header {
  void* block;
  size_t bytes;
  size_t mark, unused;
};
constexpr size_t kMark = 0x666f7265;

Header* header_of(void* data) {
  Header* header = static_cast<Header*>(data) - 1;
  if (header->mark != kMark) abort();
  return header;
}

void* allocate(size_t alignment, size_t bytes) {
  const size_t before = alignment < sizeof(Header) ? sizeof(Header) : alignment;
  char* block = static_cast<char*>(__libc_memalign(before, before + bytes));
  if (!block) return nullptr;
  *reinterpret_cast<Header*>(block + before - sizeof(Header)) = {block, bytes, kMark, 0};
  return block + before;
}

}  // namespace

EXPORT void* malloc(size_t bytes) { return allocate(alignof(max_align_t), bytes); }
EXPORT void free(void* data) {
  if (data) __libc_free(header_of(data)->block);
}
EXPORT void* calloc(size_t count, size_t bytes) {
  void* data = malloc(count * bytes);
  return data ? memset(data, 0, count * bytes) : nullptr;
}
EXPORT void* realloc(void* data, size_t bytes) {
  void* larger = malloc(bytes);
  if (!data || !larger) return larger;
  const size_t before = header_of(data)->bytes;
  memcpy(larger, data, before < bytes ? before : bytes);
  free(data);
  return larger;
}
EXPORT void* aligned_alloc(size_t alignment, size_t bytes) { return allocate(alignment, bytes); }
EXPORT void* memalign(size_t alignment, size_t bytes) { return allocate(alignment, bytes); }
EXPORT int posix_memalign(void** data, size_t alignment, size_t bytes) {
  *data = allocate(alignment, bytes);
  return *data ? 0 : ENOMEM;
}
EXPORT size_t malloc_usable_size(void* data) { return data ? header_of(data)->bytes : 0; }
