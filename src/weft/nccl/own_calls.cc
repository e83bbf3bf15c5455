#include "nccl/own_calls.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::nccl {
namespace {

using Address = ElfW(Addr);
using Relocation = ElfW(Rela);
using Symbol = ElfW(Sym);

/// The kinds of places that hold a function's address.
#if defined(__x86_64__)
constexpr unsigned kKinds[] = {R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT, R_X86_64_64};
#elif defined(__aarch64__)
constexpr unsigned kKinds[] = {R_AARCH64_JUMP_SLOT, R_AARCH64_GLOB_DAT, R_AARCH64_ABS64};
#else
constexpr std::span<const unsigned> kKinds;
#endif

/// Where a library's symbols are, and the places that the linker fills in.
struct Tables {
  const char* names = nullptr;
  const Symbol* symbols = nullptr;
  const Relocation *data = nullptr, *calls = nullptr;
  size_t data_bytes = 0, calls_bytes = 0;
};

Tables tables_of(const link_map& library) {
  // The linker adds the library's address to these, unless it cannot write them.
  const auto pointer = [&](const ElfW(Dyn) & entry) {
    const Address value = entry.d_un.d_ptr;
    return reinterpret_cast<const void*>(value < library.l_addr ? library.l_addr + value : value);
  };
  Tables tables;
  for (const ElfW(Dyn)* entry = library.l_ld; entry->d_tag != DT_NULL; ++entry) switch (entry->d_tag) {
      case DT_STRTAB: tables.names = static_cast<const char*>(pointer(*entry)); break;
      case DT_SYMTAB: tables.symbols = static_cast<const Symbol*>(pointer(*entry)); break;
      case DT_RELA: tables.data = static_cast<const Relocation*>(pointer(*entry)); break;
      case DT_RELASZ: tables.data_bytes = entry->d_un.d_val; break;
      case DT_JMPREL: tables.calls = static_cast<const Relocation*>(pointer(*entry)); break;
      case DT_PLTRELSZ: tables.calls_bytes = entry->d_un.d_val; break;
      default: break;
    }
  return tables;
}

/// A place, and what belongs there.
using Binding = std::pair<Address*, Address>;

std::vector<Binding> own_bindings(const link_map& library) {
  const Tables tables = tables_of(library);
  std::vector<Binding> bindings;
  for (const auto& part : {std::span(tables.data, tables.data_bytes / sizeof(Relocation)),
                           std::span(tables.calls, tables.calls_bytes / sizeof(Relocation))})
    for (const Relocation& each : part) {
      if (std::ranges::find(kKinds, ELF64_R_TYPE(each.r_info)) == std::end(kKinds)) continue;
      const Symbol& symbol = tables.symbols[ELF64_R_SYM(each.r_info)];
      const std::string_view name = tables.names + symbol.st_name;
      if (symbol.st_shndx == SHN_UNDEF || !(name.starts_with("nccl") || name.starts_with("pnccl"))) continue;
      bindings.emplace_back(reinterpret_cast<Address*>(library.l_addr + each.r_offset),
                            library.l_addr + symbol.st_value + static_cast<Address>(each.r_addend));
    }
  return bindings;
}

/// The pages of a library that the linker has made read-only after it had filled them in; none if empty.
std::span<std::byte> sealed_pages(const link_map& library) {
  struct Search {
    Address base;
    Address begin = 0, end = 0;
  } search{library.l_addr};
  const auto look = [](dl_phdr_info* object, size_t, void* into) {
    Search& found = *static_cast<Search*>(into);
    if (object->dlpi_addr != found.base) return 0;
    for (const auto& segment : std::span(object->dlpi_phdr, object->dlpi_phnum))
      if (segment.p_type == PT_GNU_RELRO)
        found.begin = found.base + segment.p_vaddr, found.end = found.begin + segment.p_memsz;
    return 1;
  };
  dl_iterate_phdr(look, &search);
  const Address inside = ~(static_cast<Address>(sysconf(_SC_PAGESIZE)) - 1);
  auto* const begin = reinterpret_cast<std::byte*>(search.begin & inside);
  return {begin, reinterpret_cast<std::byte*>(search.end & inside)};
}

}  // namespace

Status keep_own_calls(void* library) {
  if (std::empty(kKinds))
    return fail(Code::unsupported, "its calls of its own functions cannot be kept in it on this processor");
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0)
    return fail(Code::system_error, "dlinfo failed: {}", dlerror());
  const std::span<std::byte> sealed = sealed_pages(*map);
  if (!sealed.empty() && mprotect(sealed.data(), sealed.size(), PROT_READ | PROT_WRITE) != 0)
    return fail_errno(errno, "mprotect of its bindings");
  for (const auto& [place, function] : own_bindings(*map)) *place = function;
  if (!sealed.empty() && mprotect(sealed.data(), sealed.size(), PROT_READ) != 0)
    return fail_errno(errno, "mprotect of its bindings");
  return {};
}

}  // namespace weft::nccl
