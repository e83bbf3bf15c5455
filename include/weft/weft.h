/*
 * Weft: collective communication between the processes of a job, on commodity networks.
 *
 * This header is the whole public surface. It reads like NCCL's host API with the prefix weft: the same
 * names, the same order of arguments, the same meaning. It is plain C99 and usable from C++. "Weft only"
 * marks what NCCL does not have. "Unlike NCCL" marks what NCCL does differently.
 *
 * Conventions, stated once
 *
 * Results. Every function returns a weftResult_t unless its signature says otherwise: weftSuccess (0), or
 * the code of an error. Arguments are checked first. A call that returns an argument error (weftInvalid*)
 * has had no effect. weftGetLastError() has the whole sentence: the argument, its value and what would be
 * right. Outputs are written on success only. The exception is a failed creation, which sets *comm to NULL.
 *
 * Ranks. A communicator has n ranks, 0 … n-1. All ranks call the same collectives on it, in the same order,
 * with the same count, type, operator and root. Ranks that differ get weftMismatch.
 *
 * Counts are numbers of elements, not bytes. 0 is a valid count; buffers may then be NULL. A count whose
 * bytes, over all ranks, do not fit in 63 bits is weftInvalidCount.
 *
 * Buffers are aligned to the element's size. They are host memory. On a communicator with a device
 * (weftConfig_t) they are memory of that CUDA device, managed memory, or host memory that CUDA has pinned.
 * No buffer needs to be registered. Until the operation is complete, the caller may read inputs, and may not
 * touch outputs. Input and output may not overlap, except in place: each collective says at which offset.
 * Any other overlap is an error, which Weft does not always detect.
 *
 * Streams. Operations take a weftStream_t. Operations on one stream run in the order of their calls.
 * Operations on different streams run side by side. With a NULL stream, unlike NCCL, the call returns when
 * the result is there. In a group, weftGroupEnd() returns then. With a stream the call returns at once;
 * weftStreamSynchronize() and weftStreamQuery() tell when the result is there.
 *
 * CUDA streams. On a communicator with a device, the stream argument is a cudaStream_t (CUstream), cast.
 * NULL is CUDA's default stream. The call returns at once. The operation starts when the stream reaches it,
 * and later work in the stream waits for its end. In a group, later work waits for the end of all calls.
 * Exceptions: if streams may not wait for a CPU (docs/explanation/gpus.md), the call or weftGroupEnd returns
 * when the result is there. The first operation on new memory blocks its caller until it has ended, for at
 * most a second. After an operation has failed, its stream goes on. weftCommGetAsyncError() reports the
 * failure.
 *
 * CUDA graphs. A call on a stream that is being captured becomes part of the graph. Each launch performs the
 * operation anew, with the buffers, count and operator of the call. All ranks of a communicator make the
 * same captures in the same order, with the same calls, and launch each graph equally often. Captured
 * operations keep their order among themselves. They have no order with other calls. Buffers must stay valid
 * as long as the graph is launched. Launches after weftCommFinalize(), weftCommDestroy() or weftCommAbort()
 * leave the communicator's operations out. In a capture, a scalar of weftScalarDevice in pageable host
 * memory is weftUnsupported. So is every operation if the driver cannot hold stream memory operations in a
 * graph.
 *
 * Groups. Between weftGroupStart() and weftGroupEnd() calls are only recorded. weftGroupEnd() starts them
 * together. Two kinds of calls must be grouped: sends and receives that wait for each other, and calls of
 * one thread for several communicators. Groups nest and belong to the calling thread. The calls of a group
 * on one stream run together, after earlier work of the stream. A group first makes the communicators that
 * it creates, side by side, and then runs its other calls. Splits and shrinks of one parent keep the order
 * of their calls.
 *
 * Errors that come later. An operation that has begun can still fail: a peer died (weftRemoteError), ranks
 * disagree (weftMismatch), the deadline passed (weftTimeout). The waiting call returns the code, and so does
 * every later operation on the communicator. weftCommGetAsyncError() gives the code as a value. One rank
 * finds the reason; the others get weftRemoteError with its sentence. When a call has returned the error,
 * the caller may free the operation's host memory (docs/explanation/failures.md). A failed communicator can
 * be asked, dumped, shrunk, aborted or destroyed, nothing else. The deadline is that of the communicator
 * (timeoutSeconds, weftCommSetTimeout) or of the call (weftSetCallTimeout). It counts from when the
 * operation's rank first had to wait.
 *
 * Thread safety. Every function may be called from any thread. Operations of a communicator run in the order
 * of the calls, so threads that share a communicator must agree on that order. So must threads that share a
 * stream: no other thread calls on a group's streams during weftGroupEnd(). While a thread is
 * inside any call, others may call weftCommAbort. While it waits in an operation, they may also call
 * weftCommGetAsyncError, weftGetLastError, weftCommCount, weftCommUserRank, weftCommDump and
 * weftCommGetStats. A communicator may not be used otherwise while or after it is destroyed. If the library
 * can tell, such a call returns weftInvalidComm.
 *
 * Forks. A child's call on a communicator or stream of its parent returns weftInvalidUsage and has no effect
 * on any rank. A child may create its own. So create communicators after daemon()
 * (docs/explanation/failures.md).
 *
 * Order of arithmetic. The same inputs on the same communicator give the same bits, whatever the timing.
 * With `strict` in weftConfig_t they give the same bits whatever the size, algorithm, transport and layout
 * of nodes.
 *
 * Rounding. 8- and 16-bit floats are accumulated in 32 bits, other floats in their own type. Partial results
 * that go to another rank, and final results, are rounded to their type, to nearest even. With `strict` no
 * partial result goes to another rank, so 8- and 16-bit floats are rounded once.
 *
 * Overflow. Sums and products of floats overflow to infinity, those of e4m3 to its largest value. A partial
 * result can overflow even if the final result would not. Integers wrap. An average of floats never
 * overflows. An average is infinite or NaN only if an input is. The average of equal floats is exactly their
 * value. The sum of an average of integers wraps, and its quotient is rounded towards zero.
 *
 * NaN. A sum, product or average is NaN if an input is NaN. weftMax and weftMin ignore NaN, as NCCL's do:
 * they are NaN only if all inputs are. For them -0 is less than +0. A computed NaN is the type's positive
 * quiet NaN.
 *
 * NCCL. If WEFT_BACKEND or `backend` in weftConfig_t is nccl, NCCL does the operations. It is loaded at run
 * time. With auto, NCCL does them in the two cases of WEFT_BACKEND_AUTO. The stream argument of such an
 * operation is a CUDA stream. With NULL the call returns when the result is there. NCCL's AlltoAll cannot be
 * in place (weftUnsupported). Rounding, overflow and NaN are NCCL's (docs/how-to/from-nccl.md).
 *
 * Environment. Settings are environment variables named WEFT_*. If one is unknown or has a value out of
 * range, the creation of a communicator returns weftInvalidSetting. `weft_info --settings` lists them.
 */
