// Dumps: the flight recorder as JSON, on request, when a communicator fails, and on a signal
// (WEFT_RECORDER_SIGNAL) while the process runs.
//
// Thread safety: as each function says.
#pragma once

#include <string>

#include "base/status.h"
#include "engine/context/context_lock.h"

namespace weft::engine {

class Communicator;
class Context;

/// The recorder of one communicator: name, rank, size, nodes, failure, and its operations, oldest first, with
/// times in µs on CLOCK_MONOTONIC. Under the context's lock.
std::string dump_json(const Communicator& comm) WEFT_REQUIRES(context_lock);
/// Writes dump_json() to `path`. Under the context's lock.
Status dump_to(const Communicator& comm, const std::string& path) WEFT_REQUIRES(context_lock);
/// Writes weft-recorder.<name>.<rank>.<pid>.json into WEFT_RECORDER_DIR and returns the path; "" if that is
/// "none" or writing fails (logged). Under the context's lock.
std::string dump_to_directory(const Communicator& comm) WEFT_REQUIRES(context_lock);
/// The same for every communicator of a context, but for shadows.
void dump_all(Context& context);

/// Lets WEFT_RECORDER_SIGNAL request dumps, unless the program handles that signal itself. Idempotent.
void install_dump_signal();

}  // namespace weft::engine
