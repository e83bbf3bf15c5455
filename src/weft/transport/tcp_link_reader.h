// LinkReader: which of a TCP transport's links are read in a poll, and in which order. A look at all links
// costs a system call, and so does each read that finds nothing. So links are treated by what they did:
//
//   expected  The reader tries one link first, without epoll: the one that had something after the same link
//             the time before. Algorithms go round their peers in the same order again and again.
//   resting   A rank that receives short messages as fast as they can be sent would hold up their sender,
//             which delivers into the same socket. So in such a stream a read that finds nothing is followed
//             by 3 us without any read.
//   hot       Being in an epoll instance costs the sender of each arrival. So the reader takes a few links
//             out of it that have something again and again. It reads them at each thorough poll, until a
//             thread is about to sleep.
//   put off   A patient receiver leaves to the next poll the messages that may have a place by then.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "transport/message_transport.h"
#include "transport/tcp_channels.h"
#include "transport/tcp_options.h"
#include "transport/tcp_peers.h"

namespace weft::transport::tcp {

class LinkReader {
 public:
  /// The arguments outlive this.
  LinkReader(PeerTable& peers, Channels& channels, const TcpOptions& options);
  /// Makes the epoll instance that the channels are opened with.
  Status open();
  int epoll_fd() const { return epoll_.get(); }

  /// Whether nothing is to be read yet.
  bool rests();
  /// Reads what has come. Returns the number of events. `ticket` stands for what the transport has accepted.
  Result<int> read(Sink& sink, uint64_t ticket);

  /// Whether a thread may sleep on the epoll instance; if so, until finish_sleep().
  bool prepare_sleep();
  void finish_sleep() { asleep_ = false; }
  bool asleep() const { return asleep_; }

 private:
  int read_expected(Sink& sink, uint64_t ticket);
  int read_put_off(Sink& sink);
  Result<int> read_watched(Sink& sink);
  int read_hot(Sink& sink, LinkId but);
  int read_link(Sink& sink, LinkId id);
  int serve(Sink& sink, LinkId id, uint32_t epoll_events);
  void heat(Link& link, LinkId id);

  PeerTable& peers_;
  Channels& channels_;
  const TcpOptions& options_;
  UniqueFd epoll_;
  std::vector<std::byte> scratch_;  // of all receivers
  LinkId last_, expected_;
  int idle_reads_ = 0;           // consecutive ones, of the expected link
  uint32_t streamed_ = 0;        // consecutive reads that found something, with nothing sent in between …
  uint64_t streamed_since_ = 0;  // … since this ticket
  int64_t rests_until_ns_ = 0;   // 0: it does not rest
  int skipped_epolls_ = 0;       // consecutive polls that read the expected link alone
  uint64_t bytes_read_ = 0;      // in all
  std::vector<LinkId> hot_;
  std::vector<LinkId> put_off_;  // links with messages that were left to the next poll
  std::vector<LinkId> resumed_;  // those that read_put_off() goes through; empty outside of it
  bool asleep_ = false;          // between a prepare_sleep() that returned true and finish_sleep()
  uint64_t wakes_ = 0;           // how often a thread was about to sleep
};

}  // namespace weft::transport::tcp