#ifndef WEFT_WEFT_H_
#define WEFT_WEFT_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#define WEFT_MAJOR 0
#define WEFT_MINOR 1
#define WEFT_PATCH 0
#define WEFT_SUFFIX ""

/* One integer for a version, as weftGetVersion() returns it: 0.1.0 is 100. */
#define WEFT_VERSION(major, minor, patch) ((major)*10000 + (minor)*100 + (patch))
#define WEFT_VERSION_CODE WEFT_VERSION(WEFT_MAJOR, WEFT_MINOR, WEFT_PATCH)

#if defined(__GNUC__)
#define WEFT_API __attribute__((visibility("default")))
#else
#define WEFT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- types ---- */

/* A communicator: one rank's end of a group of ranks. */
typedef struct weftComm* weftComm_t;
#define WEFT_COMM_NULL NULL

/* A window: memory of each rank of a communicator into which the other ranks may put. */
typedef struct weftWindow* weftWindow_t;
#define WEFT_WIN_DEFAULT 0x00
#define WEFT_WIN_COLL_SYMMETRIC 0x01  /* accepted as NCCL does; no effect */
#define WEFT_WIN_STRICT_ORDERING 0x02 /* accepted as NCCL does; no effect */
#define WEFT_NUM_SIGNALS 1024         /* sigIdx and ctx are in [0, WEFT_NUM_SIGNALS) */
#define WEFT_SIGNAL_NONE (-1)         /* Weft only. As sigIdx of weftPutSignal: no signal */

/* A queue of operations on host memory. NULL is the blocking stream. On GPU memory: a cudaStream_t, cast. */
typedef struct weftStream* weftStream_t;

/* Identifies a new communicator. One rank makes it and sends it to all ranks, unchanged, by a file, MPI or a
 * key-value store. It holds an address and a secret: whoever has it can join. */
#define WEFT_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[WEFT_UNIQUE_ID_BYTES];
} weftUniqueId;

/* 0 to 7 are NCCL's. The others divide NCCL's codes more finely. */
typedef enum {
  weftSuccess = 0,
  weftUnhandledCudaError = 1,
  weftSystemError = 2,      /* the operating system refused something */
  weftInternalError = 3,    /* a bug in Weft, or damaged memory */
  weftInvalidArgument = 4,  /* an argument out of range that has no code of its own */
  weftInvalidUsage = 5,     /* the call is not allowed now: an open group, a finalized communicator */
  weftRemoteError = 6,      /* a peer died, its connection broke, or another rank reports a failure */
  weftInProgress = 7,       /* not an error: not complete yet */
  weftInvalidPointer = 8,   /* NULL, or not aligned to the element */
  weftInvalidType = 9,      /* not a weftDataType_t */
  weftInvalidOp = 10,       /* not an operator, or one of another communicator or type */
  weftInvalidCount = 11,    /* count times element size overflows */
  weftInvalidRoot = 12,     /* root, peer or rank out of range */
  weftInvalidComm = 13,     /* NULL, destroyed or aborted */
  weftInvalidUniqueId = 14, /* truncated, damaged or of another version */
  weftInvalidSetting = 15,  /* an unknown WEFT_ variable, or a value out of range */
  weftMismatch = 16,        /* ranks called different things */
  weftTimeout = 17,         /* a deadline passed */
  weftAborted = 18,         /* weftCommAbort() was called, or weftCommShrink() with WEFT_SHRINK_ABORT */
  weftProtocolError = 19,   /* somebody answered, but not a Weft rank of this job */
  weftOutOfMemory = 20,
  weftUnsupported = 21, /* right, but this build or machine cannot */
  weftNumResults = 22
} weftResult_t;

/* Element types. The 8-bit floats are OCP's: e4m3 has no infinity (largest 448), e5m2 has (largest 57344). */
typedef enum {
  weftInt8 = 0,
  weftChar = 0,
  weftUint8 = 1,
  weftInt32 = 2,
  weftInt = 2,
  weftUint32 = 3,
  weftInt64 = 4,
  weftUint64 = 5,
  weftFloat16 = 6,
  weftHalf = 6,
  weftFloat32 = 7,
  weftFloat = 7,
  weftFloat64 = 8,
  weftDouble = 8,
  weftBfloat16 = 9,
  weftFloat8e4m3 = 10,
  weftFloat8e5m2 = 11,
  weftNumTypes = 12
} weftDataType_t;

/* Operators. Values from weftNumOps on are made by weftRedOpCreatePreMulSum(). */
typedef enum {
  weftSum = 0,
  weftProd = 1,
  weftMax = 2,
  weftMin = 3,
  weftAvg = 4,
  weftBand = 5, /* Weft only: bitwise and, of integer types. On bytes that are 0 or 1 it is the logical and */
  weftBor = 6,  /* Weft only: bitwise or, as weftBand */
  weftBxor = 7, /* Weft only: bitwise exclusive or, as weftBand */
  weftNumOps = 8,
  weftMaxRedOp = 0x7fffffff
} weftRedOp_t;

