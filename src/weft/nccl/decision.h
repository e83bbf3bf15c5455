// Which library performs the operations of a communicator, Weft or NCCL, and why: what WEFT_BACKEND=auto
// means on this machine.
#pragma once

#include <span>
#include <string>

#include "base/status.h"

namespace weft::nccl {

enum class Backend { automatic, weft, nccl };
/// "auto", "weft", "nccl".
const char* name_of(Backend backend);
/// WEFT_BACKEND.
Backend wanted_backend();

struct Decision {
  Backend backend;         // never automatic
  std::string reason;      // a clause that can follow "because"
  bool fell_back = false;  // to NCCL by "auto", which is to be Weft: worth a warning
};

/// What the driver or these CUDA devices lack so that Weft cannot take their memory, while NCCL might: an
/// error that names it. ok if nothing is lacking, if a device does not exist, or if the process may use no
/// GPU. Makes no CUDA context.
Status lacking(std::span<const int> devices);

/// For a program that was written for NCCL, whose buffers are in device memory wherever there is a GPU. By
/// itself it is Weft wherever Weft can be, and NCCL where Weft lacks what it needs of the driver. Asks the
/// driver, and looks for NCCL, only where the answer depends on it.
Decision decide(Backend wanted);
/// The same for a communicator of these CUDA devices (none if the process may use no GPU). It is NCCL also
/// if Weft cannot take one of them. The chosen library reports a device that does not exist. Makes no CUDA
/// context: if there is no room for one, NCCL finds none either.
Decision decide(Backend wanted, std::span<const int> devices);

}  // namespace weft::nccl
