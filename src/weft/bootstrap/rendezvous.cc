// Meeting at the root: trying until it is there, then waiting for its word.
#include "bootstrap/rendezvous.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <random>
#include <thread>

#include "base/cancellation.h"
#include "base/settings.h"
#include "bootstrap/interfaces.h"
#include "bootstrap/socket.h"
#include "bootstrap/wire.h"

namespace weft::bootstrap {
namespace {

constexpr double kFirstPause_s = 0.005, kLongestPause_s = 0.5;
constexpr int kVisits = 3;
constexpr double kOneTry_s = 5;  // of connecting; a host that is just booting swallows packets
constexpr double kShutOutAfter_s =
    2;  // how long a root may close our connections before we believe that it means us

Deadline earlier(Deadline a, Deadline b) { return a.at_ns() < b.at_ns() ? a : b; }

/// Reads the proof. Other bytes are recognised by the first of them; a short answer is not waited for.
Status read_proof(int fd, const SocketAddress& address, const Proof& proof, Deadline deadline) {
  Proof answer;
  for (size_t have = 0; have < answer.size();) {
    if (!wait_for(fd, POLLIN, deadline)) {
      return fail(Code::timeout, "{} took the connection, but did not answer before the deadline",
                  address.to_string());
    }
    const ssize_t got = ::recv(fd, answer.data() + have, answer.size() - have, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0)
      return fail(Code::remote_error, "{} closed the connection without an answer", address.to_string());
    have += static_cast<size_t>(got);
    const auto end = answer.begin() + static_cast<ptrdiff_t>(have);
    if (!std::equal(answer.begin(), end, proof.begin()))
      return not_weft(address, std::span(answer).first(have));
  }
  return {};
}

/// What became of one try to register.
struct Try {
  Status status;
  bool again = false;     // nobody was there, or not yet
  bool shut_out = false;  // somebody closed the connection instead of answering
  Meeting meeting;
};

Try failed(Status status, bool again = false) { return {std::move(status), again, false, {}}; }

Status read_refusal(const Frame& frame) {
  FrameReader reader(frame.body);
  const auto code = static_cast<Code>(reader.u32());
  const std::string sentence = reader.text();
  const bool known = reader.ok() && code > Code::ok && code <= Code::unsupported;
  return known ? Status(code, sentence) : fail(Code::protocol_error, "the root's refusal is malformed");
}

Try await_word(int fd, Meeting meeting, const SocketAddress& root, Deadline deadline) {
  Result<Frame> word = recv_frame(fd, kMaxHelloBytes + kFrameHeaderBytes, deadline);
  if (!word.ok()) {
    const bool late = word.status().code() == Code::timeout;
    return failed(late ? fail(Code::timeout, "not all ranks came to the root at {} before the deadline",
                              root.to_string())
                       : word.status().in(fmt::format("the root at {} went away while ranks were meeting",
                                                      root.to_string())));
  }
  if (word->kind == FrameKind::refused) return failed(read_refusal(*word));
  FrameReader reader(word->body);
  const std::string parent = reader.text();
  if (word->kind != FrameKind::met || !reader.ok()) {
    return failed(fail(Code::protocol_error, "the root at {} sent a frame that is no word of a root",
                       root.to_string()));
  }
  if (!parent.empty()) {
    Result<SocketAddress> address = SocketAddress::parse(parent);
    if (address.ok()) address = as_reached(*address, meeting.rails.front(), settings().socket_ifname);
    if (!address.ok()) return failed(address.status());
    meeting.parent = *address;
  }
  return {Status(), false, false, std::move(meeting)};
}

Try register_once(const Job& job, int rank, int ranks, uint16_t port, Deadline deadline) {
  Result<UniqueFd> fd = connect_to(job.root, earlier(deadline, Deadline::in_seconds(kOneTry_s)));
  if (!fd.ok()) return failed(fd.status(), fd.status().code() != Code::system_error);
  Result<SocketAddress> local = local_address(fd->get());
  if (!local.ok()) return failed(local.status());
  Result<std::vector<SocketAddress>> rails =
      rail_addresses(local->with_port(port), settings().socket_ifname, settings().rails);
  if (!rails.ok()) return failed(rails.status());

  const auto hello = FrameWriter(FrameKind::join)
                         .u32(static_cast<uint32_t>(rank))
                         .u32(static_cast<uint32_t>(ranks))
                         .u32(static_cast<uint32_t>(deadline.remaining_ms(INT32_MAX - 1)))
                         .text(rails->front().with_scope(0).to_string())
                         .take();
  Status greeted = send_all(fd->get(), greeting(job.secret, hello), deadline);
  if (greeted.ok()) greeted = read_proof(fd->get(), job.root, job.proof, deadline);
  if (!greeted.ok()) {
    const bool closed = greeted.code() == Code::remote_error;
    return {greeted.in("the root"), closed, closed, {}};
  }
  return await_word(fd->get(), {SocketAddress(), rails.take()}, job.root, deadline);
}

}  // namespace

Result<Meeting> meet_at_root(Job job, int rank, int ranks, uint16_t port, Deadline deadline) {
  const Result<SocketAddress> root = as_reached(job.root, {}, settings().socket_ifname);
  if (!root.ok()) return root.status();
  job.root = *root;
  // Ranks that found nobody should not all come back at once.
  std::minstd_rand jitter(static_cast<unsigned>(rank) + 1);
  double pause_s = kFirstPause_s;
  int64_t shut_out_since_ns = 0;
  for (;;) {
    Try attempt = register_once(job, rank, ranks, port, deadline);
    if (attempt.status.ok()) return std::move(attempt.meeting);
    if (!attempt.again || Cancellation::requested()) return attempt.status;
    if (!attempt.shut_out) {
      shut_out_since_ns = 0;
    } else if (shut_out_since_ns == 0) {
      shut_out_since_ns = now_ns();
    } else if (now_ns() - shut_out_since_ns > static_cast<int64_t>(kShutOutAfter_s * 1e9)) {
      return fail(
          Code::protocol_error,
          "{} closes every connection without an answer: the root of another job listens there (the secrets, "
          "or the numbers of ranks, differ), or no root of Weft",
          job.root.to_string());
    }
    const double wait_s = pause_s * std::uniform_real_distribution<double>(0.5, 1.0)(jitter);
    if (Deadline::in_seconds(wait_s).at_ns() >= deadline.at_ns()) {
      return fail(Code::timeout,
                  "no root of the job answered at {} before the deadline (last: {}): rank 0, or the process "
                  "that made the unique id, must run on that host, which WEFT_ROOT or MASTER_ADDR may have "
                  "named, and wait for the others; WEFT_INIT_TIMEOUT_S lets all wait longer",
                  job.root.to_string(), attempt.status.message());
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(wait_s));
    pause_s = std::min(pause_s * 1.5, kLongestPause_s);
  }
}

Result<UniqueFd> visit(const SocketAddress& address, const Job& job, std::vector<std::byte> hello,
                       Deadline deadline) {
  const std::vector<std::byte> first_bytes = greeting(job.secret, std::move(hello));
  for (int tries = 1;; ++tries) {
    Result<UniqueFd> fd = connect_to(address, deadline);
    if (!fd.ok()) return fd;
    Status greeted = send_all(fd->get(), first_bytes, deadline).in(address.to_string());
    if (greeted.ok()) greeted = read_proof(fd->get(), address, job.proof, deadline);
    if (greeted.ok()) return fd;
    // On a busy host this thread may have sent its greeting after the acceptor's time limit. A peer that is
    // gone refuses the next connection.
    if (greeted.code() != Code::remote_error || tries == kVisits) return greeted;
  }
}

}  // namespace weft::bootstrap
