// The functions of libfabric that go to an endpoint or an address vector.
#include <rdma/fi_errno.h>

#include <cstring>

#include "endpoint.h"
#include "objects.h"

namespace weft::fake_efa {
namespace {

// ---- Address vectors

int insert(fid_av* fid, const void* addresses, size_t count, fi_addr_t* given, uint64_t /*flags*/,
           void* /*context*/) {
  AddressVector& vector = *static_cast<AddressVector*>(fid);
  const Use use(vector.domain);
  for (size_t i = 0; i < count; ++i) {
    Address address;
    std::memcpy(&address, static_cast<const std::byte*>(addresses) + i * sizeof address, sizeof address);
    if (given) given[i] = vector.addresses.size();
    vector.addresses.push_back(address);
  }
  return static_cast<int>(count);
}

int close_addresses(fid* fid) {
  delete static_cast<AddressVector*>(reinterpret_cast<fid_av*>(fid));
  return 0;
}

// ---- Endpoints

Endpoint& endpoint_of(fid* fid) { return *static_cast<Endpoint*>(reinterpret_cast<fid_ep*>(fid)); }
Endpoint& endpoint_of(fid_ep* fid) { return *static_cast<Endpoint*>(fid); }

int close_endpoint(fid* fid) {
  Endpoint& endpoint = endpoint_of(fid);
  const Use use(endpoint.domain());
  delete &endpoint;
  return 0;
}

int bind_endpoint(fid* fid, struct fid* other, uint64_t /*flags*/) {
  Endpoint& endpoint = endpoint_of(fid);
  const Use use(endpoint.domain());
  if (other->fclass == FI_CLASS_AV)
    endpoint.bind(*static_cast<AddressVector*>(reinterpret_cast<fid_av*>(other)));
  else if (other->fclass == FI_CLASS_CQ)
    endpoint.bind(*static_cast<CompletionQueue*>(reinterpret_cast<fid_cq*>(other)));
  else return -FI_EINVAL;
  return 0;
}

int control_endpoint(fid* fid, int command, void* /*argument*/) {
  Endpoint& endpoint = endpoint_of(fid);
  const Use use(endpoint.domain());
  return command == FI_ENABLE ? endpoint.enable() : -FI_ENOSYS;
}

int name_of_endpoint(fid* fid, void* into, size_t* bytes) {
  const Address& address = endpoint_of(fid).address();
  const size_t room = std::exchange(*bytes, sizeof address);
  std::memcpy(into, &address, std::min(room, sizeof address));
  return room < sizeof address ? -FI_ETOOSMALL : 0;
}

/// It has no option: what is written comes in no order, and no memory of a GPU is reached.
int set_option(fid*, int, int, const void*, size_t) { return -FI_ENOPROTOOPT; }

ssize_t receive(fid_ep* fid, void* buffer, size_t bytes, void* descriptor, fi_addr_t /*from*/,
                void* context) {
  Endpoint& endpoint = endpoint_of(fid);
  const Use use(endpoint.domain());
  return endpoint.receive({static_cast<std::byte*>(buffer), bytes, context}, descriptor);
}

ssize_t send(fid_ep* fid, const void* buffer, size_t bytes, void* descriptor, fi_addr_t to, void* context) {
  Endpoint& endpoint = endpoint_of(fid);
  const Use use(endpoint.domain());
  if (bytes > kMessageBytes) return -FI_EMSGSIZE;
  return endpoint.post(buffer, bytes, descriptor, to, PacketHeader(), context);
}

ssize_t write_data(fid_ep* fid, const void* buffer, size_t bytes, void* descriptor, uint64_t data,
                   fi_addr_t to, uint64_t address, uint64_t key, void* context) {
  Endpoint& endpoint = endpoint_of(fid);
  const Use use(endpoint.domain());
  if (bytes > kWriteBytes) return -FI_EMSGSIZE;
  PacketHeader header;
  header.kind = PacketHeader::Kind::write;
  header.has_data = 1;
  header.data = static_cast<uint32_t>(data);
  header.address = address;
  header.key = key;
  return endpoint.post(buffer, bytes, descriptor, to, header, context);
}

}  // namespace

int open_addresses(fid_domain* domain, fi_av_attr* /*attributes*/, fid_av** made, void* context) {
  static fi_ops ops = object_ops(close_addresses);
  static fi_ops_av vector_ops = [] {
    fi_ops_av table{};
    table.size = sizeof table;
    table.insert = insert;
    return table;
  }();
  auto* vector = new AddressVector(*static_cast<Domain*>(domain));
  vector->fid = {.fclass = FI_CLASS_AV, .context = context, .ops = &ops};
  vector->ops = &vector_ops;
  *made = vector;
  return 0;
}

int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** made, void* context) {
  static fi_ops ops = object_ops(close_endpoint, bind_endpoint, control_endpoint);
  static fi_ops_ep endpoint_ops{};
  static fi_ops_cm address_ops{};
  static fi_ops_msg message_ops{};
  static fi_ops_rma write_ops{};
  static const bool filled = [] {
    endpoint_ops.size = sizeof endpoint_ops;
    endpoint_ops.setopt = set_option;
    address_ops.size = sizeof address_ops;
    address_ops.getname = name_of_endpoint;
    message_ops.size = sizeof message_ops;
    message_ops.recv = receive;
    message_ops.send = send;
    write_ops.size = sizeof write_ops;
    write_ops.writedata = write_data;
    return true;
  }();
  (void)filled;
  auto* endpoint = new Endpoint(*static_cast<Domain*>(domain), *info);
  endpoint->fid = {.fclass = FI_CLASS_EP, .context = context, .ops = &ops};
  endpoint->ops = &endpoint_ops;
  endpoint->cm = &address_ops;
  endpoint->msg = &message_ops;
  endpoint->rma = &write_ops;
  *made = endpoint;
  return 0;
}

}  // namespace weft::fake_efa
