#include "handshake.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>

#include "base/fork.h"
#include "base/log.h"
#include "base/settings.h"
#include "bootstrap/interfaces.h"
#include "bootstrap/routes.h"
#include "bootstrap/socket.h"
#include "report.h"

namespace weft::nccl_net {
namespace {

constexpr double kGreeting_s = 10;  // that a guest has to greet
constexpr size_t kMostGuests = 64;  // that have not greeted yet

/// Moves as much of an object over a socket as goes at once. Returns whether all has gone.
enum class Direction { out, in };
template <typename T>
Result<bool> move_some(Direction direction, int socket, T& object, size_t& moved) {
  auto* bytes = reinterpret_cast<std::byte*>(&object);
  while (moved < sizeof object) {
    const ssize_t step = direction == Direction::out
                             ? ::send(socket, bytes + moved, sizeof object - moved, MSG_NOSIGNAL)
                             : ::recv(socket, bytes + moved, sizeof object - moved, 0);
    if (step > 0) moved += static_cast<size_t>(step);
    else if (step == 0) return fail(Code::remote_error, "the other side closed the connection");
    else if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    else if (errno != EINTR) return fail(Code::remote_error, "{}", std::strerror(errno));
  }
  return true;
}

std::string peer_name(int socket) {
  sockaddr_storage raw{};
  socklen_t bytes = sizeof raw;
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&raw), &bytes) != 0) return "a peer that has gone";
  return bootstrap::SocketAddress(reinterpret_cast<const sockaddr*>(&raw)).to_string();
}

/// What NCCL's configuration asks of the network and this plugin does not do.
void say_once(const Status& why) {
  static ForkSafeMutex mutex;
  static std::set<std::string>& told = *new std::set<std::string>;
  const std::lock_guard lock(mutex);
  if (told.insert(why.message()).second) (void)report(why);
}

/// The class that the sockets of a connection are to have: what was asked for, or -1.
int16_t possible_class(int wanted, Way way) {
  constexpr int kLargest = 255;
  if (wanted < 0) return -1;
  if (way != Way::tcp)
    say_once(fail(Code::unsupported,
                  "traffic class {} is ignored: this plugin sets it on sockets, and has no way to ask "
                  "libfabric for it",
                  wanted));
  else if (wanted > kLargest)
    say_once(fail(Code::unsupported, "traffic class {} is ignored: it must be at most {}", wanted, kLargest));
  else return static_cast<int16_t>(wanted);
  return -1;
}

// A socket of IPv6 may speak IPv4, whose mark it has besides.
Status set_traffic_class(int socket, int traffic_class) {
  int family = AF_INET;
  socklen_t bytes = sizeof family;
  if (::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &family, &bytes) != 0)
    return fail_errno(errno, "getsockopt(SO_DOMAIN)");
  const int v4 = ::setsockopt(socket, IPPROTO_IP, IP_TOS, &traffic_class, sizeof traffic_class);
  if (family == AF_INET) return v4 == 0 ? Status() : fail_errno(errno, "setsockopt(IP_TOS)");
  const int v6 = ::setsockopt(socket, IPPROTO_IPV6, IPV6_TCLASS, &traffic_class, sizeof traffic_class);
  return v6 == 0 ? Status() : fail_errno(errno, "setsockopt(IPV6_TCLASS)");
}

void mark(int socket, int traffic_class) {
  if (traffic_class < 0) return;
  if (const Status set = set_traffic_class(socket, traffic_class); !set.ok())
    say_once(set.in(fmt::format("traffic class {} is ignored", traffic_class)));
}

template <typename Bytes>
void put_fabric_address(const Endpoint& endpoint, Bytes& into) {
  const std::vector<std::byte> address = endpoint.fabric_address();
  std::copy_n(address.begin(), std::min(address.size(), into.size()), into.begin());
}

}  // namespace

// ---- Dialer

