// The seam at which tests put a decorator between the plugin and a transport.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace weft::nccl_net {

/// Called with every transport that the plugin opens; the plugin itself returns it as it is.
std::unique_ptr<transport::Transport> decorate(std::unique_ptr<transport::Transport> transport);

}  // namespace weft::nccl_net
