/*
 * The CUDA driver that Weft uses, for programs that use a GPU without CUDA's toolkit. They get functions of
 * the library that Weft has loaded (WEFT_CUDA_LIBRARY), initialized as Weft needs it.
 */
#ifndef WEFT_WEFT_CUDA_H_
#define WEFT_WEFT_CUDA_H_

#include "weft/weft.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sets `*function` to the driver's function `name`. The first call loads and initializes the driver.
 *
 * name      as the library exports it, with its version: "cuMemAlloc_v2"
 * function  receives a pointer to the function; NULL if the driver has none of that name, which is no error
 *
 * Thread safety: any thread.
 * Errors: weftUnsupported (no usable driver, or no device), weftUnhandledCudaError (the driver cannot be
 * initialized), weftInvalidPointer. weftGetLastError(NULL) has the reason and a remedy.
 */
WEFT_API weftResult_t weftCudaFunction(const char* name, void** function);

#ifdef __cplusplus
}
#endif

#endif /* WEFT_WEFT_CUDA_H_ */
