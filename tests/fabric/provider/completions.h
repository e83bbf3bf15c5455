// CompletionQueue: completions come late and in no order. It has nothing to sleep on, as EFA's has not, and
// reading it is what makes progress.
//
// Thread safety: as its domain's.
#pragma once

#include <rdma/fi_eq.h>

#include <deque>

#include "domain.h"
#include "late.h"

namespace weft::fake_efa {

class Endpoint;

struct Completion {
  fi_cq_data_entry entry{};
  int error = 0;  // libfabric's, positive
};

struct CompletionQueue : fid_cq {
  explicit CompletionQueue(Domain& its_domain) : fid_cq{}, domain(its_domain) {}
  void add(const Completion& completion, Chance& chance, int slowness) {
    late.add(completion, chance, slowness);
  }

  Domain& domain;
  Endpoint* endpoint = nullptr;
  Late<Completion> late;
  std::deque<Completion> ready;
};

/// fi_cq_open.
int open_queue(fid_domain* domain, fi_cq_attr* attributes, fid_cq** queue, void* context);

}  // namespace weft::fake_efa
