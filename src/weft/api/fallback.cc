#include "api/fallback.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/mutex.h"
#include "nccl/gpu.h"
#include "nccl/tally.h"
#include "nccl/transfers.h"

namespace weft::api {
namespace {

using nccl::Backend;
using nccl::Functions;
using nccl::Library;
using plan::Collective;

const Functions& functions() { return (*Library::get())->functions(); }
Status check(int result, const char* what, nccl::Comm_t comm = nullptr) {
  return (*Library::get())->check(result, what, comm);
}
template <typename Function>
Status has(Function* function, const char* name) {
  return (*Library::get())->has(function, name);
}

}  // namespace

/// What each rank tells the others before NCCL's communicator is made: a rank that cannot would leave them
/// waiting.
struct Fallback::Card {
  int able;
  char why_not[384];
  char lacks[256];    // why the rank yields its device; "" if it does not
  nccl::UniqueId id;  // rank 0's
};

std::shared_ptr<Fallback> Fallback::make(Backend wanted, int device, const Status& lacks) {
  const bool wishes = wanted == Backend::automatic && device >= 0;
  if (wanted != Backend::nccl && (!nccl::gpu() || (device >= 0 && !wishes))) return nullptr;
  return std::shared_ptr<Fallback>(new Fallback(wanted, wishes ? device : -1, lacks));
}

Fallback::Fallback(Backend wanted, int device, const Status& lacks)
    : wanted_(wanted),
      device_(device),
      lacks_(lacks),
      takes_all_(wanted == Backend::nccl),
      cuda_context_(nccl::gpu() ? nccl::gpu()->context() : nullptr) {}

Fallback::~Fallback() {
  if (nccl_ && !aborted_) (void)functions().CommDestroy(nccl_);
}

Status Fallback::attach(engine::Communicator* comm) {
  comm_ = comm;
  if (wanted_ == Backend::nccl && comm->options().device >= 0)
    return fail(
        Code::invalid_argument,
        "config.device is {}, but the backend is nccl: NCCL takes its device from the thread, leave it alone",
        comm->options().device);
  if (device_ >= 0) takes_all_ = comm->options().device < 0;  // a rank has yielded its device
  return takes_all_ ? create({this}) : Status();
}

bool Fallback::is_device_memory(const void* pointer) {
  return nccl::gpu() && nccl::gpu()->is_device_memory(pointer);
}

bool Fallback::takes_pointer(const void* pointer) const { return takes_all_ || is_device_memory(pointer); }

Result<bool> Fallback::takes(const void* send, const void* recv) const {
  if (takes_all_) return true;
  const bool of_send = is_device_memory(send);
  if (!of_send && !is_device_memory(recv)) return false;
  const char* which = of_send ? "sendbuff" : "recvbuff";
  if (wanted_ == Backend::weft)
    return fail(
        Code::unsupported,
        "{} is device memory, but this communicator is of host memory and set to weft: create it with "
        "config.device, or with auto, which hands it to NCCL",
        which);
  if (comm_->options().strict)
    return fail(
        Code::unsupported,
        "{} is device memory, but this communicator is of host memory, and NCCL does not add in strict "
        "order: create it with config.device",
        which);
  // Whether there is an NCCL is asked of all ranks at once, in create(): one that refused here would be
  // waited for.
  return true;
}

// ---- Making NCCL's communicator

Fallback::Card Fallback::card() {
  Card mine{};
  const Result<const Library*>& library = Library::get();
  Status able = library.ok() ? Status() : library.status();
  if (able.ok() && device_ >= 0) {
    const Result<void*> context = nccl::gpu()->primary_context(device_);
    if (context.ok()) cuda_context_ = *context;
    else able = context.status();
  }
  if (able.ok() && comm_->rank() == 0) able = check(functions().GetUniqueId(&mine.id), "ncclGetUniqueId");
  mine.able = able.ok();
  std::snprintf(mine.why_not, sizeof mine.why_not, "%s", able.message().c_str());
  std::snprintf(mine.lacks, sizeof mine.lacks, "%s", lacks_.message().c_str());
  return mine;
}

Status Fallback::check_cards() {
  const auto yields =
      std::find_if(cards_.begin(), cards_.end(), [](const Card& card) { return *card.lacks; });
  if (yields != cards_.end()) lack_ = yields->lacks;
  for (size_t rank = 0; rank < cards_.size(); ++rank) {
    if (cards_[rank].able) continue;
    if (wanted_ == Backend::nccl)
      return fail(Code::unsupported, "rank {} cannot use NCCL: {}", rank, cards_[rank].why_not);
    if (takes_all_)
      return fail(Code::unsupported,
                  "Weft cannot take the GPU memory of rank {}: {}; NCCL cannot take it either, since rank {} "
                  "cannot use it: {}",
                  yields - cards_.begin(), lack_, rank, cards_[rank].why_not);
    return fail(Code::unsupported,
                "a buffer is device memory, but this communicator is of host memory: create it with "
                "config.device; NCCL cannot take it either, since rank {} cannot use it: {}",
                rank, cards_[rank].why_not);
  }
  return {};
}

nccl::Decision Fallback::decision() const {
  if (wanted_ == Backend::nccl) return {Backend::nccl, "its backend is set to nccl"};
  if (takes_all_) return {Backend::nccl, fmt::format("Weft cannot take its GPUs' memory: {}", lack_), true};
  return {Backend::nccl, "a buffer is device memory, but the communicator is of host memory", true};
}

// One thread may stand for several ranks, so all of them are asked together.
Status Fallback::create(const std::vector<Fallback*>& missing) {
  std::vector<engine::GroupCall> questions;
  std::vector<Card> mine(missing.size());
  for (size_t i = 0; i < missing.size(); ++i) {
    Fallback& own = *missing[i];
    mine[i] = own.card();
    own.cards_.assign(static_cast<size_t>(own.comm_->size()), Card{});
    engine::Call call;
    call.collective = Collective::all_gather;
    call.type = device::DataType::uint8;
    call.count = sizeof(Card);
    call.send = &mine[i];
    call.recv = own.cards_.data();
    // The communicator outlives the call, which is over when run_group returns.
    questions.emplace_back(std::shared_ptr<engine::Communicator>(std::shared_ptr<void>(), own.comm_), call);
  }
  WEFT_TRY(engine::run_group(questions));
  for (Fallback* own : missing) WEFT_TRY(own->check_cards());

  void* const context_before = nccl::gpu() ? nccl::gpu()->context() : nullptr;
  WEFT_TRY(check(functions().GroupStart(), "ncclGroupStart"));
  Status made;
  for (Fallback* own : missing) {
    if (nccl::gpu()) nccl::gpu()->enter(own->cuda_context_);
    const Status one = check(
        functions().CommInitRank(&own->nccl_, own->comm_->size(), own->cards_[0].id, own->comm_->rank()),
        "ncclCommInitRank");
    if (made.ok()) made = one;
  }
  const Status ended = check(functions().GroupEnd(), "ncclGroupEnd");
  if (nccl::gpu()) nccl::gpu()->restore(context_before);
  if (made.ok()) made = ended;
  for (Fallback* own : missing) {
    if (!made.ok()) own->nccl_ = nullptr;
    else nccl::tally::count_communicator(own->decision());
    own->cards_.clear();
  }
  return made;
}

// ---- Operations

Status Fallback::missing_of(const std::vector<NcclCall>& calls, std::vector<Fallback*>* missing) {
  for (const NcclCall& call : calls) {
    Fallback* whose = call.whose;
    if (whose->nccl_ || std::find(missing->begin(), missing->end(), whose) != missing->end()) continue;
    if (plan::is_transfer(call.call.collective))
      return fail(
          Code::invalid_usage,
          "the buffer is device memory, but this communicator is of host memory, so it is for NCCL, whose "
          "communicator can only be made by a collective, which all ranks call: call one first, or create "
          "the "
          "communicator with config.device");
    missing->push_back(whose);
  }
  return {};
}

Status Fallback::start(const std::vector<NcclCall>& calls) {
  std::vector<Fallback*> missing;
  WEFT_TRY(missing_of(calls, &missing));
  if (!missing.empty()) WEFT_TRY(create(missing));
  WEFT_TRY(check(functions().GroupStart(), "ncclGroupStart"));
  std::vector<std::vector<int>> operators(calls.size());  // to be destroyed
  Status started;
  for (size_t i = 0; i < calls.size() && started.ok(); ++i)
    started = calls[i].whose->start_one(calls[i], &operators[i]);
  const Status ended = check(functions().GroupEnd(), "ncclGroupEnd", calls.front().whose->nccl_);
  for (size_t i = 0; i < calls.size(); ++i)
    for (const int op : operators[i]) (void)functions().RedOpDestroy(op, calls[i].whose->nccl_);
  return started.ok() ? ended : started;
}

Status Fallback::finish(const std::vector<NcclCall>& calls) {
  if (!nccl::gpu()) return {};
  for (const NcclCall& call : calls)
    if (!call.call.cuda_stream) WEFT_TRY(nccl::gpu()->synchronize(nullptr));
  return {};
}

Status Fallback::start_one(const NcclCall& call, std::vector<int>* operators) const {
  nccl::tally::count_call(Backend::nccl);
  int op = static_cast<int>(call.call.op);
  if (call.call.premultiply) {
    constexpr int kHostImmediate = 1;
    WEFT_TRY(has(functions().RedOpCreatePreMulSum, "ncclRedOpCreatePreMulSum"));
    std::byte scalar[sizeof call.call.scalar];
    std::memcpy(scalar, call.call.scalar, sizeof scalar);
    WEFT_TRY(check(functions().RedOpCreatePreMulSum(&op, scalar, static_cast<int>(call.call.type),
                                                    kHostImmediate, nccl_),
                   "ncclRedOpCreatePreMulSum", nccl_));
    operators->push_back(op);
  }
  return launch(call, op);
}

Status Fallback::launch(const NcclCall& call, int op) const {
  const engine::Call& c = call.call;
  const Functions& f = functions();
  const int type = static_cast<int>(c.type);
  void* stream = c.cuda_stream;
  // Calls a function of NCCL's, if this NCCL has it.
  const auto with = [&](const char* name, auto* function, auto... arguments) -> Status {
    WEFT_TRY(has(function, name));
    return check(function(arguments..., nccl_, stream), name, nccl_);
  };
  // The same of one that an NCCL before 2.28.3 has not.
  const auto with_or = [&](const char* name, auto* function, auto* made, auto... arguments) -> Status {
    if (function) return with(name, function, arguments...);
    return made(**Library::get(), arguments..., nccl_, stream).in(name);
  };
  switch (c.collective) {
    case Collective::all_reduce: return with("ncclAllReduce", f.AllReduce, c.send, c.recv, c.count, type, op);
    case Collective::reduce: return with("ncclReduce", f.Reduce, c.send, c.recv, c.count, type, op, c.root);
    case Collective::reduce_scatter:
      return with("ncclReduceScatter", f.ReduceScatter, c.send, c.recv, c.count, type, op);
    case Collective::all_gather: return with("ncclAllGather", f.AllGather, c.send, c.recv, c.count, type);
    case Collective::broadcast:
      return with("ncclBroadcast", f.Broadcast, c.send, c.recv, c.count, type, c.root);
    case Collective::all_to_all:
      return with_or("ncclAlltoAll", f.AlltoAll, nccl::all_to_all, c.send, c.recv, c.count, type);
    case Collective::gather:
      return with_or("ncclGather", f.Gather, nccl::gather, c.send, c.recv, c.count, type, c.root);
    case Collective::scatter:
      return with_or("ncclScatter", f.Scatter, nccl::scatter, c.send, c.recv, c.count, type, c.root);
    case Collective::send: return with("ncclSend", f.Send, c.send, c.count, type, c.root);
    case Collective::recv: return with("ncclRecv", f.Recv, c.recv, c.count, type, c.root);
  }
  return fail(Code::internal_error, "a collective that NCCL does not have");
}

// ---- Registration, the end

Result<void*> Fallback::register_buffer(void* address, size_t bytes) {
  if (!nccl_)
    return fail(Code::invalid_usage,
                "buff is device memory, but this communicator is of host memory, so it is for NCCL, whose "
                "communicator "
                "is made by the first collective on device memory: register after it, or create the "
                "communicator with config.device");
  WEFT_TRY(has(functions().CommRegister, "ncclCommRegister"));
  void* handle = nullptr;
  WEFT_TRY(check(functions().CommRegister(nccl_, address, bytes, &handle), "ncclCommRegister", nccl_));
  const MutexLock guard(mutex_);
  registrations_.push_back(handle);
  return handle;
}

bool Fallback::deregister_buffer(void* handle) {
  {
    const MutexLock guard(mutex_);
    const auto known = std::find(registrations_.begin(), registrations_.end(), handle);
    if (known == registrations_.end()) return false;
    registrations_.erase(known);
  }
  if (functions().CommDeregister) (void)functions().CommDeregister(nccl_, handle);
  return true;
}

Status Fallback::finalize() {
  if (!nccl_ || aborted_ || !functions().CommFinalize) return {};
  return check(functions().CommFinalize(nccl_), "ncclCommFinalize", nccl_);
}

void Fallback::abort() {
  {
    const MutexLock guard(mutex_);  // waits until health() has left NCCL; later it does not enter
    if (!nccl_ || std::exchange(aborted_, true) || !functions().CommAbort) return;
  }
  (void)functions().CommAbort(nccl_);
}

Status Fallback::health() const {
  const MutexLock guard(mutex_);
  if (!nccl_ || aborted_ || !functions().CommGetAsyncError) return {};
  nccl::Result_t error = nccl::kSuccess;
  WEFT_TRY(check(functions().CommGetAsyncError(nccl_, &error), "ncclCommGetAsyncError", nccl_));
  return check(error, "an operation", nccl_);
}

}  // namespace weft::api