/* When the scalar of a pre-multiplied sum is read. */
typedef enum {
  /* At each call with the operator, before the call returns. The scalar must stay valid, and may change
   * between calls. On a communicator with a device, a scalar in device or pinned memory is read when the
   * stream reaches the operation, and at each launch of a CUDA graph that holds it. */
  weftScalarDevice = 0,
  weftScalarHostImmediate = 1 /* before weftRedOpCreatePreMulSum() returns */
} weftScalarResidence_t;

#define WEFT_CONFIG_UNDEF_INT INT_MIN
#define WEFT_CONFIG_UNDEF_PTR NULL
#define WEFT_UNDEF_FLOAT (-1.0f)
#define WEFT_SPLIT_NOCOLOR (-1)
#define WEFT_DEVICE_HOST (-1)
#define WEFT_DEVICE_CURRENT (-2)
/* Weft only. Which library does the operations of a communicator. AUTO: Weft, with two exceptions if NCCL is
 * installed. On a communicator of host memory, NCCL takes device memory. If a rank's device or driver lacks
 * what Weft needs, NCCL takes every operation. */
#define WEFT_BACKEND_AUTO 0
#define WEFT_BACKEND_WEFT 1
#define WEFT_BACKEND_NCCL 2
#define WEFT_SHRINK_DEFAULT 0x00 /* the parent stays as it is */
#define WEFT_SHRINK_ABORT 0x01   /* first end what is in flight on the parent, which may have failed */

/* Every versioned structure begins with size, magic and version. The initializers set them; do not change
 * them. */
#define WEFT_API_MAGIC 0x77656674u

/* How a communicator behaves. Always start from WEFT_CONFIG_INITIALIZER. A member that is not set takes the
 * default given here. A child of split or shrink inherits it from its parent instead, except the name. New
 * members are added at the end. `strict` must be the same on all ranks. */
typedef struct {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;    /* 1 (default): calls return when they are done. 0: calls that create, split, shrink and
                      finalize may return weftInProgress; poll weftCommGetAsyncError() until it gives another
                      value. A split or shrink still keeps its place in the order of calls on the parent */
  int splitShare;  /* accepted as NCCL does; no effect: children always share the parent's progress threads */
  int shrinkShare; /* the same, for shrink */
  const char* commName; /* appears in errors, logs and the flight recorder; copied. Default: "world" for
                           a job's first communicator, eight hexadecimal digits for its children */
  int strict; /* Weft only. 1: results have the same bits whatever the message size, algorithm, transport
                 and layout of nodes. Default: WEFT_STRICT, which is 0 */
  double timeoutSeconds; /* Weft only. > 0: deadline of an operation, counted from when its rank first had to
                            wait. INFINITY and values above 1e9 count as 1e9 (31 years). Default:
                            WEFT_TIMEOUT_S */
  const char* hostId; /* Weft only, for weftCommInitRankConfig. Ranks with the same hostId share a node; ranks
                         with different ones do not. For trying layouts of nodes. Default: WEFT_HOSTID */
  int device;         /* Weft only. Number of the CUDA device whose memory operations are on, as the calling
                         process counts devices. WEFT_DEVICE_CURRENT: that of the calling thread.
                         WEFT_DEVICE_HOST (default): host memory. All ranks of a communicator have a device, or
                         none has */
  int backend; /* Weft only. WEFT_BACKEND_AUTO, _WEFT or _NCCL, the same on all ranks. Default: WEFT_BACKEND,
                  which is auto */
} weftConfig_t;

/* clang-format off */
#define WEFT_CONFIG_INITIALIZER { \
  sizeof(weftConfig_t),  WEFT_API_MAGIC,  WEFT_VERSION_CODE, \
  WEFT_CONFIG_UNDEF_INT, /* blocking */       \
  WEFT_CONFIG_UNDEF_INT, /* splitShare */     \
  WEFT_CONFIG_UNDEF_INT, /* shrinkShare */    \
  WEFT_CONFIG_UNDEF_PTR, /* commName */       \
  WEFT_CONFIG_UNDEF_INT, /* strict */         \
  WEFT_UNDEF_FLOAT,      /* timeoutSeconds */ \
  WEFT_CONFIG_UNDEF_PTR, /* hostId */         \
  WEFT_CONFIG_UNDEF_INT, /* device */         \
  WEFT_CONFIG_UNDEF_INT  /* backend */        \
}
/* clang-format on */

/* What weftGroupSimulateEnd() fills in. */
typedef struct {
  size_t size;
  unsigned int magic;
  unsigned int version;
  float estimatedTime; /* µs; WEFT_UNDEF_FLOAT when nothing was asked */
} weftSimInfo_t;

#define WEFT_SIM_INFO_INITIALIZER \
  { sizeof(weftSimInfo_t), WEFT_API_MAGIC, WEFT_VERSION_CODE, WEFT_UNDEF_FLOAT }

/* Weft only. What weftCommGetStats() fills in. Bytes and messages are counted on this rank since the
 * communicator was created. They include all communicators of the job, because those share transports. */
typedef struct {
  size_t size;
  unsigned int magic;
  unsigned int version;
  uint64_t operations;     /* operations that have ended */
  uint64_t intraBytes;     /* payload sent to ranks of this node, or read from them, bytes */
  uint64_t intraMessages;  /* messages of intraBytes */
  uint64_t interBytes;     /* payload sent to other nodes, bytes */
  uint64_t interMessages;  /* messages of interBytes */
  int node;                /* number of this rank's node, 0-based in the order of the nodes' lowest ranks */
  int nodes;               /* nodes of the communicator */
  char intraTransport[32]; /* "shared memory"; on GPU memory "mapped GPU memory" or "staged GPU memory"; ""
                              when no two ranks share a node */
  char interTransport[32]; /* "tcp", "libfabric …"; on GPU memory then ", GPUDirect" or ", staged"; cut off
                              after 31 bytes; "" when there is one node */
  char lastAlgorithm[32];  /* of the last operation started: "ring", "one_hop" …; "" before the first */
  float lastPredictedTime; /* predicted time of that operation, µs; WEFT_UNDEF_FLOAT: not known */
} weftCommStats_t;

