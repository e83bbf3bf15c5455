// A copy by the kernel, for memory of which nobody can be sure that it is still mapped: where memcpy() would
// end the process, it says no. It costs a system call, so it is for copies that are long or rare.
//
// Thread safety: all functions.
#pragma once

#include <cstddef>

namespace weft {

/// As memcpy(), but false if not all of `to` can be written to; a part of it may have been then. Where the
/// kernel does not let a process copy this way (process_vm_writev), it is memcpy().
bool copy_checked(void* to, const void* from, size_t bytes);

/// Whether the byte is there; true where the kernel does not let a process ask.
bool can_be_read(const void* byte);

}  // namespace weft
