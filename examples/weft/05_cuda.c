/* An AllReduce of GPU memory on a CUDA stream. The program links CUDA's runtime; Weft loads the driver by
 * itself. Where there is no GPU that Weft can use, the program says why, and ends with 77.
 *
 *   CUDA=/usr/local/cuda
 *   cc 05_cuda.c $(pkg-config --cflags --libs weft) -I$CUDA/include -L$CUDA/lib64 -lcudart -o on_gpu
 *   weft_run -n 2 ./on_gpu     # ranks may share a GPU
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

static void check(weftResult_t result, weftComm_t comm) {
  if (result == weftSuccess) return;
  fprintf(stderr, "%s\n", weftGetLastError(comm));
  exit(1);
}

static void check_cuda(cudaError_t error) {
  if (error == cudaSuccess) return;
  fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
  exit(1);
}

int main(void) {
  if (weftDeviceQuery(WEFT_DEVICE_CURRENT) != weftSuccess) {
    fprintf(stderr, "%s\n", weftGetLastError(NULL));
    return 77;
  }
  /* A communicator of all ranks in host memory; its sibling works on GPU memory. */
  weftComm_t world, comm = NULL;
  int rank, ranks;
  check(weftCommInitEnv(&world), NULL);
  check(weftCommUserRank(world, &rank), world);
  check(weftCommCount(world, &ranks), world);
  weftConfig_t config = WEFT_CONFIG_INITIALIZER;
  config.device = WEFT_DEVICE_CURRENT;
  check(weftCommSplit(world, 0, rank, &comm, &config), world);

  float mine[4] = {(float)rank, 1, 2, 3}, sum[4];
  float *send, *recv;
  cudaStream_t stream;
  check_cuda(cudaMalloc((void**)&send, sizeof mine));
  check_cuda(cudaMalloc((void**)&recv, sizeof sum));
  check_cuda(cudaStreamCreate(&stream));
  check_cuda(cudaMemcpyAsync(send, mine, sizeof mine, cudaMemcpyHostToDevice, stream));
  check(weftAllReduce(send, recv, 4, weftFloat, weftSum, comm, (weftStream_t)stream), comm);
  check_cuda(cudaMemcpyAsync(sum, recv, sizeof sum, cudaMemcpyDeviceToHost, stream));
  check_cuda(cudaStreamSynchronize(stream));
  printf("rank %d of %d: %g %g %g %g\n", rank, ranks, sum[0], sum[1], sum[2], sum[3]);

  check(weftCommDestroy(comm), NULL);
  check(weftCommDestroy(world), NULL);
  check_cuda(cudaStreamDestroy(stream));
  check_cuda(cudaFree(send)); /* when no operation of the process is under way */
  check_cuda(cudaFree(recv));
  return 0;
}
