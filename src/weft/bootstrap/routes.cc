// Routes by rtnetlink(7).
#include "bootstrap/routes.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <set>
#include <span>

#include "base/fork.h"
#include "base/log.h"
#include "base/mutex.h"

namespace weft::bootstrap {
namespace {

std::span<const std::byte> bytes_of(const SocketAddress& address) {
  if (address.family() == AF_INET) return std::as_bytes(std::span(&address.as_v4().sin_addr, 1));
  return std::as_bytes(std::span(&address.as_v6().sin6_addr, 1));
}

/// The question for one route.
struct Question {
  nlmsghdr header{};
  rtmsg route{};
  std::array<std::byte, 2 * (RTA_SPACE(sizeof(in6_addr)))> attributes{};

  Question(const SocketAddress& from, const SocketAddress& to) {
    header.nlmsg_type = RTM_GETROUTE;
    header.nlmsg_flags = NLM_F_REQUEST;
    header.nlmsg_len = NLMSG_LENGTH(sizeof route);
    route.rtm_family = static_cast<unsigned char>(to.family());
    route.rtm_src_len = add(RTA_SRC, bytes_of(from));
    route.rtm_dst_len = add(RTA_DST, bytes_of(to));
  }

 private:
  /// Returns the bits of the value.
  unsigned char add(unsigned short type, std::span<const std::byte> value) {
    std::byte* const at = reinterpret_cast<std::byte*>(this) + NLMSG_ALIGN(header.nlmsg_len);
    const rtattr head{static_cast<unsigned short>(RTA_LENGTH(value.size())), type};
    std::memcpy(at, &head, sizeof head);
    std::memcpy(at + RTA_LENGTH(0), value.data(), value.size());
    header.nlmsg_len = NLMSG_ALIGN(header.nlmsg_len) + static_cast<unsigned>(RTA_SPACE(value.size()));
    return static_cast<unsigned char>(8 * value.size());
  }
};
static_assert(offsetof(Question, attributes) == NLMSG_LENGTH(sizeof(rtmsg)));

/// What the kernel answers: one message, in `memory`.
Result<const nlmsghdr*> ask(const Question& question, std::span<std::byte> memory) {
  const UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!socket.valid()) return fail_errno(errno, "socket of rtnetlink");
  if (::send(socket.get(), &question, question.header.nlmsg_len, 0) < 0)
    return fail_errno(errno, "asking for a route");
  const ssize_t bytes = ::recv(socket.get(), memory.data(), memory.size(), 0);
  if (bytes < 0) return fail_errno(errno, "hearing of a route");
  const auto* answer = reinterpret_cast<const nlmsghdr*>(memory.data());
  if (!NLMSG_OK(answer, static_cast<unsigned>(bytes)))
    return fail(Code::system_error, "rtnetlink said too little");
  if (answer->nlmsg_type == NLMSG_ERROR)
    return fail_errno(-static_cast<const nlmsgerr*>(NLMSG_DATA(answer))->error, "asking for a route");
  return answer;
}

}  // namespace

Result<bool> leaves_by(const std::string& interface, const SocketAddress& from, const SocketAddress& to) {
  alignas(nlmsghdr) std::array<std::byte, 4096> memory{};
  const Result<const nlmsghdr*> answer = ask(Question(from, to), memory);
  if (!answer.ok()) return answer.status();
  const auto* route = static_cast<const rtmsg*>(NLMSG_DATA(*answer));
  if (route->rtm_type == RTN_LOCAL) return true;
  int left = static_cast<int>(RTM_PAYLOAD(*answer));
  for (const rtattr* each = RTM_RTA(route); RTA_OK(each, left); each = RTA_NEXT(each, left)) {
    if (each->rta_type != RTA_OIF) continue;
    unsigned index = 0;
    std::memcpy(&index, RTA_DATA(each), sizeof index);
    return index == if_nametoindex(interface.c_str());
  }
  return fail(Code::system_error, "the route from {} to {} names no interface", from.to_string(false),
              to.to_string(false));
}

SocketAddress own_end(const std::string& interface, const SocketAddress& own, const SocketAddress& target) {
  if (own.family() != target.family()) return {};
  const bool other_link = own.link_local() && target.link_local() && own.scope() != target.scope();
  if (other_link) return {};  // the kernel would refuse the connection
  const Result<bool> leaves = leaves_by(interface, own, target);
  if (leaves.ok() && *leaves) return own;
  static ForkSafeMutex mutex;
  static std::set<std::string>& told = *new std::set<std::string>;
  const MutexLock lock(mutex);
  if (told.insert(interface).second)
    log::info("this host does not send by {} what goes from {} to {}{}: connections go as its routes say",
              interface, own.to_string(false), target.to_string(false),
              leaves.ok() ? "" : " (" + leaves.status().message() + ")");
  return {};
}

}  // namespace weft::bootstrap
