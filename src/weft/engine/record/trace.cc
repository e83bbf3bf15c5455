#include "engine/record/trace.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>

#include "base/clock.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/settings.h"
#include "bootstrap/bootstrap.h"
#include "engine/context/fabric.h"
#include "engine/run/communicator.h"
#include "engine/run/operation.h"

namespace weft::engine {
namespace {

constexpr size_t kFlushBytes = 1 << 20;
constexpr size_t kReasonBytes = 512;  // of why a rank cannot start the file, as others read it

Status cannot_write(const std::string& path) {
  return fail_errno(errno, fmt::format("WEFT_TRACE: cannot write to {}", path));
}

// Starts the file afresh. Nodes that share the file may all do so, before any rank writes into it.
Status start_file(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  // The closing bracket may be missing in this format: ranks end at any time.
  constexpr std::string_view kBegin = "[\n";
  const bool begun = file.valid() && ::write(file.get(), kBegin.data(), kBegin.size()) > 0;
  return begun ? Status() : cannot_write(path);
}

}  // namespace

Result<std::unique_ptr<Trace>> Trace::open(const Fabric& fabric, bootstrap::Bootstrap& bootstrap,
                                           Deadline deadline) {
  const std::string& path = settings().trace;
  const int rank = bootstrap.rank(), node = fabric.layout().node_of(rank);
  const auto writes = [&](int r) { return fabric.traces(r); };
  bool anybody = false;
  for (int r = 0; r < bootstrap.ranks(); ++r) anybody |= writes(r);
  if (!anybody) return std::unique_ptr<Trace>();
  // The first rank on a node that writes a trace starts the file, before any rank appends to it.
  const auto& here = fabric.layout().on_node(node);
  const auto first = std::find_if(here.begin(), here.end(), writes);
  const Status started = first != here.end() && *first == rank ? start_file(path) : Status();
  // Every rank learns why one could not start the file.
  std::array<char, kReasonBytes> reason{};
  started.message().copy(reason.data(), reason.size() - 1);
  const auto met = bootstrap.all_gather(std::as_bytes(std::span(reason)), deadline);
  WEFT_TRY(started);
  if (!met) return met.status();
  for (int r = 0; r < bootstrap.ranks(); ++r) {
    const char* const theirs =
        reinterpret_cast<const char*>(met->data()) + kReasonBytes * static_cast<size_t>(r);
    const std::string_view why(theirs, strnlen(theirs, kReasonBytes));
    if (!why.empty()) return fail(Code::remote_error, "rank {} reports: {}", r, why);
  }
  if (path.empty()) return std::unique_ptr<Trace>();
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file.valid()) return cannot_write(path);
  std::unique_ptr<Trace> trace(new Trace(std::move(file), rank));
  trace->text_ = fmt::format(
      "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{0},\"args\":{{\"name\":\"rank {0} on node "
      "{1}\"}}}},\n"
      "{{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":{0},\"args\":{{\"sort_index\":{0}}}}},\n",
      rank, node);
  trace->flush();
  return trace;
}

Trace::~Trace() { flush(); }

// Spans of one track never overlap; tracks of asynchronous events need no thread.
void Trace::span(const std::string& track, const std::string& name, uint64_t begin, uint64_t end,
                 const std::string& args) {
  const std::string quoted = json_text(name);
  const std::string common = fmt::format(
      "\"cat\":\"weft\",\"id2\":{{\"local\":\"{}\"}},\"pid\":{},\"tid\":0,\"name\":{}", track, rank_, quoted);
  text_ +=
      fmt::format("{{\"ph\":\"b\",\"ts\":{:.3f},{},\"args\":{{{}}}}},\n{{\"ph\":\"e\",\"ts\":{:.3f},{}}},\n",
                  ticks_to_us(begin), common, args, ticks_to_us(end), common);
  if (text_.size() > kFlushBytes) flush();
}

void Trace::operation(const Operation& op) {
  const Record& r = *op.record;
  span(fmt::format("{:x}.{:x}", op.comm->id(), op.number), r.describe(), r.started, r.done,
       fmt::format("\"communicator\":{},\"number\":{},\"algorithm\":\"{}\",\"bytes\":{},\"queued_us\":{:.3f},"
                   "\"result\":\"{}\"",
                   json_text(op.comm->name()), op.number & kCollectiveMask, r.algorithm,
                   r.count * device::size_of(r.type), ticks_to_us(r.queued), code_name(r.outcome)));
}

uint64_t Trace::step(const Operation& op, uint32_t lane, uint32_t id, uint64_t begin) {
  const uint64_t now = ticks();
  const plan::Step& step = op.tables->plan.steps[id];
  const std::string name =
      step.peer >= 0 ? fmt::format("{} {}", plan::name_of(step.kind), step.peer) : plan::name_of(step.kind);
  span(fmt::format("{:x}.{:x}.{}", op.comm->id(), op.number, lane), name, begin, now,
       fmt::format("\"step\":{},\"bytes\":{}", id, step.bytes));
  return now;
}

void Trace::flush() {
  if (text_.empty()) return;
  if (write(file_.get(), text_.data(), text_.size()) != static_cast<ssize_t>(text_.size()))
    log::warn("WEFT_TRACE: events are lost: {}", std::strerror(errno));
  text_.clear();
}

}  // namespace weft::engine
