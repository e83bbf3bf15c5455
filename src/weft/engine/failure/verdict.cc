#include "engine/failure/verdict.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/clock.h"
#include "engine/context/context.h"
#include "engine/gpu/device_run.h"
#include "engine/gpu/node_board.h"
#include "engine/run/communicator.h"
#include "plan/uneven.h"

namespace weft::engine {
namespace {

// How long peers have to answer. They answer from a thread that does nothing else.
constexpr double kAnswerSeconds = 1.0;
// The longest time between two inquiries about a slow operation.
constexpr int64_t kLongestPauseNs = 30'000'000'000;
// In a large communicator the inquiry asks the ranks that the operation waits for and a few more.
constexpr size_t kMostAsked = 256;

struct Case {
  uint32_t comm;
  OpNumber number;
  int transfer_peer = -1;   // transfers with others may have the same number
  int rank;                 // this one, in the communicator
  std::string name;         // of the operation, for the beginning of a sentence
  std::string mine;         // what it called, as peers describe theirs
  std::string expected;     // what they say if it fits
  std::string algorithm;    // of all
  plan::Request request;    // whose counts stand behind both
  std::vector<int> asked;   // ranks of the communicator
  std::vector<int> worlds;  // the same, as ranks of the job
  bool overdue = false;
  std::string holds_up;  // what its stream waits for, if the stream does the operation alone
  int mismatched = -1;   // rank whose message did not fit, if that is why we ask
};

/// The answer of a peer that has called the same, or that is the other end of the same transfer.
std::string expected_of(const Operation& op) {
  Record record = record_of(op);
  if (op.number & kTransferBit) {
    const bool sends = record.collective == plan::Collective::send;
    record.collective = sends ? plan::Collective::recv : plan::Collective::send;
    record.root = op.comm->rank();
  }
  return record.describe();
}

/// Whether its stream does it, but for what crosses nodes.
bool does_alone(const Operation& op) { return op.device && op.device->on_path().path; }

/// A clause on what holds up an operation that its stream does alone; "" if nothing is known.
std::string what_holds_up(const Operation& op) {
  const DeviceRun::OnPath& on_path = op.device->on_path();
  std::string known = on_path.holds_up();
  if (!known.empty()) return known;
  const std::vector<int> late = op.comm->on_device().board->find_late(op.number, on_path.served->partners);
  if (!late.empty())
    return fmt::format(
        "the stream{} of rank{} not come to it", late.size() == 1 ? "" : "s",
        late.size() == 1 ? fmt::format(" {} has", late[0]) : fmt::format("s {} have", fmt::join(late, ", ")));
  const plan::Plan& plan = op.tables->plan;
  for (size_t lane = 0; op.started && lane < op.progress.lanes.size(); ++lane) {
    const uint32_t next = op.progress.lanes[lane].next;
    if (next == plan.lane_begin[lane + 1]) continue;
    const plan::Step& step = plan.steps[plan.lane_steps[next]];
    if (step.kind == plan::StepKind::wait)
      return fmt::format("nothing has come from rank {} on another node", step.peer);
  }
  return "";
}

Case open_case(Operation& op) {
  Case c;
  c.comm = op.comm->id();
  c.number = op.number;
  c.transfer_peer = op.transfer_peer;
  c.rank = op.comm->rank();
  c.name = describe(op);
  c.mine = record_of(op).describe();
  c.expected = expected_of(op);
  c.algorithm = op.tables->plan.algorithm;
  c.request = op.tables->plan.request;
  if (does_alone(op)) c.holds_up = what_holds_up(op);
  if (op.started || !does_alone(op)) c.asked = op.progress.awaited_peers(*op.tables);
  const bool collective = !(op.number & kTransferBit);
  for (int rank = 0; collective && rank < op.comm->size() && c.asked.size() < kMostAsked; ++rank)
    if (rank != op.comm->rank() && std::find(c.asked.begin(), c.asked.end(), rank) == c.asked.end())
      c.asked.push_back(rank);
  c.mismatched = op.health.mismatched;
  if (c.mismatched >= 0 && std::find(c.asked.begin(), c.asked.end(), c.mismatched) == c.asked.end())
    c.asked.push_back(c.mismatched);
  for (int rank : c.asked) c.worlds.push_back(op.comm->members().world_rank(rank));
  return c;
}

// "ranks 3 and 5 have not started it", from the answers; empty if everybody has.
std::string who_is_missing(const Case& c, const std::vector<std::optional<bootstrap::OpReport>>& answers) {
  std::vector<std::string> missing;
  for (size_t i = 0; i < c.asked.size(); ++i) {
    const auto& answer = answers[i];
    if (!answer) {
      missing.push_back(fmt::format("rank {} does not answer", c.asked[i]));
    } else if (!answer->known) {
      missing.push_back(fmt::format("rank {} does not have this communicator (any more)", c.asked[i]));
    } else if (!(c.number & kTransferBit) && comes_after(c.number, answer->last_started)) {
      missing.push_back(answer->last_started == 0
                            ? fmt::format("rank {} has not started any operation", c.asked[i])
                            : fmt::format("rank {} has not arrived, its last operation is {}", c.asked[i],
                                          answer->last_started));
    } else if ((c.number & kTransferBit) && answer->call.empty()) {
      missing.push_back(
          fmt::format("rank {} has not {}", c.asked[i],
                      c.number & kPutBit ? "begun to take it" : "called the matching Send or Recv"));
    }
  }
  if (missing.size() > 8) {
    const size_t more = missing.size() - 8;
    missing.resize(8);
    missing.push_back(fmt::format("and {} more", more));
  }
  return fmt::format("{}", fmt::join(missing, "; "));
}

/// Whether what rank `from` says it called under this number does not fit ours.
bool is_other_call(const Case& c, int from, const bootstrap::OpReport& theirs) {
  if (theirs.call.empty()) return false;
  const bool did_not_fit = (c.number & kTransferBit) && from == c.mismatched;
  // A rank whose part has ended tells no counts.
  const bool same = theirs.call == c.expected ||
                    theirs.call == c.expected + plan::describe_counts_of_peer(c.request, c.rank, from);
  return did_not_fit || !same || theirs.algorithm != c.algorithm;
}

/// Which algorithm a call takes matters only if the calls are the same: it depends on the call.
Status calls_differ(const Case& c, int from, const bootstrap::OpReport& theirs) {
  const std::string mine = c.mine + plan::describe_counts(c.request, from);
  if (theirs.call != mine)
    return fail(Code::mismatch, "rank {} called {}, rank {} called {}", from, theirs.call, c.rank, mine);
  return fail(Code::mismatch, "rank {} called {} by {}, rank {} called it by {}", from, theirs.call,
              theirs.algorithm, c.rank, c.algorithm);
}

// A rank that called something else under this number, and what; or nobody.
Status who_differs(const Case& c, const std::vector<std::optional<bootstrap::OpReport>>& answers) {
  for (size_t i = 0; i < c.asked.size(); ++i)
    if (answers[i] && is_other_call(c, c.asked[i], *answers[i]))
      return calls_differ(c, c.asked[i], *answers[i]);
  if (c.mismatched < 0) return {};
  return fail(Code::mismatch,
              "rank {} called it with another operation, count, type, operator or root; rank {} called {}",
              c.mismatched, c.rank, c.mine + plan::describe_counts(c.request, c.mismatched));
}

Operation* find_operation(const Communicator& comm, const Case& c) WEFT_REQUIRES(context_lock) {
  for (Operation* op : comm.operations().unfinished())
    if (op->number == c.number && op->transfer_peer == c.transfer_peer && (op->started || does_alone(*op)))
      return op;
  return nullptr;
}

// Acts on ranks that the operation waits for and that have ended its communicator. Of a rank that keeps
// another communicator of the job, the answer tells. A rank that leaves the job in order says goodbye to its
// neighbours, and its data connections to other nodes end; ranks of its own node have no such connection.
void act_on_who_has_left(Context& context, const Case& c, Operation& op,
                         const std::vector<std::optional<bootstrap::OpReport>>& answers)
    WEFT_REQUIRES(context_lock) {
  if (!op.started && does_alone(op)) return;
  const std::vector<int> awaited = op.progress.awaited_peers(*op.tables);
  for (size_t i = 0; i < c.asked.size(); ++i) {
    if (std::find(awaited.begin(), awaited.end(), c.asked[i]) == awaited.end()) continue;
    if (answers[i] && answers[i]->ended)
      return context.failures().fail(
          op, fail(Code::remote_error,
                   "rank {} has gone: it has destroyed its communicator without this call", c.asked[i]));
    if (!answers[i] && context.bootstrap().has_left(c.worlds[i]))
      context.failures().on_connection_lost(
          c.worlds[i], fail(Code::remote_error, "it has destroyed its communicator, or has ended"));
  }
}

// Runs on the thread of inquiries: asks without the lock, and concludes with it.
void conclude(Context& context, Case c) {
  const auto answers =
      context.bootstrap().ask(c.worlds, c.comm, c.number, Deadline::in_seconds(kAnswerSeconds));
  Lock lock = context.lock();
  Communicator* comm = context.find_communicator(c.comm);
  Operation* op = comm ? find_operation(*comm, c) : nullptr;
  // An operation that needed nothing from the rank that differs may have ended by now.
  if (comm && !op && c.mismatched >= 0) comm->fail(who_differs(c, answers).in(c.name), true);
  if (!op) return;
  // A message that did not fit came while this inquiry ran. It has an inquiry of its own: its sender may have
  // answered this one before the call that the message belongs to.
  const bool asked_about_anew = c.mismatched < 0 && op->health.mismatched >= 0;
  op->health.verdict_pending = asked_about_anew;
  if (Status differs = who_differs(c, answers); !differs) {
    comm->fail(differs.in(c.name), true);
  } else if (asked_about_anew) {
    return;
  } else if (c.overdue) {
    const std::string missing = who_is_missing(c, answers);
    comm->fail(fail(Code::timeout, "not finished after {} s: {}", op->end.timeout_s,
                    !missing.empty()     ? missing
                    : c.holds_up.empty() ? "every rank has started it, but it makes no progress"
                                         : "every rank has called it, but " + c.holds_up)
                   .in(c.name),
               true);
  } else {
    const int64_t waited = now_ns() - op->end.deadline_ns + static_cast<int64_t>(op->end.timeout_s * 1e9);
    op->health.next_check_ns = std::min(op->end.deadline_ns, now_ns() + std::min(waited, kLongestPauseNs));
    act_on_who_has_left(context, c, *op, answers);  // may end the operation
  }
}

// A message did not fit. Without a thread that asks, the verdict says what this rank knows alone.
void inquire_in_turn(Context& context, Communicator& comm, const Case& c) WEFT_REQUIRES(context_lock) {
  const Status asked =
      context.failures().inquiries().ask_in_turn(c.comm, [c, &context] { conclude(context, c); });
  if (asked.ok()) return;
  const std::vector<std::optional<bootstrap::OpReport>> no_answers(c.asked.size());
  context.failures().fail_later(comm, who_differs(c, no_answers).in(c.name));
}

// Nobody has to be asked: this rank has counted them.
void look_at_signals(Context& context, Operation& op, int64_t now) WEFT_REQUIRES(context_lock) {
  op.health.next_check_ns = op.end.deadline_ns;
  if (now >= op.end.deadline_ns)
    context.failures().fail(op, fail(Code::timeout, "not finished after {} s: {}", op.end.timeout_s,
                                     op.comm->buffers().windows.missing(op)));
}

}  // namespace

void Verdict::on_mismatch(Context& context, Operation& op, int from) {
  const bool asked = op.health.mismatched >= 0;
  op.health.mismatched = from;
  if (asked) return;
  op.health.verdict_pending = true;
  inquire_in_turn(context, *op.comm, open_case(op));
}

void Verdict::on_late_message(Context& context, Communicator& comm, uint32_t number, int from) {
  Case c;
  c.comm = comm.id();
  c.number = number;
  c.rank = comm.rank();
  c.name = fmt::format("operation {} of communicator {}", number, comm.name());
  for (const Record& record : comm.recorder().snapshot())
    if (record.number == number) {
      c.mine = c.expected = record.describe();
      c.algorithm = record.algorithm;
    }
  c.asked = {from};
  c.worlds = {comm.members().world_rank(from)};
  c.mismatched = from;
  inquire_in_turn(context, comm, c);
}

void Verdict::on_stall(Context& context, Operation& op, int64_t now) {
  if (op.health.verdict_pending) return;
  if (op.call.purpose == Purpose::wait) return look_at_signals(context, op, now);
  Case c = open_case(op);
  c.overdue = now >= op.end.deadline_ns;
  const Status asked = context.failures().inquiries().ask([c, &context] { conclude(context, c); });
  op.health.verdict_pending = asked.ok();
  if (c.overdue && asked.code() == Code::system_error)
    context.failures().fail(
        op, fail(Code::timeout, "not finished after {} s, and nobody can be asked why: {}", op.end.timeout_s,
                 asked.message()));
}

}  // namespace weft::engine