/* clang-format off */
#define WEFT_COMM_STATS_INITIALIZER { \
  sizeof(weftCommStats_t), WEFT_API_MAGIC, WEFT_VERSION_CODE, 0, 0, 0, 0, 0, 0, 0, {0}, {0}, {0}, \
  WEFT_UNDEF_FLOAT \
}
/* clang-format on */

/* Weft only. What weftStreamNotify() calls. `result` is weftSuccess, or the first failure of the stream's
 * operations since the previous call of weftStreamNotify(). weftGetLastError(NULL) has its sentence. */
typedef void (*weftNotify_t)(weftResult_t result, void* arg);

/* ---- version and errors ---- */

/* Sets *version to WEFT_VERSION_CODE of the loaded library. Errors: weftInvalidPointer. */
WEFT_API weftResult_t weftGetVersion(int* version);

/* A few words for a code, such as "invalid root or peer". Static storage. */
WEFT_API const char* weftGetErrorString(weftResult_t result);

/* The whole sentence of the last error, or "" if there was none. With a failed communicator it is the
 * communicator's error, otherwise the calling thread's last error. If a failed communicator refuses a call
 * for another reason, the calling thread gets that sentence. `comm` may be NULL. The text stays valid until
 * the calling thread's next call of this function. */
WEFT_API const char* weftGetLastError(weftComm_t comm);

/* Weft only. Returns weftSuccess if Weft can use memory of CUDA device `device` in this process; otherwise
 * the error's sentence says what is missing. `device` is a number, or WEFT_DEVICE_CURRENT. For
 * WEFT_DEVICE_HOST it is always weftSuccess. Loads CUDA's driver. Errors: weftUnsupported (no driver, one
 * that is too old, no device), weftInvalidArgument (no such device), weftUnhandledCudaError,
 * weftInvalidSetting. */
WEFT_API weftResult_t weftDeviceQuery(int device);

/* ---- creating communicators ---- */

/* Makes the id of a new communicator, and starts to listen for its ranks in this process. The process must
 * live until all ranks have connected. An id makes one communicator. Errors: weftInvalidPointer,
 * weftInvalidSetting (WEFT_SOCKET_IFNAME), weftSystemError. */
WEFT_API weftResult_t weftGetUniqueId(weftUniqueId* uniqueId);

/* Creates this rank's end of a communicator of `nranks` ranks. Blocks until all ranks have called, or for
 * WEFT_INIT_TIMEOUT_S. The error then names the missing ranks. Ranks are processes, threads of one process,
 * or calls of one thread inside a group. `nranks` ≥ 1 and `commId` are the same on all ranks; 0 ≤ `rank` <
 * nranks is different on all ranks. Errors: weftInvalidPointer, weftInvalidArgument (nranks),
 * weftInvalidRoot (rank), weftInvalidUniqueId, weftInvalidSetting, weftMismatch (ranks have different
 * settings that must agree, or versions of the library), weftTimeout, weftProtocolError, weftRemoteError,
 * weftSystemError, weftOutOfMemory. */
WEFT_API weftResult_t weftCommInitRank(weftComm_t* comm, int nranks, weftUniqueId commId, int rank);

/* As weftCommInitRank, with a configuration; NULL means all defaults. Further errors: weftInvalidArgument (a
 * configuration not made by WEFT_CONFIG_INITIALIZER, or a member out of range). */
WEFT_API weftResult_t weftCommInitRankConfig(weftComm_t* comm, int nranks, weftUniqueId commId, int rank,
                                             const weftConfig_t* config);

/* Creates all ranks of a communicator inside this process: comms[i] is rank i, 0 ≤ i < `ndev`. Each rank is
 * then used from a thread of its own, or by one thread with groups. `ndev` ≥ 1. Unlike NCCL, `devlist` is
 * ignored and may be NULL, and the communicators are on host memory. Errors: as weftCommInitRank. On an
 * error, entries that are not NULL are communicators to be destroyed. */
WEFT_API weftResult_t weftCommInitAll(weftComm_t* comms, int ndev, const int* devlist);

/* Weft only. Creates the communicator of all processes that the launcher started, from the environment. The
 * launcher is weft_run (WEFT_RANK, WEFT_WORLD_SIZE, WEFT_ROOT), torchrun (RANK, WORLD_SIZE, MASTER_ADDR,
 * MASTER_PORT), srun, or mpirun of Open MPI or MPICH. Without a launcher the communicator has one rank. A
 * process calls this function once. Errors: as weftCommInitRank; also weftInvalidSetting if the environment
 * does not say how ranks connect. */
WEFT_API weftResult_t weftCommInitEnv(weftComm_t* comm);

/* Divides a communicator. Ranks that give the same `color` (≥ 0) get a communicator of their own, ordered by
 * `key`, then by their rank in `comm`. A rank that gives WEFT_SPLIT_NOCOLOR gets NULL; in a non-blocking
 * split it gets NULL at once. A collective: all ranks of `comm` call it, at the same place in their order of
 * calls. With `config` NULL the new communicator inherits its configuration. `comm` stays as it is. Errors:
 * weftInvalidPointer, weftInvalidComm, weftInvalidArgument (color < -1, config), weftMismatch, and as
 * weftCommInitRank. */
WEFT_API weftResult_t weftCommSplit(weftComm_t comm, int color, int key, weftComm_t* newcomm,
                                    const weftConfig_t* config);

