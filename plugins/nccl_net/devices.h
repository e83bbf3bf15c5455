// Devices: what NCCL sees as network cards. One for each network interface, where sockets are used, or each
// libfabric domain; and virtual ones that NCCL makes of several, over whose rails a connection stripes. Opens
// nothing.
//
// Thread safety: all functions. A Device never changes and lives as long as the process.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/fork.h"
#include "base/status.h"
#include "bootstrap/address.h"

namespace weft::nccl_net {

/// Rails of one connection, at most: what a handle has room for.
inline constexpr size_t kMostRails = 4;

enum class Way : uint8_t { tcp = 1, ofi = 2 };

struct Device {
  Way way = Way::tcp;
  std::string name;                // "eth0"; "eth0+eth1" if virtual
  std::string pci_path;            // of the card in /sys; "" where there is none
  uint64_t guid = 0;               // differs between ports, and hosts
  int megabit_per_s = 0;           // of all rails together
  std::vector<int> parts;          // numbers of the devices that it is made of; its own if it is not virtual
  std::string provider;            // of libfabric
  std::vector<std::string> rails;  // interfaces, or domains
  // Where connections to this device are made: over TCP one address a rail, else one for the handshake.
  std::vector<bootstrap::SocketAddress> addresses;
};

class Devices {
 public:
  /// This process's, as WEFT_NET, WEFT_PROVIDER and WEFT_SOCKET_IFNAME choose, discovered by the first call.
  /// Fails with what discovery or a wrong setting says.
  static Result<Devices*> get();

  int count() const;
  /// From here on no virtual device is counted that is not made again. The numbers of all stay valid until
  /// then.
  void count_afresh();
  /// Fails with invalid_argument for a number that no device has.
  Result<const Device*> at(int number) const;
  /// A device over the rails of all `parts`, and its number. A part may be named twice: two rails on one
  /// card. Fails with invalid_argument for no parts, or more than kMostRails, or one that does not exist or
  /// is virtual itself.
  Result<int> combine(std::span<const int> parts);

 private:
  Status discover();
  Status discover_tcp();
  Status discover_ofi(const std::string& provider);
  void add(Device device);

  mutable ForkSafeMutex mutex_;
  std::vector<std::unique_ptr<const Device>> devices_;   // first the physical ones
  std::vector<std::unique_ptr<const Device>> replaced_;  // virtual ones whose number another one has now
  size_t physical_ = 0;
  size_t counted_ = 0;
};

}  // namespace weft::nccl_net
