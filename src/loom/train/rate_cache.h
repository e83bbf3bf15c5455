// The cache of measured rates: what a machine's kernels reach, in small JSON files, one for each set of facts
// that a measurement depends on. Files are replaced atomically, and the last of several writers wins. A file
// that is damaged, or of other facts, is as good as none.
//
// Thread safety: functions; processes may share a folder.
#pragma once

#include <optional>
#include <string>

#include "format/json_file.h"
#include "program/job.h"
#include "program/machine.h"

namespace loom::train {

/// $XDG_CACHE_HOME/loom, else ~/.cache/loom; "": there is none.
std::string rate_cache_folder();

/// The facts that rates of computing depend on: the CPU and its cores, the ranks that share them and their
/// threads, the instruction set, the library's version, and what measure_kernels() takes of the job. If the
/// job offloads activations, also the folder, as it is given.
format::Json rate_facts(const program::Job& job, const program::SharedCores& shared,
                        const std::string& tier_folder);

/// The rates of computing, and of the tier, set in `machine`; false: there are none of these facts.
bool read_rates(const std::string& folder, const format::Json& facts, program::Machine& machine);
/// Makes the folder. Errors: disk_full, system_error.
Status keep_rates(const std::string& folder, const format::Json& facts, const program::Machine& machine);

}  // namespace loom::train