/* Makes a communicator without the excluded ranks. `excludeRanksList` holds `excludeRanksCount` ranks of
 * `comm`, not the caller's. The other ranks keep their order and are numbered without gaps. They all call
 * this function, with the same list. It sends nothing and returns at once, even after a failure of `comm`.
 * With the backend NCCL, ranks wait for a new communicator of NCCL's. A communicator on a CUDA device keeps
 * the device, or becomes one of host memory. With WEFT_SHRINK_DEFAULT, operations in flight on `comm` go on.
 * With WEFT_SHRINK_ABORT this rank first ends them with weftAborted; afterwards `comm` allows only
 * weftCommDestroy and weftCommAbort. Errors: weftInvalidPointer, weftInvalidComm, weftInvalidArgument (list,
 * flags, config), weftInvalidRoot (a rank of the list), weftInvalidUsage (finalized). */
WEFT_API weftResult_t weftCommShrink(weftComm_t comm, const int* excludeRanksList, int excludeRanksCount,
                                     weftComm_t* newcomm, const weftConfig_t* config, int shrinkFlags);

/* Weft only. Makes a communicator of the `ranksCount` ranks of `comm` in `ranksList`, in the order of the
 * list. Only these ranks call it, with the same list and `tag`. It sends nothing and waits for no rank. The
 * new communicator shares the connections of `comm`, but not its failures, and may outlive it. Two groups of
 * the same ranks of `comm` need different tags, even after one was destroyed. *newcomm is set as by
 * weftCommSplit. Errors: as weftCommSplit, weftInvalidRoot (a rank out of range), weftInvalidArgument (no
 * ranks, one twice, or not the calling rank; another device than the parent's). */
WEFT_API weftResult_t weftCommCreateGroup(weftComm_t comm, const int* ranksList, int ranksCount, uint64_t tag,
                                          weftComm_t* newcomm, const weftConfig_t* config);

/* Makes the id by which new ranks join those of `comm`. One rank of `comm` calls it, sends the id to the new
 * ranks, and passes it to weftCommGrow. Errors: as weftGetUniqueId, weftInvalidComm, weftInvalidUsage
 * (finalized). */
WEFT_API weftResult_t weftCommGetUniqueId(weftComm_t comm, weftUniqueId* uniqueId);

/* Makes a communicator of `nRanks` ranks: those of `comm`, with the same numbers, and new ones. A collective
 * of all of them. A rank of `comm` passes rank -1. It passes the id if it made the id, otherwise NULL. A new
 * rank passes the id, NULL for comm, and a rank number from the size of `comm` on. The new communicator has
 * connections of its own. `comm` stays as it is, and may be destroyed. Errors: as weftCommInitRankConfig and
 * weftCommSplit, weftInvalidArgument (nRanks is not more than comm has; no rank of comm passes an id),
 * weftMismatch (nRanks differ; two ids). */
WEFT_API weftResult_t weftCommGrow(weftComm_t comm, int nRanks, const weftUniqueId* uniqueId, int rank,
                                   weftComm_t* newcomm, const weftConfig_t* config);

/* ---- ending and asking communicators ---- */

/* Waits until this rank's operations are complete. If a CUDA stream does not reach its operation within
 * config.timeoutSeconds, fails with weftTimeout. Afterwards only questions, weftCommAbort and
 * weftCommDestroy are allowed. Errors: weftInvalidComm, weftInvalidUsage (twice, or inside a group), and
 * what the communicator failed with. */
WEFT_API weftResult_t weftCommFinalize(weftComm_t comm);

/* Waits for this rank's operations, and frees the communicator. A failed operation is no error here. The
 * last communicator of a job also waits until the data of complete operations has reached the peers'
 * machines, for at most 5 s. Data that a peer has not received by then is lost, and the peer's calls fail. A
 * process that ends without this call may lose data that its calls of the last 100 µs had still to send.
 * Errors: weftInvalidComm (NULL, or destroyed before), weftInvalidUsage (inside a group). */
WEFT_API weftResult_t weftCommDestroy(weftComm_t comm);

/* Ends everything in flight, here with weftAborted and on the other ranks with weftRemoteError, and frees
 * the communicator. Returns in bounded time, whatever state peers are in. Another thread that waits in an
 * operation then returns weftAborted. If the communicator is still being created without blocking, the
 * creation stops waiting for missing ranks. Once all ranks have connected, this call waits for the rest of
 * the creation, for at most WEFT_INIT_TIMEOUT_S; in a split, for at most the parent's timeoutSeconds. Ranks
 * that are threads of one process may reach each other's GPU memory directly. After a failure or an abort,
 * free such memory when the operation has ended on all ranks of the process. Errors: weftInvalidComm (NULL,
 * or destroyed before), weftInvalidUsage (inside a group). */
WEFT_API weftResult_t weftCommAbort(weftComm_t comm);

/* Weft only. As weftCommAbort. The other ranks read the first 400 bytes of `reason` in weftGetLastError,
 * after "was aborted: ", unless the communicator failed before. NULL and "" are no reason. Errors: as
 * weftCommAbort. */
WEFT_API weftResult_t weftCommAbortWithReason(weftComm_t comm, const char* reason);

/* Sets *asyncError to weftSuccess, to weftInProgress while a non-blocking call goes on, or to what the
 * communicator failed with. Does not block. Errors: weftInvalidPointer, weftInvalidComm. */
WEFT_API weftResult_t weftCommGetAsyncError(weftComm_t comm, weftResult_t* asyncError);

/* Weft only. Sets the deadline of later operations on the communicator, as timeoutSeconds in weftConfig_t.
 * Not a collective: ranks may differ, and the shortest time counts. NCCL's operations have no deadline.
 * Errors: weftInvalidComm, weftInvalidUsage (finalized), weftInvalidArgument (not greater than 0). */
WEFT_API weftResult_t weftCommSetTimeout(weftComm_t comm, double timeoutSeconds);

