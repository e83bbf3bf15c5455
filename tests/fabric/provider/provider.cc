// A libfabric provider that behaves as EFA's does, for tests: reliable datagrams between processes of a host
// and within one. libfabric loads it from FI_PROVIDER_PATH, in place of its own `efa`. Messages, the packets
// of a write and completions arrive in any order. Endpoints are busy at times. Sizes are EFA's. It has no
// tags, no atomics and no order to ask for. settings.h has the environment variables.
//
// What it says nothing of: speed, and what EFA's cards do wrong.
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/providers/fi_prov.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "completions.h"
#include "domain.h"
#include "endpoint.h"
#include "objects.h"

namespace weft::fake_efa {
namespace {

constexpr char kName[] = "efa", kFabric[] = "efa-direct";
constexpr uint64_t kCapabilities =
    FI_MSG | FI_RMA | FI_SEND | FI_RECV | FI_WRITE | FI_REMOTE_WRITE | FI_LOCAL_COMM | FI_REMOTE_COMM;
constexpr uint64_t kOfWrites = FI_RMA | FI_WRITE | FI_REMOTE_WRITE;
constexpr int kMemory = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
constexpr size_t kOperations = 64;  // under way in each direction, as little as some cards have
constexpr size_t kInjectBytes = 32;

int memory_mode() { return settings().offsets ? kMemory : kMemory | FI_MR_VIRT_ADDR; }
std::string domain_name(int rail) { return "rdmap" + std::to_string(rail) + "s27-rdm"; }

bool is(const char* wanted, const char* here) {
  return !wanted || !*wanted || std::strcmp(wanted, here) == 0;
}

/// Whether what is asked for can be had, apart from the domain.
bool serves(const fi_info* hints) {
  if (!hints) return true;
  if ((hints->caps & ~kCapabilities) != 0 || !(hints->mode & FI_CONTEXT2)) return false;
  if (hints->addr_format != FI_FORMAT_UNSPEC && hints->addr_format != FI_ADDR_EFA) return false;
  if (const fi_fabric_attr* fabric = hints->fabric_attr)
    if (!is(fabric->prov_name, kName) || !is(fabric->name, kFabric)) return false;
  if (const fi_ep_attr* endpoint = hints->ep_attr)
    if ((endpoint->type != FI_EP_UNSPEC && endpoint->type != FI_EP_RDM) ||
        endpoint->max_msg_size > kWriteBytes)
      return false;
  if (const fi_tx_attr* sending = hints->tx_attr)
    if (sending->msg_order != 0 || sending->comp_order != 0 || sending->inject_size > kInjectBytes)
      return false;
  if (const fi_rx_attr* receiving = hints->rx_attr)
    if (receiving->msg_order != 0 || receiving->comp_order != 0) return false;
  const fi_domain_attr* domain = hints->domain_attr;
  return !domain || ((domain->mr_mode & memory_mode()) == memory_mode() &&
                     domain->data_progress != FI_PROGRESS_AUTO && domain->threading != FI_THREAD_SAFE);
}

fi_info* info_of(int rail, uint64_t caps) {
  fi_info* info = fi_allocinfo();
  info->caps = caps;
  info->mode = FI_CONTEXT2;
  info->addr_format = FI_ADDR_EFA;
  fi_tx_attr& tx = *info->tx_attr;
  tx.caps = caps & (FI_MSG | FI_RMA | FI_SEND | FI_WRITE);
  tx.mode = FI_CONTEXT2;
  tx.inject_size = kInjectBytes;
  tx.size = kOperations;
  tx.iov_limit = tx.rma_iov_limit = 1;
  fi_rx_attr& rx = *info->rx_attr;
  rx.caps = caps & (FI_MSG | FI_RMA | FI_RECV | FI_REMOTE_WRITE);
  rx.mode = FI_CONTEXT2;
  rx.size = kOperations;
  rx.iov_limit = 1;
  fi_ep_attr& endpoint = *info->ep_attr;
  endpoint.type = FI_EP_RDM;
  endpoint.protocol = FI_PROTO_EFA;
  endpoint.max_msg_size = caps & FI_RMA ? kWriteBytes : kMessageBytes;
  endpoint.tx_ctx_cnt = endpoint.rx_ctx_cnt = 1;
  fi_domain_attr& domain = *info->domain_attr;
  domain.name = strdup(domain_name(rail).c_str());
  domain.threading = FI_THREAD_DOMAIN;
  domain.control_progress = domain.data_progress = FI_PROGRESS_MANUAL;
  domain.resource_mgmt = FI_RM_DISABLED;
  domain.av_type = FI_AV_TABLE;
  domain.mr_mode = memory_mode();
  domain.mr_key_size = 4;
  domain.cq_data_size = 4;
  domain.cq_cnt = domain.ep_cnt = 256;
  domain.tx_ctx_cnt = domain.rx_ctx_cnt = 256;
  domain.max_ep_tx_ctx = domain.max_ep_rx_ctx = 1;
  domain.mr_iov_limit = 1;
  domain.caps = FI_LOCAL_COMM | FI_REMOTE_COMM;
  info->fabric_attr->name = strdup(kFabric);
  info->fabric_attr->prov_version = FI_VERSION(200, 0);
  return info;
}

int get_info(uint32_t /*version*/, const char* /*node*/, const char* /*service*/, uint64_t /*flags*/,
             const fi_info* hints, fi_info** list) {
  *list = nullptr;
  if (!serves(hints)) return -FI_ENODATA;
  const bool writes = !hints || hints->caps == 0 || (hints->caps & kOfWrites);
  const char* const wanted = hints && hints->domain_attr ? hints->domain_attr->name : nullptr;
  fi_info** next = list;
  for (int rail = 0; rail < settings().rails; ++rail) {
    if (!is(wanted, domain_name(rail).c_str())) continue;
    *next = info_of(rail, writes ? kCapabilities : kCapabilities & ~kOfWrites);
    next = &(*next)->next;
  }
  return *list ? 0 : -FI_ENODATA;
}

int close_domain(fid* fid) {
  delete static_cast<Domain*>(reinterpret_cast<fid_domain*>(fid));
  return 0;
}

int open_domain(fid_fabric* /*fabric*/, fi_info* info, fid_domain** made, void* context) {
  static fi_ops ops = object_ops(close_domain);
  static fi_ops_domain domain_ops = [] {
    fi_ops_domain table{};
    table.size = sizeof table;
    table.av_open = open_addresses;
    table.cq_open = open_queue;
    table.endpoint = open_endpoint;
    return table;
  }();
  int rail = 0;
  while (rail < settings().rails && domain_name(rail) != info->domain_attr->name) ++rail;
  if (rail == settings().rails) return -FI_ENODATA;
  auto* domain = new Domain(rail);
  domain->fid = {.fclass = FI_CLASS_DOMAIN, .context = context, .ops = &ops};
  domain->ops = &domain_ops;
  *made = domain;
  return 0;
}

int close_fabric(fid* fid) {
  delete reinterpret_cast<fid_fabric*>(fid);
  return 0;
}

int open_fabric(fi_fabric_attr* attributes, fid_fabric** made, void* context) {
  if (!is(attributes->name, kFabric)) return -FI_ENODATA;
  static fi_ops ops = object_ops(close_fabric);
  static fi_ops_fabric fabric_ops = [] {
    fi_ops_fabric table{};
    table.size = sizeof table;
    table.domain = open_domain;
    table.trywait = [](fid_fabric*, fid**, int) { return -FI_ENOSYS; };
    return table;
  }();
  auto* fabric = new fid_fabric{};
  fabric->fid = {.fclass = FI_CLASS_FABRIC, .context = context, .ops = &ops};
  fabric->ops = &fabric_ops;
  *made = fabric;
  return 0;
}

}  // namespace
}  // namespace weft::fake_efa

/// Younger than any other provider of this name, so that libfabric keeps this one.
extern "C" __attribute__((visibility("default"))) fi_provider* fi_prov_ini() {
  static fi_provider provider = [] {
    fi_provider made{};
    made.version = FI_VERSION(200, 0);
    made.fi_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
    made.name = weft::fake_efa::kName;
    made.getinfo = weft::fake_efa::get_info;
    made.fabric = weft::fake_efa::open_fabric;
    made.cleanup = [] {};
    return made;
  }();
  return &provider;
}
