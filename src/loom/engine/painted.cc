// Painting, and looking for what is left of it.
#include "engine/painted.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <new>

namespace loom::engine {
namespace {

constexpr size_t kLine = 64, kPage = 4096;

constexpr std::array<std::byte, kLine> painted_line() {
  std::array<std::byte, kLine> line{};
  line.fill(kPaint);
  return line;
}
constexpr std::array<std::byte, kLine> kPaintedLine = painted_line();

}  // namespace

void paint(std::span<std::byte> memory) { std::fill(memory.begin(), memory.end(), kPaint); }

int64_t written_bytes(std::span<const std::byte> memory) {
  int64_t bytes = 0;
  for (size_t at = 0; at < memory.size(); at += kLine) {
    const size_t line = std::min(kLine, memory.size() - at);
    if (std::memcmp(memory.data() + at, kPaintedLine.data(), line) != 0) bytes += static_cast<int64_t>(line);
  }
  return bytes;
}

Painted::Painted(int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  const size_t whole = (static_cast<size_t>(bytes) + kPage - 1) / kPage * kPage;
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, whole)));
  if (memory_ == nullptr) throw std::bad_alloc();
  paint({memory_.get(), static_cast<size_t>(bytes)});
}

void Painted::Free::operator()(std::byte* memory) const { std::free(memory); }

}  // namespace loom::engine