/* Weft only. Sets the deadline, in seconds, of the calling thread's later operations on every communicator.
 * 0, the default: the communicator's deadline. Errors: weftInvalidArgument (negative or NaN). */
WEFT_API weftResult_t weftSetCallTimeout(double timeoutSeconds);

/* Sets *count to the number of ranks. Errors: weftInvalidPointer, weftInvalidComm. */
WEFT_API weftResult_t weftCommCount(const weftComm_t comm, int* count);

/* Sets *rank to the caller's rank. Errors: weftInvalidPointer, weftInvalidComm. */
WEFT_API weftResult_t weftCommUserRank(const weftComm_t comm, int* rank);

/* Weft only. Writes the flight recorder to `path` as JSON, also after a failure. Errors: weftInvalidPointer,
 * weftInvalidComm, weftSystemError. */
WEFT_API weftResult_t weftCommDump(weftComm_t comm, const char* path);

/* Weft only. Fills in *stats, which starts as WEFT_COMM_STATS_INITIALIZER. Does not block. Errors:
 * weftInvalidPointer, weftInvalidComm, weftInvalidArgument (not initialized). */
WEFT_API weftResult_t weftCommGetStats(weftComm_t comm, weftCommStats_t* stats);

/* ---- memory ---- */

/* Allocates `size` bytes that peers on this node can reach without a copy. Unlike NCCL, it is host memory.
 * It is aligned to 64 bytes; its contents are undefined. Size 0 gives NULL. Errors: weftInvalidPointer,
 * weftOutOfMemory, weftSystemError. */
WEFT_API weftResult_t weftMemAlloc(void** ptr, size_t size);

/* Frees memory of weftMemAlloc. No operation may be using it. NULL is allowed. Errors: weftInvalidPointer
 * (not the start of such an allocation). */
WEFT_API weftResult_t weftMemFree(void* ptr);

/* Prepares `size` bytes at `buff` for repeated use on `comm`, so that no operation has to register them. It
 * only changes speed, and is no collective. The buffer must stay allocated until it is deregistered with
 * `*handle`. Errors: weftInvalidPointer, weftInvalidComm, weftInvalidArgument (size 0), weftSystemError. */
WEFT_API weftResult_t weftCommRegister(const weftComm_t comm, void* buff, size_t size, void** handle);

/* Undoes weftCommRegister. No operation may be using the buffer. Errors: weftInvalidComm,
 * weftInvalidArgument (unknown handle). */
WEFT_API weftResult_t weftCommDeregister(const weftComm_t comm, void* handle);

/* ---- operators ---- */

/* Makes an operator that multiplies this rank's input by a scalar before it is summed. Every rank makes its
 * own, in the same order; scalars may differ. The operator is valid for `comm` and `datatype` only. `scalar`
 * points to one element of `datatype`; `residence` says when it is read. Errors: weftInvalidPointer,
 * weftInvalidComm, weftInvalidType, weftInvalidArgument (residence), weftInvalidUsage (4096 are alive). */
WEFT_API weftResult_t weftRedOpCreatePreMulSum(weftRedOp_t* op, void* scalar, weftDataType_t datatype,
                                               weftScalarResidence_t residence, weftComm_t comm);

/* Destroys an operator. Calls that use it must have returned; their operations may still be in flight.
 * Errors: weftInvalidComm, weftInvalidOp (built in, or not of this communicator). */
WEFT_API weftResult_t weftRedOpDestroy(weftRedOp_t op, weftComm_t comm);

/* ---- streams ----
 *
 * Weft only. A stream is a queue of operations on host memory. On GPU memory, CUDA's streams take its place.
 */

/* Makes a stream. It belongs to no communicator. Errors: weftInvalidPointer, weftOutOfMemory. */
WEFT_API weftResult_t weftStreamCreate(weftStream_t* stream);

/* Waits for the stream's operations and its callbacks (weftStreamNotify), then frees it. Errors:
 * weftInvalidPointer (NULL or destroyed), weftInvalidUsage (inside a callback), and what the operations
 * failed with; the stream is freed then, too. */
WEFT_API weftResult_t weftStreamDestroy(weftStream_t stream);

/* Waits until every operation on the stream is complete. Returns the first failure since the last
 * synchronization or query that returned a failure. Errors: weftInvalidPointer (NULL or destroyed), and what
 * the operations failed with. */
WEFT_API weftResult_t weftStreamSynchronize(weftStream_t stream);

/* Sets *position to the number of operations that have been put on the stream so far, without those of an
 * open group. Errors: weftInvalidPointer (NULL or destroyed, or `position` is NULL). */
WEFT_API weftResult_t weftStreamGetPosition(weftStream_t stream, uint64_t* position);

/* Waits until the first `position` operations of the stream are complete; later ones go on. Errors: as
 * weftStreamSynchronize, weftInvalidArgument (the stream has had fewer operations). */
WEFT_API weftResult_t weftStreamSynchronizeTo(weftStream_t stream, uint64_t position);

/* As weftStreamSynchronizeTo, but returns weftInProgress after `timeoutSeconds` if the operations are not
 * complete. They go on. 0 does not block; INFINITY sets no limit. Further errors: weftInvalidArgument
 * (timeoutSeconds is negative or NaN). */
WEFT_API weftResult_t weftStreamWait(weftStream_t stream, uint64_t position, double timeoutSeconds);

/* Returns weftSuccess if every operation on the stream is complete, else weftInProgress. Does not block.
 * Errors: as weftStreamSynchronize. */
WEFT_API weftResult_t weftStreamQuery(weftStream_t stream);

/* As weftStreamQuery, for the first `position` operations of the stream. Errors: as weftStreamSynchronizeTo.
 */
WEFT_API weftResult_t weftStreamQueryTo(weftStream_t stream, uint64_t position);

