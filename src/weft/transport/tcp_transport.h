// TcpTransport: messages and puts over TCP connections, made when there is something to send.
//
// It keeps peers, connections and the one epoll instance; what travels is in tcp_frame.h, how it gets out in
// tcp_sender.h, how it comes in in tcp_receiver.h. It makes no listening socket: connections to peers come
// from the Connector that it is given, those from peers through accept().
//
// Lines: a pair of ranks has a line for each rail. Whichever end comes first opens it and both use it, which
// saves the kernel acknowledgements of their own: half of all segments, where ranks exchange messages. Where
// both open one at once, each writes on its own. But long streams in both directions of one connection hold
// each other up, and messages beside them. So a rank may put on lines of its own (Options::puts_apart): then
// line 0 is for messages, the lower rank's if there are two, and line 1 + r for its opener's puts on rail r.
//
// What it asks of the engine's Sink beyond transport.h: place() is asked before every single write of a
// payload that does not come in one piece, with the envelope of the whole message or put, and the answer is
// used at once and not kept. So memory may be taken away between any two calls: from then on place() answers
// null, and the rest of a put is thrown away. arrived() is still called then, with a null payload. `payload`
// of arrived() has no alignment.
//
// Rails: a put is cut into segments, and every rail takes the next one when it has room. Further lines are
// connected when there are segments for them.
//
// Rows: whoever sends short messages to a peer one upon the other, and never looks in between whether
// anything has come, as the root of a row of Broadcasts does, gets nothing from sending each at once; a write
// costs more than what it carries. So from some messages on (Options::gathers_rows, tcp_rows.h) they wait for
// each other for a while, to all peers together, and until the next poll() at most. Who stops polling has to
// let somebody look after what waits then: waits_since() says whether there is anything, and flushed() that
// it is not out.
//
// Streams: whoever only gets short messages, as fast as they can be sent, and looks for each at once, is in
// its sender's way, who delivers them into the same socket. So after a look in vain at such a stream the next
// one waits until some more have come.
//
// Flight: what is on its way to one peer is bounded (bound_flight()), as its port's queue is. Where a long
// way makes that much, ranks that put to several peers at once would fill the queues of all: there those
// share what two may have, as far as the kernel does not have their puts yet.
//
// Watching: being in an epoll instance costs whoever sends, at every arrival. So a few links that have news
// again and again are taken out of it and read at each look instead; before anybody sleeps they are watched
// again.
//
// Loss: a peer is lost when a connection with it ends in any way. What it had sent before is still delivered:
// lost() is called when all of its connections are read to their end, 100 ms later at the latest.
// Completions of puts to a lost peer stay as they are; the memory is not read any more.
//
// Thread safety: as Transport; accept() may be called from any thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/mutex.h"
#include "transport/eager.h"
#include "transport/tcp_receiver.h"
#include "transport/tcp_rows.h"
#include "transport/tcp_sender.h"
#include "transport/transport.h"

namespace weft::transport {

/// Opens a line to a peer over a rail; its transport gets the other end, and the line's number, through
/// accept(). May block until then.
using Connector = std::function<Result<UniqueFd>(int peer, int rail, uint32_t line, Deadline deadline)>;

class TcpTransport final : public Transport {
 public:
  struct Options {
    int rails = 1;                                   // network interfaces that a put is spread over, at most
    bool puts_apart = false;                         // on lines of their own; all ranks alike
    size_t eager_bytes = net_eager_bytes(Net::tcp);  // largest message
    size_t queue_bytes = 1 << 20;      // of messages waiting on one connection before send() answers busy
    size_t segment_bytes = 512 << 10;  // of a put in one frame
    size_t unsent_bytes = 256 << 10;   // waiting in the kernel on one connection, 0 = no bound of our own
    int64_t gather_ns = 0;  // for which a short message may wait for others to share a write (tcp_sender.h)
    size_t gather_put_bytes = 0;  // puts shorter than this may wait so, too, until together they are as long
    bool gathers_rows = false;    // short messages in a row share writes: see above
    bool patient = false;         // a poll() leaves to the next one what there may be a place for by then
    double connect_timeout_s = 10;
    bool crowded = false;  // more ranks than cores on this host: a poll that finds nothing is thorough
  };

