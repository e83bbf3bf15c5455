// How an error leaves the plugin: as a sentence through NCCL's logger, and as a result code.
//
// Thread safety: all functions.
#pragma once

#include "abi.h"
#include "base/status.h"

namespace weft::nccl_net {

/// NCCL's logger, given at every init(); null takes Weft's own log.
void set_logger(abi::Logger logger);

/// Errors and warnings have all of NCCL's subsystems, information those of initialization and network.
/// Logs what is wrong and returns the nearest of NCCL's codes; success passes silently.
abi::Result report(const Status& status);
void warn(const std::string& text);
void inform(const std::string& text);

/// The code alone.
abi::Result result_of(const Status& status);

}  // namespace weft::nccl_net