/* Calls `notify` once, when every operation that is on the stream now is complete. Operations of an open
 * group do not count. Does not block, and no thread needs to wait. `notify` runs on a thread of the library,
 * never inside this call, and may call every function but weftStreamDestroy. Callbacks of one stream start
 * in the order of these calls, all callbacks of a process one after the other. If one takes a millisecond,
 * the next starts beside it, so lock what they share. For a poll loop, let `notify` write to an eventfd.
 * Errors: weftInvalidPointer (NULL or destroyed, or `notify` is NULL), weftSystemError (no thread for it can
 * be started). */
WEFT_API weftResult_t weftStreamNotify(weftStream_t stream, weftNotify_t notify, void* arg);

/* ---- collectives ----
 * n is the number of ranks. Errors of all of them: weftInvalidComm, weftInvalidPointer (a buffer that the
 * rank needs is NULL or not aligned), weftInvalidArgument (the stream is destroyed), weftInvalidType,
 * weftInvalidCount. Of reductions: weftInvalidOp. With a root or peer: weftInvalidRoot. After
 * weftCommFinalize: weftInvalidUsage. With a NULL stream: also what the operation fails with.
 */

/* recvbuff[i] of `root` = op over all ranks of sendbuff[i], i < count. On other ranks recvbuff is not used
 * and may be NULL. In place when sendbuff == recvbuff. */
WEFT_API weftResult_t weftReduce(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype,
                                 weftRedOp_t op, int root, weftComm_t comm, weftStream_t stream);

/* recvbuff[i] of every rank = sendbuff[i] of `root`, i < count. On other ranks sendbuff is not used and may
 * be NULL. In place when sendbuff == recvbuff. */
WEFT_API weftResult_t weftBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                                    weftDataType_t datatype, int root, weftComm_t comm, weftStream_t stream);

/* weftBroadcast in place. */
WEFT_API weftResult_t weftBcast(void* buff, size_t count, weftDataType_t datatype, int root, weftComm_t comm,
                                weftStream_t stream);

/* recvbuff[i] of every rank = op over all ranks of sendbuff[i], i < count; the same bits on every rank. In
 * place when sendbuff == recvbuff. */
WEFT_API weftResult_t weftAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                    weftDataType_t datatype, weftRedOp_t op, weftComm_t comm,
                                    weftStream_t stream);

/* recvbuff[i] of rank r = op over all ranks of sendbuff[r × recvcount + i], i < recvcount. sendbuff has n ×
 * recvcount elements, recvbuff has recvcount. In place when recvbuff == sendbuff + rank × recvcount. */
WEFT_API weftResult_t weftReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                        weftDataType_t datatype, weftRedOp_t op, weftComm_t comm,
                                        weftStream_t stream);

/* recvbuff[r × sendcount + i] of every rank = sendbuff[i] of rank r, i < sendcount. sendbuff has sendcount
 * elements, recvbuff has n × sendcount. In place when sendbuff == recvbuff + rank × sendcount. */
WEFT_API weftResult_t weftAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                                    weftDataType_t datatype, weftComm_t comm, weftStream_t stream);

/* recvbuff[r × count + i] of rank s = sendbuff[s × count + i] of rank r, i < count. Both buffers have n ×
 * count elements. In place when sendbuff == recvbuff, on all ranks or on none. */
WEFT_API weftResult_t weftAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                                   weftDataType_t datatype, weftComm_t comm, weftStream_t stream);

/* recvbuff[r × count + i] of `root` = sendbuff[i] of rank r, i < count. At the root, recvbuff has n × count
 * elements. On other ranks it is not used and may be NULL. In place when, at the root, sendbuff == recvbuff
 * + root × count. */
WEFT_API weftResult_t weftGather(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype,
                                 int root, weftComm_t comm, weftStream_t stream);

/* recvbuff[i] of rank r = sendbuff[r × count + i] of `root`, i < count. At the root, sendbuff has n × count
 * elements. On other ranks it is not used and may be NULL. In place when, at the root, recvbuff == sendbuff
 * + root × count. */
WEFT_API weftResult_t weftScatter(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype,
                                  int root, weftComm_t comm, weftStream_t stream);

/* Weft only. An AllGather whose ranks send different counts. On every rank recvbuff[displs[r] + i] =
 * sendbuff[i] of rank r, i < recvcounts[r]. Both arrays have n entries, in elements, and are read before the
 * call returns. All ranks give the same recvcounts; displs may differ. If displs is NULL, the blocks are
 * adjacent. Blocks may not overlap. In place when sendbuff == recvbuff + displs[rank]. Further errors:
 * weftInvalidArgument (blocks overlap). */
WEFT_API weftResult_t weftAllGatherV(const void* sendbuff, void* recvbuff, const size_t* recvcounts,
                                     const size_t* displs, weftDataType_t datatype, weftComm_t comm,
                                     weftStream_t stream);

/* Weft only. A ReduceScatter whose ranks receive different counts. On rank r recvbuff[i] = op over all ranks
 * of sendbuff[displs[r] + i], i < recvcounts[r]. The arrays are as for weftAllGatherV, but blocks that are
 * only read may overlap. In place when recvbuff == sendbuff + displs[rank], and no other block overlaps that
 * one. */
WEFT_API weftResult_t weftReduceScatterV(const void* sendbuff, void* recvbuff, const size_t* recvcounts,
                                         const size_t* displs, weftDataType_t datatype, weftRedOp_t op,
                                         weftComm_t comm, weftStream_t stream);

/* Weft only. An AlltoAll with a count for each pair of ranks. On rank s recvbuff[rdispls[r] + i] =
 * sendbuff[sdispls[s] + i] of rank r, i < recvcounts[r]. sendcounts[s] of rank r equals recvcounts[r] of
 * rank s. Counts and displacements have n entries each, and belong to this rank alone. If displacements are
 * NULL, the blocks are adjacent. Not in place. Further errors: weftInvalidArgument (blocks of recvbuff
 * overlap; sendcounts[rank] is not recvcounts[rank]; in place). */
