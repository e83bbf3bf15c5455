// A group of Weft's calls, which is closed whatever happens.
#ifndef WEFT_TORCH_CALL_GROUP_H_
#define WEFT_TORCH_CALL_GROUP_H_

#include <weft/weft.h>

namespace weft_torch {

class CallGroup {
 public:
  CallGroup() { weftGroupStart(); }
  ~CallGroup() {
    if (open_) weftGroupEnd();
  }
  CallGroup(const CallGroup&) = delete;
  CallGroup& operator=(const CallGroup&) = delete;

  weftResult_t end() {
    open_ = false;
    return weftGroupEnd();
  }

 private:
  bool open_ = true;
};

}  // namespace weft_torch

#endif  // WEFT_TORCH_CALL_GROUP_H_
