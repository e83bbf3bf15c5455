// The tuning cache: measured machines on disk, one file for each kind of machine and job, so that measuring
// is done once. A file is JSON: the format's version, the facts under which it was measured, and the machine.
//
// Files are written under another name and renamed, so that readers see a whole one or none, and the last of
// several writers wins. A file that is damaged, or was measured under other facts, is as good as none.
//
// Thread safety: every function; processes may share a directory.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "model/cost.h"
#include "topology/host.h"

namespace weft::model {

/// What a measurement depends on. With equal facts it may be used again.
struct Facts {
  std::vector<std::pair<std::string, std::string>> host;  // of this machine and library
  int active = 1;           // ranks of a node that have a core each, and move memory at the same time
  double crowding = 1;      // ranks of the machine for each of its cores, where there are more than cores
  std::string intra;        // the transport inside a node, as it describes itself; "" = none was used
  bool threads = false;     // ranks of a node are threads of a process, whose memory costs no system call
  std::string inter;        // between nodes
  bool one_machine = true;  // the nodes are pretended: all on this machine

  friend bool operator==(const Facts&, const Facts&) = default;
};

/// CPU model, cores, memory and caches, kernel, interfaces with their speeds, version of the library.
std::vector<std::pair<std::string, std::string>> host_facts(const topology::Host& host);

/// Where the cache is: WEFT_TUNE_CACHE, else $XDG_CACHE_HOME/weft, else ~/.cache/weft. "" = nowhere.
std::string cache_directory();
/// The file for these facts in `directory`.
std::string cache_file(const std::string& directory, const Facts& facts);

struct Cached {
  Facts facts;
  Machine machine;
  std::string measured_at;  // "2026-11-21 12:00:00 UTC"
  std::string doubt;        // why it should be measured again; "" = it need not
  std::string path;
};

/// Whether `text` is a file of the cache, whole or damaged, and no other description.
bool is_cached(const std::string& text);
/// The measurement in `path`; nothing if there is no such file. Errors (system_error, invalid_argument) say
/// what is wrong with it.
Result<std::optional<Cached>> read_cache(const std::string& path);
/// The measurement for these facts; nothing if there is none without a doubt. Errors as read_cache(), and
/// invalid_argument if the file was measured under other facts.
Result<std::optional<Cached>> find_cached(const std::string& directory, const Facts& facts);
/// Every readable measurement of this host, the latest first; files that are damaged are left out.
std::vector<Cached> list_cached(const std::string& directory, const topology::Host& host);
/// Why files cannot be read, a sentence each.
std::vector<std::string> damaged_files(const std::string& directory);
/// Keeps a measurement, in place of an older one. One with a doubt is kept to be looked at (weft_info), and
/// not in place of one without. Makes the directory. Errors: system_error.
Status keep(const std::string& directory, const Facts& facts, const Machine& machine,
            const std::string& doubt = "");

}  // namespace weft::model