  /// Errors: invalid_argument for an option out of range, system_error where the kernel refuses descriptors.
  static Result<std::unique_ptr<TcpTransport>> create(int rank, int ranks, Connector connector,
                                                      const Options& options);
  /// Closes all connections at once; what flush() has not brought out may be cut off.
  ~TcpTransport() override;

  /// A peer has opened a line to this rank. From any thread; the next poll() takes it over.
  Status accept(int peer, uint32_t line, UniqueFd connection);

  /// Whether messages in a row share writes from now on, where Options::gathers_rows lets them.
  void gather_rows(bool gathers) { gathers_rows_ = options_.gathers_rows && gathers; }
  /// Since when anything may wait that has been accepted, for others to share a write with it; 0: nothing
  /// does. By the clock of now_ns(), from any thread.
  int64_t waits_since() const { return waits_since_ns_.load(std::memory_order_relaxed); }

  /// Returns when the peers' kernels have everything that was handed over, puts included: destroying this
  /// then loses nothing, even with unread input. For an orderly end: nothing is received here in the
  /// meantime. Errors: timeout that names a rank that does not take its data, remote_error for one that is
  /// lost meanwhile.
  Status flush(Deadline deadline);

  std::string describe() const override;
  size_t eager_bytes() const override { return options_.eager_bytes; }
  size_t brief_put_bytes() const override { return std::min(options_.eager_bytes, kBriefPut); }
  Result<Progress> send(int peer, const Envelope& envelope, const void* payload) override;
  Result<RemoteBuffer> expose(void* address, size_t bytes) override;
  void unexpose(const RemoteBuffer& buffer) override;
  Result<Progress> put(int peer, const Envelope& envelope, const void* source, size_t bytes,
                       const RemoteBuffer& target, uint64_t offset, Completion* done) override;
  void forget(const Completion* first, const Completion* last) override;
  void bound_flight(size_t bytes) override;
  uint64_t ticket() const override { return counters_.messages_sent + counters_.puts; }
  bool flushed(uint64_t ticket) override;
  Result<int> poll(Sink& sink) override;
  bool prepare_sleep() override;
  void finish_sleep() override { may_sleep_ = false; }
  Status watch(int epoll_fd) override;
  Counters counters() const override { return counters_; }

 private:
  struct LinkId {
    int peer = -1;  // -1: none
    size_t index = 0;
    bool operator==(const LinkId&) const = default;
  };
  struct Link {
    Link(int peer, size_t line, bool opened_here, UniqueFd fd, tcp::PutAssembly& puts, bool patient)
        : line(line),
          opened_here(opened_here),
          socket(std::move(fd)),
          receiver(peer, socket, puts, patient) {}
    const size_t line;
    const bool opened_here;
    tcp::Socket socket;
    tcp::Receiver receiver;
    LinkId followed_by;  // which link had something next, the last time that this one had
    uint64_t wakes = 0;  // the value of wakes_ when `reads` began
    uint32_t reads = 0;  // with news, since anybody may have slept; while in hot_: in vain, in a row
  };
  struct Peer {
    tcp::PutAssembly puts;
    std::vector<std::unique_ptr<Link>> links;  // a link keeps its place; null once it has ended
    std::unique_ptr<tcp::Sender> sender;       // from the first send on, over some of the links
    size_t lines = 0;                          // that the sender has been given
    size_t usable_lines = 0;                   // fewer than lines() where one could not be connected
    bool active = false;                       // listed in active_
    bool pending = false;                      // counted in pending_peers_
    bool putting = false;                      // … in putting_peers_
    size_t flight_bytes = 0;                   // the bound of its lines for puts
    Status failure;                            // not ok: lost
    int64_t failed_at_ns = 0;
    bool heard = false;     // has opened a connection, or sent something over ours
    bool reported = false;  // as lost
    tcp::Row row;           // of messages sent to it
  };
  struct Arrival {
    int peer;
    uint32_t line;
    UniqueFd connection;
  };

