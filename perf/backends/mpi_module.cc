// Built with an MPI library's own compiler wrapper. Calls are blocking and on host memory.
#include "backends/mpi_module.h"

#include <mpi.h>

#include <climits>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace weft::perf {
namespace {

std::string error_text;

weftResult_t refuse(const std::string& why) {
  error_text = why;
  return weftUnsupported;
}

size_t size_of(weftDataType_t type) {
  constexpr size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return sizes[type];
}

/// What MPI is told of a call: elements where it has to add them, else bytes.
struct Elements {
  MPI_Datatype type = MPI_BYTE;
  MPI_Op op = MPI_SUM;
  int count = 0;
  size_t bytes = 0;  // of `count` of them
};

/// False, with a sentence, for what MPI does not have.
bool describe(const Call& call, bool reduces, Elements* elements) {
  const MPI_Datatype types[] = {MPI_INT8_T,  MPI_UINT8_T,       MPI_INT32_T,       MPI_UINT32_T,
                                MPI_INT64_T, MPI_UINT64_T,      MPI_DATATYPE_NULL, MPI_FLOAT,
                                MPI_DOUBLE,  MPI_DATATYPE_NULL, MPI_DATATYPE_NULL, MPI_DATATYPE_NULL};
  const MPI_Op operators[] = {MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN, MPI_OP_NULL, MPI_BAND, MPI_BOR, MPI_BXOR};
  elements->bytes = call.count * size_of(call.type);
  const size_t count = reduces ? call.count : elements->bytes;
  if (count > INT_MAX) return refuse("MPI counts in int: the call has " + std::to_string(count)), false;
  elements->count = static_cast<int>(count);
  if (!reduces) return true;
  elements->type = types[call.type];
  if (elements->type == MPI_DATATYPE_NULL) return refuse("MPI does not add 8- and 16-bit floats"), false;
  if (call.op == weftAvg || call.op >= weftNumOps)
    return refuse("MPI has no average and no pre-multiplied sum"), false;
  elements->op = operators[call.op];
  return true;
}

/// MPI_IN_PLACE where the input lies where the output has this rank's part.
const void* input(const Call& call, size_t offset) {
  return call.in == static_cast<const std::byte*>(call.out) + offset ? MPI_IN_PLACE : call.in;
}

size_t offset_of(const Call& call, size_t bytes) { return static_cast<size_t>(call.rank) * bytes; }

weftResult_t all_reduce(const Call& call) {
  Elements e;
  if (!describe(call, true, &e)) return weftUnsupported;
  MPI_Allreduce(input(call, 0), call.out, e.count, e.type, e.op, MPI_COMM_WORLD);
  return weftSuccess;
}

weftResult_t all_gather(const Call& call) {
  Elements e;
  if (!describe(call, false, &e)) return weftUnsupported;
  MPI_Allgather(input(call, offset_of(call, e.bytes)), e.count, MPI_BYTE, call.out, e.count, MPI_BYTE,
                MPI_COMM_WORLD);
  return weftSuccess;
}

// In place, MPI leaves the result at the start of the input, not where this rank's part is: it goes another
// way.
weftResult_t reduce_scatter(const Call& call) {
  Elements e;
  if (!describe(call, true, &e)) return weftUnsupported;
  const bool in_place = call.out == static_cast<const std::byte*>(call.in) + offset_of(call, e.bytes);
  static std::vector<std::byte> part;
  if (in_place) part.resize(e.bytes);
  MPI_Reduce_scatter_block(call.in, in_place ? part.data() : call.out, e.count, e.type, e.op, MPI_COMM_WORLD);
  if (in_place) std::memcpy(call.out, part.data(), e.bytes);
  return weftSuccess;
}

weftResult_t broadcast(const Call& call) {
  Elements e;
  if (!describe(call, false, &e)) return weftUnsupported;
  if (call.rank == call.root && call.in != call.out) std::memcpy(call.out, call.in, e.bytes);
  MPI_Bcast(call.out, e.count, MPI_BYTE, call.root, MPI_COMM_WORLD);
  return weftSuccess;
}

weftResult_t reduce(const Call& call) {
  Elements e;
  if (!describe(call, true, &e)) return weftUnsupported;
  const void* in = call.rank == call.root ? input(call, 0) : call.in;
  MPI_Reduce(in, call.out, e.count, e.type, e.op, call.root, MPI_COMM_WORLD);
  return weftSuccess;
}

weftResult_t all_to_all(const Call& call) {
  Elements e;
  if (!describe(call, false, &e)) return weftUnsupported;
  MPI_Alltoall(input(call, 0), e.count, MPI_BYTE, call.out, e.count, MPI_BYTE, MPI_COMM_WORLD);
  return weftSuccess;
}

weftResult_t gather(const Call& call) {
  Elements e;
  if (!describe(call, false, &e)) return weftUnsupported;
  const void* in = call.rank == call.root ? input(call, offset_of(call, e.bytes)) : call.in;
  MPI_Gather(in, e.count, MPI_BYTE, call.out, e.count, MPI_BYTE, call.root, MPI_COMM_WORLD);
  return weftSuccess;
}

weftResult_t scatter(const Call& call) {
  Elements e;
  if (!describe(call, false, &e)) return weftUnsupported;
  const bool in_place =
      call.rank == call.root && call.out == static_cast<const std::byte*>(call.in) + offset_of(call, e.bytes);
  MPI_Scatter(call.in, e.count, MPI_BYTE, in_place ? MPI_IN_PLACE : call.out, e.count, MPI_BYTE, call.root,
              MPI_COMM_WORLD);
  return weftSuccess;
}

weftResult_t exchange(const Call& call) {
  Elements e;
  if (!describe(call, false, &e)) return weftUnsupported;
  const int next = (call.rank + 1) % call.ranks, previous = (call.rank + call.ranks - 1) % call.ranks;
  MPI_Sendrecv(call.in, e.count, MPI_BYTE, next, 0, call.out, e.count, MPI_BYTE, previous, 0, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  return weftSuccess;
}

weftResult_t (*find(const char* title))(const Call&) {
  constexpr struct {
    const char* title;
    weftResult_t (*run)(const Call&);
  } all[] = {{"AllReduce", all_reduce}, {"AllGather", all_gather}, {"ReduceScatter", reduce_scatter},
             {"Broadcast", broadcast},  {"Reduce", reduce},        {"AlltoAll", all_to_all},
             {"Gather", gather},        {"Scatter", scatter},      {"SendRecv", exchange}};
  for (const auto& one : all)
    if (std::strcmp(one.title, title) == 0) return one.run;
  return nullptr;
}

/// The first line of what the library says of itself.
const char* version() {
  static char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  text[std::strcspn(text, ",\n")] = '\0';
  for (char* at = text; *at; ++at)
    if (*at == '\t') *at = ' ';
  return text;
}

void start(int* rank, int* ranks) {
  MPI_Init(nullptr, nullptr);
  MPI_Comm_rank(MPI_COMM_WORLD, rank);
  MPI_Comm_size(MPI_COMM_WORLD, ranks);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const MpiModule weft_perf_mpi;
const MpiModule weft_perf_mpi = {
    version,
    start,
    [](void* data, int bytes) { MPI_Bcast(data, bytes, MPI_BYTE, 0, MPI_COMM_WORLD); },
    find,
    [] { return error_text.c_str(); },
    [] { MPI_Finalize(); }};

}  // namespace weft::perf