Result<std::unique_ptr<Dialer>> Dialer::start(const Device& device, std::shared_ptr<Endpoint> endpoint,
                                              const Handle& handle, int traffic_class) {
  if (handle.way != static_cast<uint8_t>(device.way))
    return fail(
        Code::mismatch,
        "device {} uses {}, but the handle to connect to is of a device that does not: set WEFT_NET and "
        "WEFT_PROVIDER alike on all hosts",
        device.name, device.way == Way::tcp ? "sockets" : "libfabric");
  std::unique_ptr<Dialer> dialer(new Dialer(device, std::move(endpoint), handle));
  WEFT_TRY(dialer->open(device.way == Way::ofi ? 0 : std::min<size_t>(device.rails.size(), handle.rails),
                        possible_class(traffic_class, device.way)));
  return dialer;
}

Status Dialer::open(size_t rails, int traffic_class) {
  Greeting greeting = greeting_for(handle_);
  greeting.sockets = static_cast<uint8_t>(1 + rails);
  greeting.traffic_class = static_cast<int16_t>(traffic_class);
  greeting.dial = random_number();
  greeting.connection = Endpoint::kFirstConnection;
  if (endpoint_) {
    {
      const std::lock_guard held(endpoint_->mutex());
      const Result<int> number = endpoint_->number_of(handle_.endpoint);
      if (!number.ok()) return number.status();
      peer_ = *number;
      put_fabric_address(*endpoint_, greeting.fabric_address);
    }
    sender_ = std::make_unique<Sender>(Introduction{endpoint_, peer_, handle_.address(0).to_string()});
    greeting.connection = sender_->number();
    greeting.endpoint = endpoint_->id();
    greeting.peer_number = static_cast<uint32_t>(peer_);
    greeting.eager_bytes = static_cast<uint32_t>(endpoint_->blind_limit());
  } else {
    greeting.eager_bytes = static_cast<uint32_t>(Endpoint::tcp_blind_limit());
  }
  for (size_t i = 0; i < greeting.sockets; ++i) {
    greeting.socket = static_cast<uint8_t>(i);
    WEFT_TRY(connect_socket(greeting, i == 0 ? 0 : i - 1));
  }
  return {};
}

Status Dialer::connect_socket(const Greeting& greeting, size_t rail) {
  const bootstrap::SocketAddress& own = device_.addresses[device_.way == Way::tcp ? rail : 0];
  const Result<bootstrap::SocketAddress> target =
      bootstrap::as_reached(handle_.address(rail), own, settings().socket_ifname);
  if (!target.ok()) return target.status();
  Result<UniqueFd> socket = bootstrap::begin_connect(*target, own_end(rail, *target));
  if (!socket.ok()) return socket.status();
  mark(socket->get(), greeting.traffic_class);
  sockets_.push_back({socket.take(), greeting});
  return {};
}

bootstrap::SocketAddress Dialer::own_end(size_t rail, const bootstrap::SocketAddress& target) const {
  if (device_.way != Way::tcp) return {};
  return bootstrap::own_end(device_.rails[rail], device_.addresses[rail], target);
}

Result<std::unique_ptr<Sender>> Dialer::advance() {
  const std::string where = fmt::format("connecting to {}", handle_.address(0).to_string());
  bool all_greeted = true;
  for (Socket& socket : sockets_) {
    const Result<bool> greeted = greet(socket);
    if (!greeted.ok()) return greeted.status().in(where);
    all_greeted = all_greeted && *greeted;
  }
  if (!all_greeted) return std::unique_ptr<Sender>();
  const Result<bool> answered = hear_answer();
  if (!answered.ok()) return answered.status().in(where);
  return *answered ? finish() : std::unique_ptr<Sender>();
}

Result<bool> Dialer::greet(Socket& socket) {
  if (!socket.connected) {
    pollfd entry{socket.fd.get(), POLLOUT, 0};
    if (::poll(&entry, 1, 0) <= 0) return false;
    if (const int error = bootstrap::connect_outcome(socket.fd.get()); error != 0)
      return fail(Code::remote_error, "{}", std::strerror(error));
    socket.connected = true;
  }
  return move_some(Direction::out, socket.fd.get(), socket.greeting, socket.sent);
}

