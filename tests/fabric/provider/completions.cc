#include "completions.h"

#include <rdma/fi_errno.h>

#include <cstdio>

#include "endpoint.h"
#include "objects.h"

namespace weft::fake_efa {
namespace {

CompletionQueue& queue_of(fid_cq* queue) { return *static_cast<CompletionQueue*>(queue); }

ssize_t read_queue(fid_cq* fid, void* into, size_t count) {
  CompletionQueue& queue = queue_of(fid);
  const Use use(queue.domain);
  if (queue.endpoint) queue.endpoint->progress();
  if (queue.ready.empty()) return -FI_EAGAIN;
  if (queue.ready.front().error != 0) return -FI_EAVAIL;
  auto* entries = static_cast<fi_cq_data_entry*>(into);
  size_t read = 0;
  for (; read < count && !queue.ready.empty() && queue.ready.front().error == 0; ++read) {
    entries[read] = queue.ready.front().entry;
    queue.ready.pop_front();
  }
  return static_cast<ssize_t>(read);
}

ssize_t read_error(fid_cq* fid, fi_cq_err_entry* into, uint64_t /*flags*/) {
  CompletionQueue& queue = queue_of(fid);
  const Use use(queue.domain);
  if (queue.ready.empty() || queue.ready.front().error == 0) return -FI_EAGAIN;
  const Completion failed = queue.ready.front();
  queue.ready.pop_front();
  into->op_context = failed.entry.op_context;
  into->flags = failed.entry.flags;
  into->len = failed.entry.len;
  into->data = failed.entry.data;
  into->err = into->prov_errno = failed.error;
  into->err_data_size = 0;
  return 1;
}

const char* text_of(fid_cq*, int error, const void*, char* into, size_t bytes) {
  const char* text = "the card reports an error";
  if (error == FI_ECONNABORTED) text = "the endpoint of the peer is gone";
  if (error == FI_EREMOTEIO) text = "the peer has not registered the target of the write";
  if (error == FI_ENETDOWN) text = "the card has failed";
  if (error == FI_EFAULT) text = "the memory is not registered any more, or not there";
  if (into && bytes > 0) std::snprintf(into, bytes, "%s", text);
  return text;
}

int close_queue(fid* fid) {
  delete &queue_of(reinterpret_cast<fid_cq*>(fid));
  return 0;
}

}  // namespace

int open_queue(fid_domain* domain, fi_cq_attr* attributes, fid_cq** queue, void* context) {
  if (attributes->wait_obj != FI_WAIT_NONE) return -FI_ENOSYS;
  if (attributes->format != FI_CQ_FORMAT_DATA) return -FI_ENOSYS;
  static fi_ops ops = object_ops(close_queue);
  static fi_ops_cq queue_ops = {
      .size = sizeof queue_ops,
      .read = read_queue,
      .readfrom = [](fid_cq*, void*, size_t, fi_addr_t*) -> ssize_t { return -FI_ENOSYS; },
      .readerr = read_error,
      .sread = [](fid_cq*, void*, size_t, const void*, int) -> ssize_t { return -FI_ENOSYS; },
      .sreadfrom = [](fid_cq*, void*, size_t, fi_addr_t*, const void*, int) -> ssize_t { return -FI_ENOSYS; },
      .signal = [](fid_cq*) { return -FI_ENOSYS; },
      .strerror = text_of};
  auto* made = new CompletionQueue(*static_cast<Domain*>(domain));
  made->fid = {.fclass = FI_CLASS_CQ, .context = context, .ops = &ops};
  made->ops = &queue_ops;
  *queue = made;
  return 0;
}

}  // namespace weft::fake_efa
