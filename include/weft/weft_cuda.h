/*
 * The CUDA driver that Weft uses, for programs that reach a GPU without CUDA's toolkit. A program that takes
 * the driver's functions from here has the library that Weft has (WEFT_CUDA_LIBRARY), initialized as Weft
 * needs it.
 */
#ifndef WEFT_WEFT_CUDA_H_
#define WEFT_WEFT_CUDA_H_

#include "weft/weft.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the driver's function of that name in `function`. The first call loads the driver, and initializes
 * it.
 *
 * name      as the library exports it, with its version: "cuMemAlloc_v2"
 * function  a pointer to the function; NULL if the driver has none of that name, which is no error
 *
 * Thread safety: any thread.
 * Errors: weftUnsupported if this machine has no driver that serves, or no device; weftUnhandledCudaError if
 * the driver cannot be initialized; weftInvalidPointer. weftGetLastError(NULL) has the reason and a remedy.
 */
WEFT_API weftResult_t weftCudaFunction(const char* name, void** function);

#ifdef __cplusplus
}
#endif

#endif /* WEFT_WEFT_CUDA_H_ */