  TcpTransport(int rank, int ranks, Connector connector, const Options& options);
  Status open();

  Result<tcp::Sender*> sender_to(int peer);
  /// What is longer does not pass through a queue of messages, and stays out of their way where puts have
  /// lines of their own. As long as blocks of an AlltoAll that are sent without asking (plan/exchange.cc).
  static constexpr size_t kBriefPut = 16 << 10;
  size_t lines() const { return static_cast<size_t>(options_.rails) + (options_.puts_apart ? 1 : 0); }
  size_t flight_of(size_t line, size_t for_puts) const;
  size_t shared_flight() const;
  void share_flight(Peer& peer);
  Status add_line(int peer);
  void add_further_lines(int peer);
  Result<Link*> adopt(int peer, size_t line, bool opened_here, UniqueFd connection);
  static Link* find_line(const Peer& peer, size_t line, bool opened_here);
  static void settle(Peer& peer, Link& theirs);
  void take_over(Arrival arrival);
  int take_over_accepted();
  Status pump(int peer, int* events);
  void activate(int peer);
  void count_pending(Peer& peer);
  void gather_row(const Peer& peer, int64_t now);

  int write_all();
  Result<int> read_all(Sink& sink);
  bool rests();
  int read_expected(Sink& sink);
  int read_put_off(Sink& sink);
  int read_hot(Sink& sink, LinkId but);
  int read_link(Sink& sink, LinkId id);
  void heat(Link& link, LinkId id);
  Link* find(LinkId id);  // null if it has ended
  int serve(Sink& sink, int peer, size_t link, uint32_t epoll_events);
  void fail_peer(int peer, Status why);
  int report_lost(Sink& sink);
  int unflushed_peer() const;

  const int rank_;
  const Connector connector_;
  const Options options_;
  Counters counters_;
  size_t flight_bytes_ = 0;   // see bound_flight()
  uint64_t flushed_ = 0;      // every message and put up to this ticket is with the kernel
  std::vector<Peer> peers_;   // by rank
  size_t putting_peers_ = 0;  // to which puts are under way
  size_t pending_peers_ = 0;  // to which not everything is with the kernel
  std::vector<int> active_;   // peers to which something can be written now
  std::vector<int> writing_;  // those whose turn it is in write_all(); empty outside of it
  uint64_t looks_ = 0;        // calls of poll()
  bool gathers_rows_;
  int64_t row_until_ns_ = 0;                // messages in a row wait for others
  std::atomic<int64_t> waits_since_ns_{0};  // see waits_since(); written by whoever may poll
  std::vector<int> failing_;                // peers that failed and are not reported yet
  std::vector<std::byte> scratch_;          // of all receivers

  UniqueFd epoll_;
  UniqueFd doorbell_;  // rung by accept()
  // The link that followed, the time before, on the one that had something last is read first and without
  // epoll: algorithms go round their peers in the same order again and again.
  LinkId last_, expected_;
  int idle_reads_ = 0;           // of the expected one, in a row
  uint32_t streamed_ = 0;        // reads with news, one upon the other, with nothing sent in between …
  uint64_t streamed_since_ = 0;  // … since this ticket
  int64_t rests_until_ns_ = 0;   // 0: it does not rest
  int skipped_epolls_ = 0;       // polls in a row that read nothing else
  uint64_t bytes_read_ = 0;      // in all
  std::vector<LinkId> hot_;      // that are read without being watched
  bool may_sleep_ = false;       // between a prepare_sleep() that said so and its end
  uint64_t wakes_ = 0;           // how often that was
  std::vector<LinkId> put_off_;  // links with messages that were left to the next poll
  std::vector<LinkId> resumed_;  // those that read_put_off() goes through; empty outside of it

  Mutex inbox_mutex_;
  std::vector<Arrival> inbox_ WEFT_GUARDED_BY(inbox_mutex_);
};

}  // namespace weft::transport
