// A machine with round numbers, for times that can be worked out by hand.
#pragma once

#include "model/cost.h"

namespace weft::model {

/// Messages take alpha (1 µs inside a node, 10 µs between) and 100 bytes/µs; memory work 1000 bytes/µs;
/// nothing else costs.
inline Machine plain_machine() {
  Machine machine;
  machine.name = "plain";
  machine.intra = {.alpha_us = 1, .overhead_us = 0, .bytes_per_us = 100, .by_cpu = true};
  machine.inter = {.alpha_us = 10, .overhead_us = 0, .bytes_per_us = 100, .by_cpu = false};
  machine.memory = {.cache_bytes = 1 << 20,
                    .copy_cached = 1000,
                    .copy_large = 500,
                    .reduce_cached = 1000,
                    .reduce_large = 500,
                    .peer_cached = 100,
                    .peer_large = 100,
                    .peer_reduced = 100,
                    .mapped_near = 100,
                    .mapped_cached = 100,
                    .mapped_large = 100};
  machine.nic_bytes_per_us = 100;
  machine.crossing = 1;
  machine.rails = 1;
  machine.cores = 1000;
  machine.switch_us = 0;
  machine.step_us = 0;
  machine.call_us = 0;
  return machine;
}

}  // namespace weft::model
