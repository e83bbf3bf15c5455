#include "seam.h"

namespace weft::nccl_net {

std::unique_ptr<transport::Transport> decorate(std::unique_ptr<transport::Transport> transport) {
  return transport;
}

}  // namespace weft::nccl_net