Result<bool> Dialer::hear_answer() {
  const Result<bool> whole = move_some(Direction::in, sockets_.front().fd.get(), answer_, heard_);
  if (!whole.ok() || !*whole) return whole;
  if (answer_.proof != proof_of(handle_.secret))
    return fail(Code::protocol_error,
                "whoever answered is not this plugin, or not the one that wrote the handle");
  if (answer_.code != 0) {
    answer_.text[sizeof answer_.text - 1] = 0;
    return fail(static_cast<Code>(answer_.code), "{}", answer_.text);
  }
  return true;
}

Result<std::unique_ptr<Sender>> Dialer::finish() {
  const Terms terms = terms_of(sockets_.front().greeting, answer_);
  UniqueFd handshake = std::move(sockets_.front().fd);
  bootstrap::notice_dead_host(handshake.get());
  if (endpoint_) {
    {
      const std::lock_guard held(endpoint_->mutex());
      WEFT_TRY(endpoint_->introduce(peer_, answer_.fabric_address, answer_.peer_number));
    }
    sender_->begin(answer_.connection, terms, std::move(handshake));
    return std::move(sender_);
  }
  std::vector<UniqueFd> rails;
  for (size_t i = 1; i < sockets_.size(); ++i) rails.push_back(std::move(sockets_[i].fd));
  Result<std::shared_ptr<Endpoint>> endpoint = Endpoint::over_tcp(Endpoint::kSenderSide, std::move(rails));
  if (!endpoint.ok()) return endpoint.status();
  auto sender = std::make_unique<Sender>(
      Introduction{*endpoint, Endpoint::kReceiverSide, handle_.address(0).to_string()});
  sender->begin(answer_.connection, terms, std::move(handshake));
  const std::lock_guard held((*endpoint)->mutex());
  WEFT_TRY((*endpoint)->poll());
  return sender;
}

// ---- Listener

Result<std::unique_ptr<Listener>> Listener::open(const Device& device, std::shared_ptr<Endpoint> endpoint) {
  Result<UniqueFd> socket = bootstrap::listen_everywhere(0);
  if (!socket.ok()) return socket.status();
  const Result<bootstrap::SocketAddress> local = bootstrap::local_address(socket->get());
  if (!local.ok()) return local.status();
  const Result<bootstrap::Secret> secret = bootstrap::random_secret();
  if (!secret.ok()) return secret.status();
  const Handle handle = write_handle(device, local->port(), endpoint ? endpoint->id() : 0, *secret);
  return std::unique_ptr<Listener>(new Listener(std::move(endpoint), socket.take(), handle));
}

Result<std::unique_ptr<Receiver>> Listener::accept() {
  WEFT_TRY(let_in());
  std::erase_if(guests_, [this](Guest& guest) { return !hear(guest); });
  std::vector<Guest> party = complete_party();
  if (party.empty()) return std::unique_ptr<Receiver>();
  return welcome(std::move(party));
}

/// What this process or host has none left of is an error, since NCCL would ask again for ever.
Status Listener::let_in() {
  int error = 0;
  while (guests_.size() < kMostGuests) {
    UniqueFd socket = bootstrap::accept_from(socket_.get(), &error);
    if (!socket.valid())
      return bootstrap::is_exhausted(error) ? fail_errno(error, "accepting a connection") : Status();
    bootstrap::send_at_once(socket.get());
    std::string name = peer_name(socket.get());
    guests_.push_back({std::move(socket), std::move(name), {}, 0, Deadline::in_seconds(kGreeting_s)});
  }
  return {};
}

