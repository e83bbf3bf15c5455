// What goes through torch's store: how the ranks of a group meet, and the monitored barrier.
//
// Keys of a group, all deleted by the last rank that needs them, so that a second group on the same store
// finds nothing of the first:
//   weft/arrived     how many ranks have come; the last one makes Weft's unique id
//   weft/id          the id, or a sentence that says why there is none
//   weft/read        how many ranks have read it
//   weft/monitored/<number>/…  a monitored barrier
//
// A wait ends also when another thread ends the group, or when a signal raises an exception in Python, as
// Ctrl-C does.
#include <algorithm>
#include <thread>

#include "backend.h"
#include "store_client.h"

namespace weft_torch {

namespace {

using Clock = std::chrono::steady_clock;

Bytes bytes(const std::string& text) { return {text.begin(), text.end()}; }

std::chrono::milliseconds left(Clock::time_point end) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
}

// The id begins with this byte, a sentence about its absence with another.
constexpr uint8_t kIsId = 1;
constexpr uint8_t kIsSentence = 2;

Bytes make_id(int rank) {
  weftUniqueId id;
  if (weftGetUniqueId(&id) != weftSuccess) {
    Bytes made = bytes(c10::str("rank ", rank, ": ", weftGetLastError(nullptr)));
    made.insert(made.begin(), kIsSentence);
    return made;
  }
  Bytes made(id.internal, id.internal + sizeof(id.internal));
  made.insert(made.begin(), kIsId);
  return made;
}

weftUniqueId agree_on_id(const Membership& group, std::chrono::milliseconds timeout,
                         const std::atomic<bool>* cancelled) {
  StoreClient store(group.store, group.name, timeout,
                    {cancelled, c10::str("rank ", group.rank, " of ", group.size,
                                         " waited for the others in the process group ", group.name)});
  const int64_t arrived = store.add("weft/arrived", 1);
  if (arrived > group.size) {
    std::rethrow_exception(backend_error(c10::str("Rank number ", arrived, " came to the process group ",
                                                  group.name, ", which has ", group.size,
                                                  " ranks: the store holds ranks of an earlier attempt. "
                                                  "Start with a fresh store, or another prefix.")));
  }
  if (arrived == group.size) store.set("weft/id", make_id(group.rank));
  if (!store.await_key("weft/id", timeout)) {
    std::rethrow_exception(backend_error(c10::str("Only ", store.add("weft/arrived", 0), " of ", group.size,
                                                  " ranks came to the process group ", group.name, " within ",
                                                  timeout.count() / 1000.0,
                                                  " s; see whether the others run and whether all call "
                                                  "init_process_group() or new_group() in the same order.")));
  }
  Bytes answer = store.get("weft/id");
  // Nobody passes weftCommInitRank before the last rank has come to it, so the keys are gone before a rank
  // goes on.
  if (store.add("weft/read", 1) == group.size) {
    for (const char* key : {"weft/arrived", "weft/id", "weft/read"}) store.delete_key(key);
  }
  weftUniqueId id;
  if (answer.size() != 1 + sizeof(id.internal) || answer[0] != kIsId) {
    std::rethrow_exception(backend_error(answer.empty()
                                             ? "The store returned an empty id of the process group."
                                             : std::string(answer.begin() + 1, answer.end())));
  }
  std::copy(answer.begin() + 1, answer.end(), id.internal);
  return id;
}

// Waits for a communicator that is created without blocking. Aborts it when it throws.
void await_creation(weftComm_t comm, const Interruption& interruption) {
  try {
    weftResult_t state = weftInProgress;
    auto look = Clock::now() + kLook;
    while (weftCommGetAsyncError(comm, &state) == weftSuccess && state == weftInProgress) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      interruption.check_cancelled();
      if (Clock::now() < look) continue;
      interruption.check();
      look = Clock::now() + kLook;
    }
    if (state != weftSuccess) std::rethrow_exception(backend_error(weftGetLastError(comm)));
  } catch (...) {
    weftCommAbort(comm);
    throw;
  }
}

}  // namespace

weftComm_t make_communicator(const Membership& group, std::chrono::milliseconds timeout, int device,
                             const std::atomic<bool>* cancelled) {
  weftConfig_t config = WEFT_CONFIG_INITIALIZER;
  const std::string name = "group " + group.name.substr(0, 24);
  config.commName = name.c_str();
  config.device = device;
  config.blocking = 1;
  config.timeoutSeconds = timeout.count() / 1000.0;
  if (group.lender) {
    if (weftComm_t borrowed = group.lender->make(group.ranks, group.name, config)) return borrowed;
  }
  weftUniqueId id = agree_on_id(group, timeout, cancelled);
  weftComm_t comm = nullptr;
  config.blocking = 0;
  const weftResult_t begun = weftCommInitRankConfig(&comm, group.size, id, group.rank, &config);
  if (begun == weftInProgress)
    await_creation(comm, {cancelled, "the ranks of the process group " + group.name + " connected"});
  else if (begun != weftSuccess) std::rethrow_exception(backend_error(weftGetLastError(nullptr)));
  return comm;
}

// Ranks report to rank 0 through the store, so that it can name those that do not come.
void WeftBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all) {
  check_open();
  // A timeout of 0 is one, too: ranks that are not there yet are missing.
  const auto timeout =
      options.timeout.count() >= 0 ? options.timeout : std::chrono::milliseconds(timeout_ms_);
  const auto end = from_now(timeout);
  const std::string prefix = "weft/monitored/" + std::to_string(monitored_barriers_++) + "/";
  StoreClient store(group_.store, group_.name, std::chrono::milliseconds(timeout_ms_),
                    {&closed_, c10::str("rank ", rank_, " waited in monitored_barrier")});
  if (rank_ != 0) {
    store.set(prefix + std::to_string(rank_), bytes("here"));
    // Rank 0 answers by the end of its own time, which may begin later.
    if (!store.await_key(prefix + "answer", 2 * timeout)) {
      std::rethrow_exception(backend_error(
          c10::str("Rank 0 did not answer in monitored_barrier within ", 2 * timeout.count(), " ms.")));
    }
    Bytes answer = store.get(prefix + "answer");
    if (store.add(prefix + "read", 1) == size_ - 1) {
      store.delete_key(prefix + "answer");
      store.delete_key(prefix + "read");
    }
    if (!answer.empty() && answer[0] == kIsSentence) {
      std::rethrow_exception(backend_error(std::string(answer.begin() + 1, answer.end())));
    }
    return;
  }
  std::vector<int> missing;
  for (int rank = 1; rank < size_; ++rank) {
    const std::string key = prefix + std::to_string(rank);
    if (store.await_key(key, left(end))) {
      store.delete_key(key);
    } else {
      missing.push_back(rank);
      if (!wait_all) break;
    }
  }
  std::string sentence;
  if (!missing.empty()) {
    sentence = c10::str(missing.size() > 1 ? "Ranks " : "Rank ", c10::Join(", ", missing),
                        " failed to pass monitoredBarrier: did not come within ", timeout.count(), " ms.");
  }
  if (size_ > 1) {
    Bytes answer = bytes(sentence);
    answer.insert(answer.begin(), sentence.empty() ? kIsId : kIsSentence);
    store.set(prefix + "answer", answer);
  }
  if (!sentence.empty()) std::rethrow_exception(backend_error(sentence));
}

}  // namespace weft_torch
