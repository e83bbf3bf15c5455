#include "nccl/transfers.h"

#include <cstddef>

#include "device/types.h"

namespace weft::nccl {
namespace {

/// One group of transfers of a communicator. Transfers to itself are allowed in a group. After an error
/// nothing more is called, but the group is ended: an open one would swallow the thread's later calls.
class Transfers {
 public:
  Transfers(const Library& nccl, int type, size_t count, Comm_t comm, Stream_t stream)
      : nccl_(nccl), type_(type), count_(count), comm_(comm), stream_(stream) {}

  /// Learns the communicator's ranks.
  Status ask() {
    const Functions& f = nccl_.functions();
    WEFT_TRY(nccl_.has(f.Send, "ncclSend"));
    WEFT_TRY(nccl_.has(f.Recv, "ncclRecv"));
    if (type_ < 0 || type_ >= device::kDataTypes)
      return fail(Code::invalid_argument, "datatype is {}, must be in [0, {})", type_, device::kDataTypes);
    WEFT_TRY(nccl_.check(f.CommCount(comm_, &ranks_), "ncclCommCount", comm_));
    return nccl_.check(f.CommUserRank(comm_, &rank_), "ncclCommUserRank", comm_);
  }
  Status begin() { return nccl_.check(nccl_.functions().GroupStart(), "ncclGroupStart", comm_); }
  Status check_root(int root) const {
    if (root >= 0 && root < ranks_) return {};
    return fail(Code::invalid_argument, "root is {}, must be in [0, {})", root, ranks_);
  }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  template <typename Byte>
  Byte* part(Byte* buffer, int of) const {
    return buffer + static_cast<size_t>(of) * count_ * device::size_of(static_cast<device::DataType>(type_));
  }
  void send(const std::byte* from, int to) {
    if (fine()) note(nccl_.functions().Send(from, count_, type_, to, comm_, stream_), "ncclSend");
  }
  void receive(std::byte* into, int from) {
    if (fine()) note(nccl_.functions().Recv(into, count_, type_, from, comm_, stream_), "ncclRecv");
  }
  Status end() {
    note(nccl_.functions().GroupEnd(), "ncclGroupEnd");
    return failed_;
  }

 private:
  /// That a communicator which does not block goes on is no error, but the answer where nothing else is.
  bool fine() const { return failed_.ok() || failed_.code() == Code::in_progress; }
  void note(int result, const char* what) {
    if (Status one = nccl_.check(result, what, comm_); fine() && !one.ok()) failed_ = one;
  }

  const Library& nccl_;
  const int type_;
  const size_t count_;
  const Comm_t comm_;
  const Stream_t stream_;
  int rank_ = 0, ranks_ = 0;
  Status failed_;
};

const std::byte* bytes(const void* buffer) { return static_cast<const std::byte*>(buffer); }
std::byte* bytes(void* buffer) { return static_cast<std::byte*>(buffer); }

}  // namespace

Status check_all_to_all(const void* send, const void* recv, size_t count, int ranks) {
  if (send != recv || count == 0 || ranks == 1) return {};
  return fail(
      Code::unsupported,
      "sendbuff is recvbuff, but this call is for NCCL, whose AlltoAll cannot be in place: give it two "
      "buffers");
}

Status all_to_all(const Library& nccl, const void* send, void* recv, size_t count, int type, Comm_t comm,
                  Stream_t stream) {
  Transfers transfers(nccl, type, count, comm, stream);
  WEFT_TRY(transfers.ask());
  WEFT_TRY(check_all_to_all(send, recv, count, transfers.ranks()));
  WEFT_TRY(transfers.begin());
  for (int peer = 0; count > 0 && send != recv && peer < transfers.ranks(); ++peer) {
    transfers.send(transfers.part(bytes(send), peer), peer);
    transfers.receive(transfers.part(bytes(recv), peer), peer);
  }
  return transfers.end();
}

Status gather(const Library& nccl, const void* send, void* recv, size_t count, int type, int root,
              Comm_t comm, Stream_t stream) {
  Transfers transfers(nccl, type, count, comm, stream);
  WEFT_TRY(transfers.ask());
  WEFT_TRY(transfers.check_root(root));
  const bool is_root = transfers.rank() == root;
  const bool own_part_is_there = is_root && send == transfers.part(bytes(recv), root);
  WEFT_TRY(transfers.begin());
  if (count > 0 && !own_part_is_there) transfers.send(bytes(send), root);
  for (int peer = 0; count > 0 && is_root && peer < transfers.ranks(); ++peer)
    if (peer != root || !own_part_is_there) transfers.receive(transfers.part(bytes(recv), peer), peer);
  return transfers.end();
}

Status scatter(const Library& nccl, const void* send, void* recv, size_t count, int type, int root,
               Comm_t comm, Stream_t stream) {
  Transfers transfers(nccl, type, count, comm, stream);
  WEFT_TRY(transfers.ask());
  WEFT_TRY(transfers.check_root(root));
  const bool is_root = transfers.rank() == root;
  const bool own_part_is_there = is_root && recv == transfers.part(bytes(send), root);
  WEFT_TRY(transfers.begin());
  for (int peer = 0; count > 0 && is_root && peer < transfers.ranks(); ++peer)
    if (peer != root || !own_part_is_there) transfers.send(transfers.part(bytes(send), peer), peer);
  if (count > 0 && !own_part_is_there) transfers.receive(bytes(recv), root);
  return transfers.end();
}

}  // namespace weft::nccl
