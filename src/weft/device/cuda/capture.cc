#include "device/cuda/capture.h"

namespace weft::device::cuda {

Result<Capture> capture_of(StreamHandle* stream) {
  const Driver& d = **driver();
  int capturing = kCaptureNone;
  const int asked = d.stream_is_capturing(stream, &capturing);
  if (asked == kStreamCaptureImplicit)
    return fail(
        Code::unsupported,
        "stream is the default stream while a CUDA graph is being captured on another one, which forbids "
        "its use and ends the capture; give Weft a stream of its own (cudaStreamCreateWithFlags, "
        "cudaStreamNonBlocking)");
  WEFT_TRY(check(asked, "cuStreamIsCapturing"));
  Capture capture;
  if (capturing == kCaptureNone) return capture;
  if (capturing == kCaptureActive) {
    if (!d.stream_get_capture_info)
      return fail(
          Code::unsupported,
          "a CUDA graph is being captured on the stream, and the driver has no "
          "cuStreamGetCaptureInfo (it is for CUDA {}.{}, 11.3 brought it): end the capture before the call",
          d.version / 1000, d.version % 1000 / 10);
    WEFT_TRY(
        check(d.stream_get_capture_info(stream, &capturing, &capture.id, &capture.graph, nullptr, nullptr),
              "cuStreamGetCaptureInfo"));
  }
  if (capturing == kCaptureInvalidated)
    return fail(Code::invalid_usage,
                "the capture of a CUDA graph on the stream has failed before this call; end it "
                "(cudaStreamEndCapture) and use the stream again");
  return capture;
}

Status keep_with(GraphHandle* graph, std::shared_ptr<void> what) {
  const Driver& d = **driver();
  auto* const kept = new std::shared_ptr<void>(std::move(what));
  const auto let_go = [](void* data) { delete static_cast<std::shared_ptr<void>*>(data); };
  UserObjectHandle* object = nullptr;
  if (Status made = check(d.user_object_create(&object, kept, let_go, 1, kUserObjectNoDestructorSync),
                          "cuUserObjectCreate");
      !made) {
    delete kept;
    return made;
  }
  Status retained =
      check(d.graph_retain_user_object(graph, object, 1, kUserObjectMove), "cuGraphRetainUserObject");
  if (!retained.ok()) (void)d.user_object_release(object, 1);
  return retained;
}

}  // namespace weft::device::cuda
