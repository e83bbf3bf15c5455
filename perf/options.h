// Options: the command line of every perf tool. Letters, long names, meanings and defaults are nccl-tests',
// except where host memory asks for something else; --help says so.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "values.h"

namespace weft::perf {

struct Options {
  size_t min_bytes = size_t{32} << 20, max_bytes = size_t{32} << 20;
  size_t step_bytes = size_t{1} << 20;  // when step_factor is 1
  size_t step_factor = 1;
  std::vector<size_t> listed;  // sizes named one by one; empty = from min_bytes to max_bytes
  int iterations = 20, warmup = 5, aggregated = 1, cycles = 1, checks = 1;
  int graphs = 0;        // launches of a CUDA graph of all iterations; 0 = no graph
  int time_ms = 0;       // 0 = `iterations`; else as many iterations as take about so long, 3 to 10000
  bool in_place = true;  // measure the in-place form too, where there is one
  std::vector<Operator> operators;
  std::vector<weftDataType_t> types;
  std::optional<int> root;  // none = all
  bool blocking = true;     // null stream; else a stream that is synchronized after the last iteration
  bool registered = false;  // buffers of weftMemAlloc, registered
  int average = 1;          // the time reported: of rank 0, mean, least, most
  bool cpu_time = false;    // time to issue, instead of until the results are there
  bool memory = false;      // report memory
  bool rotate = false;      // move through the buffers from one iteration to the next
  int unaligned = 0;        // elements by which buffers are shifted
  double timeout_s = 0;     // 0 = the library's default
  // weft, nccl or mpi, which take turns at each size; "" = what WEFT_BACKEND says
  std::vector<std::string> backends = {""};
  bool cuda = false;  // buffers of GPU memory, on a stream of CUDA
  std::string json;   // "" = none

  bool measures(const std::string& backend) const;
  /// The sizes to scan, in bytes.
  std::vector<size_t> sizes() const;
};

/// "8", "64K", "1.5M", "2G": units are powers of 1024. Throws what CLI11 reports as a mistake in `option`.
size_t parse_size(const std::string& option, const std::string& text);
/// Whether this process is the one of its launch that should print what all could.
bool is_first_of_launch();
/// Whether a result can be written there at the end; if not, says so, so that nothing is measured in vain. ""
/// is no file. What the file holds is left as it is.
bool can_write(const std::string& path);
/// What --version prints.
std::string version_of(const char* program);
const char* name_of(weftDataType_t type);
const char* name_of(Operator op);

/// Options, or the exit code that the program ends with: 0 after --help, 2 after a mistake, which has been
/// explained.
struct Parsed {
  std::optional<Options> options;
  int exit_code = 0;
};
Parsed parse_options(int argc, char** argv, const std::string& title);

}  // namespace weft::perf
