// Receiver: the receiving end of a connection. It clears long receives as they are posted, keeps short
// messages that come before their receive, and files everything by name.
//
// Thread safety: as Connection.
#pragma once

#include <unordered_map>
#include <unordered_set>

#include "connection.h"

namespace weft::nccl_net {

class Receiver final : public Connection {
 public:
  explicit Receiver(Introduction introduction);
  ~Receiver() override;

  /// Starts `count` receives, each of one message; null: no room, try again later. Errors: invalid_argument.
  /// Over a lost connection it still takes what came before.
  Result<Request*> receive(int count, void* const* data, const size_t* bytes, const int* tags,
                           void* const* memory);

 private:
  struct Posted {
    Request* request;
    Request::Part* part;
    bool cleared;
  };
  struct Early {
    std::vector<std::byte> payload;
  };

  void* place(const transport::Envelope& envelope) override;
  void arrived(const transport::Envelope& envelope, const void* payload) override;
  void withdraw(Request& request) override;
  bool complete(Request& request) override;

  void match(Request& request, Request::Part& part, std::vector<Clear>& clears);
  void tell(const std::vector<Clear>& clears);
  void clear_all();
  void asked(const transport::Envelope& envelope);
  void keep(const transport::Envelope& envelope, const void* payload);
  void fill(const Posted& posted, const void* payload, size_t bytes);
  void refused(const transport::Envelope& envelope, const void* payload);
  void consumed_one();

  std::unordered_map<int, uint32_t> turns_;       // next one, by tag
  std::unordered_map<uint64_t, Posted> posted_;   // by name
  std::unordered_map<uint64_t, Early> early_;     // by name
  std::unordered_set<uint64_t> asked_;            // names of long messages whose receive is not posted yet
  bool long_ones_ = true;                         // are expected
  uint64_t eager_consumed_ = 0, eager_told_ = 0;  // since the beginning
};

}  // namespace weft::nccl_net
