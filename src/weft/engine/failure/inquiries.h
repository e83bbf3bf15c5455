// Inquiries: questions to peers about what they have called (verdict.h), on a thread of its own, one at a
// time.
//
// Thread safety: under the context's lock, but for close().
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <thread>

namespace weft::engine {

class Context;

class Inquiries {
 public:
  using Inquiry = std::function<void()>;

  explicit Inquiries(Context& context) : context_(context) {}

  /// Runs an inquiry; false while another one runs.
  bool ask(Inquiry inquiry);
  /// The same, after the one that runs. Of each communicator one at most waits: the first.
  void ask_in_turn(uint32_t comm, Inquiry inquiry);
  /// Drops those that wait and returns when none runs. Takes the context's lock.
  void close();

 private:
  Inquiry next();

  Context& context_;
  std::thread thread_;
  bool running_ = false;
  std::map<uint32_t, Inquiry> waiting_;  // by communicator
};

}  // namespace weft::engine
