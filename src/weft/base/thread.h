// Threads: names and pinning.
#pragma once

#include <string>

namespace weft {

void name_thread(const std::string& name);
/// Pins the calling thread to the given logical CPU if the process may run there; otherwise leaves it alone.
void pin_thread(int cpu);

}  // namespace weft