WEFT_API weftResult_t weftAlltoAllV(const void* sendbuff, const size_t* sendcounts, const size_t* sdispls,
                                    void* recvbuff, const size_t* recvcounts, const size_t* rdispls,
                                    weftDataType_t datatype, weftComm_t comm, weftStream_t stream);

/* Sends `count` elements to rank `peer`, which must call weftRecv with the same count and type. Sends from
 * one rank to another match receives in the order of the calls. The call may complete only when the peer
 * receives, so sends and receives that wait for each other must be in one group. A rank may send to itself,
 * in a group and on one stream. Further errors: weftInvalidUsage (a send to itself without its receive in the
 * group, or on another stream). */
WEFT_API weftResult_t weftSend(const void* sendbuff, size_t count, weftDataType_t datatype, int peer,
                               weftComm_t comm, weftStream_t stream);

/* Receives `count` elements from rank `peer`; see weftSend. */
WEFT_API weftResult_t weftRecv(void* recvbuff, size_t count, weftDataType_t datatype, int peer,
                               weftComm_t comm, weftStream_t stream);

/* ---- one-sided operations ----
 *
 * A rank puts data into windows of other ranks, which call nothing for it. It then signals them, and they
 * wait for signals. Signals are counted by sender, `sigIdx` and `ctx`, both in [0, WEFT_NUM_SIGNALS). A
 * signal counts when all earlier puts and signals of its sender to this rank have arrived, too. So calls on
 * one stream count in their order. Puts that have not been waited for may be written in any order. While a
 * window is open, the library's progress thread takes puts for a rank that calls nothing.
 *
 * Errors of the three operations: as of collectives, and weftInvalidArgument (window, offset, sigIdx, ctx,
 * flags), weftInvalidRoot (peer), weftUnsupported (in a capture of a CUDA graph, with the backend NCCL).
 */

/* Opens `size` bytes at `buff` to the other ranks. A collective: all ranks call it, at the same place in
 * their order of calls, and wait for each other. Sizes may differ; with size 0, buff may be NULL. `buff` is
 * memory as collectives take it, and must stay valid until the window is deregistered. In a group,
 * weftGroupEnd registers windows before it starts the other calls, and sets *win. winFlags: WEFT_WIN_*.
 * Errors: weftInvalidPointer, weftInvalidComm, weftInvalidArgument (winFlags), weftUnsupported (device memory
 * on a communicator of host memory; the backend NCCL), weftSystemError, and what the collective fails with.
 */
WEFT_API weftResult_t weftCommWindowRegister(weftComm_t comm, void* buff, size_t size, weftWindow_t* win,
                                             int winFlags);

/* Closes a window on this rank. Not a collective, and waits for no rank: call it when you have waited for
 * the last put into the window. A later put fails the communicator. The end of the communicator closes its
 * windows. Errors: weftInvalidComm, weftInvalidArgument (no window of this communicator, or deregistered
 * before). */
WEFT_API weftResult_t weftCommWindowDeregister(weftComm_t comm, weftWindow_t win);

/* Writes `count` elements of localbuff into rank `peer`'s part of the window, `peerWinOffset` bytes from its
 * start, then signals, unless sigIdx is WEFT_SIGNAL_NONE. The call is complete when localbuff may be reused;
 * the data may not have reached the peer. `peer` may be the caller. With a count of 0 it only
 * signals, and needs no window. `flags` is 0. */
WEFT_API weftResult_t weftPutSignal(const void* localbuff, size_t count, weftDataType_t datatype, int peer,
                                    weftWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx,
                                    unsigned int flags, weftComm_t comm, weftStream_t stream);

/* Signals rank `peer`. The signal counts after all puts to `peer` that stand before this call in the stream,
 * or were complete before it. Needs no window. `flags` is 0. */
WEFT_API weftResult_t weftSignal(int peer, int sigIdx, int ctx, unsigned int flags, weftComm_t comm,
                                 weftStream_t stream);

/* What weftWaitSignal() waits for. */
typedef struct {
  int opCnt;  /* number of signals, beyond those that earlier calls have waited for */
  int peer;   /* the rank that sends them */
  int sigIdx; /* their sigIdx */
  int ctx;    /* their ctx */
} weftWaitSignalDesc_t;

/* Waits for the signals of `nDesc` descriptors (0 to 65535), which are read before the call returns. When it
 * is complete, the data of the puts before those signals has arrived. If a peer dies, the wait ends with
 * weftRemoteError. At the deadline, the error says how many signals each rank has sent. Further errors:
 * weftInvalidArgument (nDesc, a negative opCnt). */
WEFT_API weftResult_t weftWaitSignal(int nDesc, const weftWaitSignalDesc_t* signalDescs, weftComm_t comm,
                                     weftStream_t stream);

/* ---- groups ---- */

/* Opens a group on the calling thread. Groups nest; only the outermost weftGroupEnd() starts calls. Cannot
 * fail. */
WEFT_API weftResult_t weftGroupStart(void);

/* Closes a group. The outermost one starts all recorded calls and waits for those with a NULL stream.
 * Returns the first error of a grouped call, or of an operation that it waited for. If a grouped call is
 * wrong, no call of the group has been started, except calls that are NCCL's. Further errors:
 * weftInvalidUsage (no group is open). */
WEFT_API weftResult_t weftGroupEnd(void);

/* Closes the outermost group without running it, and estimates how long its calls would take, one after the
 * other. An uneven call counts as the even one that moves as much through this rank. Communicators that
 * would have been created are set to NULL. simInfo starts as WEFT_SIM_INFO_INITIALIZER. A nested call
 * only closes its group. Errors: as weftGroupEnd, weftInvalidPointer (simInfo NULL), and weftInvalidArgument
 * (simInfo not initialized). */
WEFT_API weftResult_t weftGroupSimulateEnd(weftSimInfo_t* simInfo);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* WEFT_WEFT_H_ */
