// A libnccl.so.2 for tests that does nothing but note what it was called with: every function of the list in
// nccl/abi.h, made by the preprocessor. A communicator that it "makes" is a number.
#include <cstdint>
#include <string>
#include <string_view>

#include "recorded_call.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace weft::nccl {
namespace {

std::string last;
int calls = 0;
uintptr_t communicators = 0;

/// What a program cannot do without.
template <typename Argument>
void write(std::string_view, Argument) {}
void write(std::string_view name, int* to) {
  if (name == "GetVersion") *to = FAKE_VERSION;
}
void write(std::string_view, Comm_t* to) { *to = reinterpret_cast<Comm_t>(++communicators << 12); }

template <typename Value, typename... Arguments>
Value called(const char* name, Arguments... arguments) {
  last = nccl_shim_test::call_text(name, arguments...);
  ++calls;
  (write(name, arguments), ...);
  return nccl_shim_test::answer<Value>();
}

}  // namespace

EXPORT const char* recordedCall() { return last.c_str(); }
EXPORT int recordedCalls() { return calls; }
EXPORT Comm_t recordedComm() { return reinterpret_cast<Comm_t>(communicators << 12); }

// NAMED (int, void*) is `int p1, void* p2`, and GIVEN (int, void*) is `, p1, p2`.
#define COUNT_(a, b, c, d, e, f, g, h, i, j, k, n, ...) n
#define COUNT(...) COUNT_(__VA_ARGS__ __VA_OPT__(, ) 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, )
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define NAMED_0()
#define NAMED_1(a) a p1
#define NAMED_2(a, b) NAMED_1(a), b p2
#define NAMED_3(a, b, c) NAMED_2(a, b), c p3
#define NAMED_4(a, b, c, d) NAMED_3(a, b, c), d p4
#define NAMED_5(a, b, c, d, e) NAMED_4(a, b, c, d), e p5
#define NAMED_6(a, b, c, d, e, f) NAMED_5(a, b, c, d, e), f p6
#define NAMED_7(a, b, c, d, e, f, g) NAMED_6(a, b, c, d, e, f), g p7
#define NAMED_8(a, b, c, d, e, f, g, h) NAMED_7(a, b, c, d, e, f, g), h p8
#define NAMED_9(a, b, c, d, e, f, g, h, i) NAMED_8(a, b, c, d, e, f, g, h), i p9
#define NAMED_10(a, b, c, d, e, f, g, h, i, j) NAMED_9(a, b, c, d, e, f, g, h, i), j p10
#define NAMED_11(a, b, c, d, e, f, g, h, i, j, k) NAMED_10(a, b, c, d, e, f, g, h, i, j), k p11
#define NAMED(...) JOIN(NAMED_, COUNT(__VA_ARGS__))(__VA_ARGS__)
#define GIVEN_0
#define GIVEN_1 , p1
#define GIVEN_2 GIVEN_1, p2
#define GIVEN_3 GIVEN_2, p3
#define GIVEN_4 GIVEN_3, p4
#define GIVEN_5 GIVEN_4, p5
#define GIVEN_6 GIVEN_5, p6
#define GIVEN_7 GIVEN_6, p7
#define GIVEN_8 GIVEN_7, p8
#define GIVEN_9 GIVEN_8, p9
#define GIVEN_10 GIVEN_9, p10
#define GIVEN_11 GIVEN_10, p11
#define GIVEN(...) JOIN(GIVEN_, COUNT(__VA_ARGS__))
#define STUB(name, returns, parameters) \
  EXPORT returns nccl##name(NAMED parameters) { return called<returns>(#name GIVEN parameters); }
WEFT_NCCL_FUNCTIONS(STUB)

}  // namespace weft::nccl
