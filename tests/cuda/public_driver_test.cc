// The driver's functions as other programs get them (weft/weft_cuda.h).
#include <gtest/gtest.h>

#include "cuda/device_memory.h"
#include "weft/weft_cuda.h"

namespace weft::testing {
namespace {

TEST(PublicDriver, GivesTheFunctionsOfTheDriverThatWeftHas) {
  WEFT_NEED_DEVICE();
  void* function = nullptr;
  ASSERT_EQ(weftCudaFunction("cuDeviceGetCount", &function), weftSuccess);
  EXPECT_EQ(function, reinterpret_cast<void*>(driver().device_get_count));
}

TEST(PublicDriver, AFunctionThatTheDriverLacksIsNoError) {
  WEFT_NEED_DEVICE();
  int something = 0;
  void* function = &something;
  EXPECT_EQ(weftCudaFunction("cuNoSuchFunction", &function), weftSuccess);
  EXPECT_EQ(function, nullptr);
}

TEST(PublicDriver, WantsANameAndAPlace) {
  void* function = nullptr;
  EXPECT_EQ(weftCudaFunction(nullptr, &function), weftInvalidPointer);
  EXPECT_EQ(weftCudaFunction("cuInit", nullptr), weftInvalidPointer);
  EXPECT_STREQ(weftGetLastError(nullptr), "weftCudaFunction: function is NULL");
}

}  // namespace
}  // namespace weft::testing