bool Listener::hear(Guest& guest) {
  if (guest.heard == sizeof guest.greeting) return true;
  const Result<bool> whole = move_some(Direction::in, guest.socket.get(), guest.greeting, guest.heard);
  // The secret comes first; a guest that does not know it is not listened to any longer.
  const bool knows = guest.heard < sizeof guest.greeting.secret ||
                     bootstrap::equal_secrets(guest.greeting.secret, handle_.secret);
  if (!whole.ok() || !knows || (!*whole && guest.deadline.passed())) {
    log::warn("nccl_net: sent {} away, which {}", guest.name,
              !knows       ? "does not know the secret"
              : whole.ok() ? "did not greet in time"
                           : "left before it had greeted");
    return false;
  }
  if (!*whole) return true;
  const Status good = check_greeting(guest.greeting, static_cast<Way>(handle_.way));
  if (good.ok()) return true;
  log::warn("nccl_net: sent {} away: {}", guest.name, good.message());
  Answer answer;
  answer.proof = proof_of(handle_.secret);
  answer.code = static_cast<uint32_t>(good.code());
  good.message().copy(answer.text, sizeof answer.text - 1);
  size_t sent = 0;
  (void)move_some(Direction::out, guest.socket.get(), answer, sent);
  return false;
}

/// The guests who are all sockets of one connection, in order; none if there is no such.
std::vector<Listener::Guest> Listener::complete_party() {
  for (const Guest& first : guests_) {
    if (first.heard < sizeof first.greeting || first.greeting.socket != 0) continue;
    const Greeting& greeting = first.greeting;
    const auto belongs = [&](const Guest& guest) {
      return guest.heard == sizeof guest.greeting && guest.greeting.dial == greeting.dial;
    };
    if (std::count_if(guests_.begin(), guests_.end(), belongs) != greeting.sockets) continue;
    const uint64_t dial = greeting.dial;
    std::vector<Guest> party;
    for (Guest& guest : guests_)
      if (belongs(guest)) party.push_back(std::move(guest));
    std::erase_if(guests_, [&](const Guest& guest) { return guest.greeting.dial == dial; });
    std::sort(party.begin(), party.end(),
              [](const Guest& a, const Guest& b) { return a.greeting.socket < b.greeting.socket; });
    return party;
  }
  return {};
}

Result<std::unique_ptr<Receiver>> Listener::welcome(std::vector<Guest> party) {
  const Greeting& greeting = party.front().greeting;
  const std::string& name = party.front().name;
  for (const Guest& guest : party) mark(guest.socket.get(), greeting.traffic_class);
  UniqueFd handshake = std::move(party.front().socket);
  bootstrap::notice_dead_host(handshake.get());
  Answer answer;
  answer.proof = proof_of(handle_.secret);
  std::shared_ptr<Endpoint> endpoint = endpoint_;
  int peer = Endpoint::kSenderSide;
  if (endpoint) {
    const std::lock_guard held(endpoint->mutex());
    const Result<int> number = endpoint->number_of(greeting.endpoint);
    if (!number.ok()) return number.status();
    peer = *number;
    WEFT_TRY(endpoint->introduce(peer, greeting.fabric_address, greeting.peer_number));
    put_fabric_address(*endpoint, answer.fabric_address);
  } else {
    std::vector<UniqueFd> rails;
    for (size_t i = 1; i < party.size(); ++i) rails.push_back(std::move(party[i].socket));
    Result<std::shared_ptr<Endpoint>> opened = Endpoint::over_tcp(Endpoint::kReceiverSide, std::move(rails));
    if (!opened.ok()) return opened.status();
    endpoint = *opened;
  }
  auto receiver = std::make_unique<Receiver>(Introduction{endpoint, peer, name});
  answer.connection = receiver->number();
  answer.peer_number = static_cast<uint32_t>(peer);
  answer.eager_bytes = static_cast<uint32_t>(endpoint->blind_limit());
  answer.landing_bytes = receiver->landing_bytes();
  size_t sent = 0;  // a new socket has room for it
  const Result<bool> answered = move_some(Direction::out, handshake.get(), answer, sent);
  if (!answered.ok()) return answered.status().in(fmt::format("answering {}", name));
  if (!*answered)
    return fail(Code::system_error, "the socket with {} takes no {} bytes", name, sizeof answer);
  receiver->begin(greeting.connection, terms_of(greeting, answer), std::move(handshake));
  const std::lock_guard held(endpoint->mutex());
  WEFT_TRY(endpoint->poll());
  return receiver;
}

}  // namespace weft::nccl_net
