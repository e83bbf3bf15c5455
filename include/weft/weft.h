/*
 * Weft: collective communication between the processes of a job, on commodity networks.
 *
 * This header is the whole public surface. It reads like NCCL's host API with the prefix weft: the same
 * names, the same order of arguments, the same meaning. It is plain C99 and usable from C++. What NCCL does
 * not have is marked "Weft only", and what does something else than in NCCL "unlike NCCL".
 *
 * Conventions, stated once
 *
 * Results. Every function returns a weftResult_t unless it says otherwise: weftSuccess (0), or a code for the
 * error. Arguments are checked first. A call that returns an argument error (weftInvalid*) has had no effect.
 * weftGetLastError() has the whole sentence: the argument, its value and what would be right. Outputs are
 * written on success only. The exception is a failed creation, which sets *comm to NULL.
 *
 * Ranks. A communicator has `nranks` ranks, 0 … nranks-1. All ranks call the same collectives on it, in the
 * same order, with the same count, type, operator and root. Ranks that differ get weftMismatch.
 *
 * Counts are numbers of elements, not bytes. 0 is a valid count; buffers may then be NULL. A count whose
 * bytes, over all ranks, do not fit in 63 bits is weftInvalidCount.
 *
 * Buffers are aligned to the element's size. They are host memory. On a communicator with a device
 * (weftConfig_t) they are memory of that CUDA device, managed memory, or host memory that CUDA has pinned. No
 * buffer needs to be registered. Until the operation is complete, the caller may read inputs and may not
 * touch outputs. Input and output may not overlap, except in place: each collective says at which offset. Any
 * other overlap is an error that is not always detected.
 *
 * Streams. Operations take a weftStream_t. Operations on one stream run in the order of their calls.
 * Operations on different streams are in flight together. With a NULL stream, unlike NCCL, the call returns
 * when the result is there (in a group: weftGroupEnd returns then). With a stream the call returns at once.
 * weftStreamSynchronize() and weftStreamQuery() tell when the result is there.
 *
 * CUDA streams. On a communicator with a device, the stream argument is a cudaStream_t (CUstream), cast. NULL
 * is CUDA's default stream. The call returns at once. The operation starts when the stream reaches it, and
 * later work in the stream waits for its end. In a group, later work waits for the end of all calls. Two
 * exceptions: if streams may not wait for a CPU (docs/explanation/gpus.md), the call (or weftGroupEnd)
 * returns when the result is there. The first operation on new memory keeps its caller until it has ended,
 * for a second at most. An operation that fails lets its stream go on, and weftCommGetAsyncError() reports
 * it.
 *
 * CUDA graphs. A call on a stream that is being captured becomes part of the graph. Each launch performs the
 * operation anew, with the buffers, count and operator of the call. On a communicator, all ranks make the
 * same captures in the same order, with the same calls, and launch each graph equally often. Captured
 * operations keep their order among themselves, and have none with other calls. Buffers stay until the graph
 * is no longer launched. Launches after weftCommFinalize(), weftCommDestroy() or weftCommAbort() leave the
 * communicator's operations out. In a capture, a scalar of weftScalarDevice in pageable host memory is
 * weftUnsupported. So is every operation if the driver cannot hold stream memory operations in a graph.
 *
 * Groups. Between weftGroupStart() and weftGroupEnd() calls are only recorded. weftGroupEnd() starts them
 * together. Two kinds of calls must be grouped: sends and receives that depend on each other, and calls of
 * one thread for several communicators. Groups nest and belong to the calling thread. The calls of a group on
 * one stream run together, after earlier work of the stream. A group first makes the communicators that it
 * creates, side by side, and then runs its other calls. Splits and shrinks of one parent keep the order of
 * their calls.
 *
 * Errors that come later. An operation that has begun can still fail: a peer died (weftRemoteError), ranks
 * disagree (weftMismatch), the deadline passed (weftTimeout). The waiting call returns the code. So do every
 * later operation on the communicator and, as a value, weftCommGetAsyncError(). One rank finds the reason;
 * the others get weftRemoteError with its sentence. Then the caller may free host memory of the operation
 * (docs/explanation/failures.md). A failed communicator can be asked, dumped, shrunk, aborted or destroyed,
 * nothing else. The deadline is that of the communicator (timeoutSeconds, weftCommSetTimeout) or of the call
 * (weftSetCallTimeout). It counts from when the operation's rank first had to wait.
 *
 * Thread safety. Every function may be called from any thread. The order of calls orders the operations of a
 * communicator, so threads that share a communicator must agree on that order. These may be called while
 * another thread waits in an operation: weftCommAbort, weftCommGetAsyncError, weftGetLastError,
 * weftCommCount, weftCommUserRank, weftCommDump and weftCommGetStats. A communicator may not be used while or
 * after it is destroyed. If the library can tell, such a call returns weftInvalidComm.
 *
 * Forks. A child's call on a communicator or stream of its parent returns weftInvalidUsage and has no effect
 * on any rank. A child may create its own. So create communicators after daemon()
 * (docs/explanation/failures.md).
 *
 * Order of arithmetic. The same inputs on the same communicator give the same bits, whatever the timing. With
 * `strict` in weftConfig_t they give the same bits whatever the size, algorithm, transport and layout of
 * nodes.
 *
 * Rounding. 8- and 16-bit floats are accumulated in 32 bits, other floats in their own type. A partial result
 * that goes to another rank, and the final result, are rounded to their type, to nearest even. With `strict`
 * no partial result goes to another rank, so 8- and 16-bit floats are rounded once.
 *
 * Overflow. Sums and products of floats overflow to infinity, those of e4m3 to its largest value. A partial
 * result can overflow even if the final result would not. Integers wrap. An average of floats never
 * overflows, is infinite or NaN only if an input is, and of equal inputs is exactly their value. The sum of
 * an average of integers wraps; its quotient is rounded towards zero.
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
 * Environment. Settings are environment variables named WEFT_*. An unknown one, or a value out of range, is
 * weftInvalidSetting when a communicator is created. `weft_info` lists them.
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

/* A window: memory of each rank of a communicator into which the others may put. */
typedef struct weftWindow* weftWindow_t;
#define WEFT_WIN_DEFAULT 0x00
#define WEFT_WIN_COLL_SYMMETRIC 0x01 /* accepted for NCCL's sake, as the next one: no effect */
#define WEFT_WIN_STRICT_ORDERING 0x02
#define WEFT_NUM_SIGNALS 1024 /* sigIdx and ctx are below it */
#define WEFT_SIGNAL_NONE (-1) /* Weft only. As sigIdx of weftPutSignal: no signal */

/* A queue of operations on host memory; NULL is the blocking stream. Of GPU memory: a cudaStream_t, cast. */
typedef struct weftStream* weftStream_t;

/* What the ranks of a new communicator have in common. One rank makes it and sends it to all, unchanged (by a
 * file, MPI, a key-value store). It holds an address and a secret: whoever has it can join. */
#define WEFT_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[WEFT_UNIQUE_ID_BYTES];
} weftUniqueId;

/* 0 to 7 are NCCL's; the others say more exactly what NCCL folds into them. */
typedef enum {
  weftSuccess = 0,
  weftUnhandledCudaError = 1,
  weftSystemError = 2,      /* the operating system refused something */
  weftInternalError = 3,    /* a bug in Weft, or damaged memory */
  weftInvalidArgument = 4,  /* an argument out of range that has no code of its own */
  weftInvalidUsage = 5,     /* the call is not allowed now: an open group, a finalized communicator */
  weftRemoteError = 6,      /* a peer died or its connection broke */
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
  weftBand = 5, /* Weft only, as the next two: bitwise and, or, exclusive or. Of integer types; bytes that are
                   0 or 1 are logical values */
  weftBor = 6,
  weftBxor = 7,
  weftNumOps = 8,
  weftMaxRedOp = 0x7fffffff
} weftRedOp_t;

/* When the scalar of a pre-multiplied sum is read. */
typedef enum {
  weftScalarDevice = 0, /* at each call that is given the operator, before that call returns: the scalar must
                           stay valid, and may be changed between calls. In device or pinned memory, on a
                           communicator with a device: when the stream comes to the operation, and at each
                           launch of a CUDA graph that holds it */
  weftScalarHostImmediate = 1 /* before weftRedOpCreatePreMulSum() returns */
} weftScalarResidence_t;

#define WEFT_CONFIG_UNDEF_INT INT_MIN
#define WEFT_CONFIG_UNDEF_PTR NULL
#define WEFT_UNDEF_FLOAT (-1.0f)
#define WEFT_SPLIT_NOCOLOR (-1)
#define WEFT_DEVICE_HOST (-1)
#define WEFT_DEVICE_CURRENT (-2)
/* Weft only. Which library does the operations of a communicator. AUTO: Weft, with two exceptions if there is
 * an NCCL. NCCL takes device memory on a communicator of host memory. NCCL takes everything if a rank's
 * device or driver lacks what Weft needs. */
#define WEFT_BACKEND_AUTO 0
#define WEFT_BACKEND_WEFT 1
#define WEFT_BACKEND_NCCL 2
#define WEFT_SHRINK_DEFAULT 0x00 /* the parent stays as it is */
#define WEFT_SHRINK_ABORT 0x01   /* first end what is in flight on the parent, which may have failed */

/* First members of every versioned structure. Set by the initializers; do not change them. */
#define WEFT_API_MAGIC 0x77656674u

/* How a communicator behaves. Always start from WEFT_CONFIG_INITIALIZER; members left alone are inherited
 * from the parent (split, shrink; not the name) or take the default given here. New members are added at the
 * end. `strict` must be the same on all ranks. */
typedef struct {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;    /* 1 (default): calls return when they are done. 0: calls that create, split, shrink and
                      finalize may return weftInProgress; poll weftCommGetAsyncError() until it is not. A
                      split or shrink has its place among the calls on the parent all the same */
  int splitShare;  /* accepted for NCCL's sake: children always share progress threads with the parent */
  int shrinkShare; /* the same, for shrink */
  const char* commName; /* appears in errors, logs and the flight recorder; copied. Default: "world" for
                           a job's first communicator, eight hexadecimal digits for its children */
  int strict; /* Weft only. 1: results have the same bits whatever the message size, algorithm, transport
                 and layout of nodes. Default: WEFT_STRICT, which is 0 */
  double timeoutSeconds; /* Weft only. > 0: longest that an operation may take, counted from when its rank
                            first had to wait for it; more than 1e9 (31 years), also INFINITY, counts as
                            that. Default: WEFT_TIMEOUT_S */
  const char* hostId; /* Weft only, of weftCommInitRankConfig: ranks with the same one share memory, others do
                         not even if they could. For trying layouts of nodes. Default: WEFT_HOSTID */
  int device;         /* Weft only. Number of the CUDA device whose memory operations are on, as the calling
                         process counts devices; WEFT_DEVICE_CURRENT: that of the calling thread;
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

/* What weftCommGetStats() fills in. Weft only. Bytes and messages are this rank's since the communicator was
 * created, over all communicators of the job, which share their transports. */
typedef struct {
  size_t size;
  unsigned int magic;
  unsigned int version;
  uint64_t operations;    /* operations that have ended */
  uint64_t intraBytes;    /* payload sent to ranks of this node, or read from them, bytes */
  uint64_t intraMessages; /* … and in how many messages */
  uint64_t interBytes;    /* payload sent to other nodes, bytes */
  uint64_t interMessages;
  int node;                /* number of this rank's node, 0-based in the order of the nodes' lowest ranks */
  int nodes;               /* nodes of the communicator */
  char intraTransport[32]; /* "shared memory"; on GPU memory "mapped GPU memory" or "staged GPU memory"; ""
                              when no two ranks share a node */
  char interTransport[32]; /* "tcp", "libfabric …"; on GPU memory then ", GPUDirect" or ", staged"; cut off
                              after 31 bytes; "" when there is one node */
  char lastAlgorithm[32];  /* of the last operation started: "ring", "one_hop" …; "" before the first */
  float lastPredictedTime; /* what that was to take when it was chosen, µs; WEFT_UNDEF_FLOAT: not known */
} weftCommStats_t;

/* clang-format off */
#define WEFT_COMM_STATS_INITIALIZER { \
  sizeof(weftCommStats_t), WEFT_API_MAGIC, WEFT_VERSION_CODE, 0, 0, 0, 0, 0, 0, 0, {0}, {0}, {0}, \
  WEFT_UNDEF_FLOAT \
}
/* clang-format on */

/* Weft only. What weftStreamNotify() calls. `result` is weftSuccess, or the first failure of the operations
 * since the call of weftStreamNotify() before; weftGetLastError(NULL) has its sentence. */
typedef void (*weftNotify_t)(weftResult_t result, void* arg);

/* ---- version and errors ---- */

/* Sets *version to WEFT_VERSION_CODE of the library that is loaded. Errors: weftInvalidPointer. */
WEFT_API weftResult_t weftGetVersion(int* version);

/* A few words for a code, such as "invalid root or peer". Static storage. */
WEFT_API const char* weftGetErrorString(weftResult_t result);

/* The whole sentence of the last error, or "" if there was none. With a communicator that has failed, it is
 * the error of the communicator; otherwise it is that of the calling thread. `comm` may be NULL. A call on a
 * failed communicator that is refused for another reason gives its thread that sentence. The text stays valid
 * until the calling thread's next call of this function. */
WEFT_API const char* weftGetLastError(weftComm_t comm);

/* Weft only. weftSuccess if Weft can take the memory of CUDA device `device` (a number, or
 * WEFT_DEVICE_CURRENT) in this process; the error's sentence says what is missing. Loads CUDA's driver.
 * WEFT_DEVICE_HOST is always weftSuccess. Errors: weftUnsupported (no driver, one that is too old, no
 * device), weftInvalidArgument (no such device), weftUnhandledCudaError, weftInvalidSetting. */
WEFT_API weftResult_t weftDeviceQuery(int device);

/* ---- creating communicators ---- */

/* Makes the id of a new communicator and starts listening for its ranks in this process, which must live
 * until they have met. One id makes one communicator. Errors: weftInvalidPointer, weftInvalidSetting
 * (WEFT_SOCKET_IFNAME), weftSystemError. */
WEFT_API weftResult_t weftGetUniqueId(weftUniqueId* uniqueId);

/* Creates this rank's end of a communicator of `nranks` ranks. Blocks until all ranks have come, or
 * WEFT_INIT_TIMEOUT_S is over: the error then says which have not. Ranks may be threads of one process, or
 * one thread calling for several inside a group. `nranks` ≥ 1 and `commId` are the same on all ranks; 0 ≤
 * `rank` < nranks is different on all ranks. Errors: weftInvalidPointer, weftInvalidArgument (nranks),
 * weftInvalidRoot (rank), weftInvalidUniqueId, weftInvalidSetting, weftMismatch (ranks have different
 * settings that must agree, or versions of the library), weftTimeout, weftProtocolError, weftRemoteError,
 * weftSystemError, weftOutOfMemory. */
WEFT_API weftResult_t weftCommInitRank(weftComm_t* comm, int nranks, weftUniqueId commId, int rank);

/* As weftCommInitRank, with a configuration; NULL means all defaults. Further errors: weftInvalidArgument (a
 * configuration not made by WEFT_CONFIG_INITIALIZER, or a member out of range). */
WEFT_API weftResult_t weftCommInitRankConfig(weftComm_t* comm, int nranks, weftUniqueId commId, int rank,
                                             const weftConfig_t* config);

/* Creates all ranks of a communicator inside this process: comms[i] is rank i. Each is then used from a
 * thread of its own, or by one thread with groups. `ndev` ≥ 1. Unlike NCCL, `devlist` is ignored and may be
 * NULL, and the communicators are on host memory.
 * Errors: as weftCommInitRank. On an error entries that are not NULL are communicators to be destroyed. */
WEFT_API weftResult_t weftCommInitAll(weftComm_t* comms, int ndev, const int* devlist);

/* Weft only. Creates the communicator of all processes that the launcher started, from the environment. The
 * launcher is weft_run (WEFT_RANK, WEFT_WORLD_SIZE, WEFT_ROOT), torchrun (RANK, WORLD_SIZE, MASTER_ADDR,
 * MASTER_PORT), srun, or mpirun of Open MPI or MPICH. Without one it is a communicator of one rank. A process
 * calls it once. Errors: as weftCommInitRank; weftInvalidSetting also if the environment does not say how
 * ranks can meet. */
WEFT_API weftResult_t weftCommInitEnv(weftComm_t* comm);

/* Divides a communicator. Ranks that give the same `color` (≥ 0) get a communicator of their own, ordered by
 * `key`, then by their rank here. A rank that gives WEFT_SPLIT_NOCOLOR gets NULL, in a non-blocking split at
 * once. A collective: all ranks of `comm` call it, in the same place among their calls. With `config` NULL
 * the new communicator inherits. `comm` stays as it is. Errors: weftInvalidPointer, weftInvalidComm,
 * weftInvalidArgument (color < -1, config), weftMismatch, and as weftCommInitRank. */
WEFT_API weftResult_t weftCommSplit(weftComm_t comm, int color, int key, weftComm_t* newcomm,
                                    const weftConfig_t* config);

/* Makes a communicator without the excluded ranks. The others keep their order and are numbered without gaps.
 * All ranks that are not excluded call it, with the same list. Nothing is sent, so it returns at once,
 * whatever has happened to `comm` before (with the backend NCCL, ranks wait for a new communicator of
 * NCCL's). A communicator on a CUDA device keeps the device, or becomes one of host memory.
 * `excludeRanksList` holds ranks of `comm`, not the caller's. With WEFT_SHRINK_DEFAULT, operations in flight
 * on `comm` go on. With WEFT_SHRINK_ABORT this rank ends them first, with weftAborted. `comm` then allows
 * only weftCommDestroy and weftCommAbort. Errors: weftInvalidPointer, weftInvalidComm, weftInvalidArgument
 * (list, flags, config), weftInvalidRoot (a rank of the list), weftInvalidUsage (finalized). */
WEFT_API weftResult_t weftCommShrink(weftComm_t comm, const int* excludeRanksList, int excludeRanksCount,
                                     weftComm_t* newcomm, const weftConfig_t* config, int shrinkFlags);

/* Weft only. Makes a communicator of the ranks of `comm` that ranksList names, in the order of the list. Only
 * they call it, with the same list and tag; nothing is sent, and nobody is waited for. The new communicator
 * shares the connections of `comm`, but not its failures; it may outlive it. Each of a communicator's groups
 * of the same ranks needs a tag of its own, also after one of them was destroyed. *newcomm is set as by
 * weftCommSplit. Errors: as weftCommSplit, weftInvalidRoot (a rank out of range), weftInvalidArgument (no
 * ranks, one twice, or not the calling rank; another device than the parent's). */
WEFT_API weftResult_t weftCommCreateGroup(weftComm_t comm, const int* ranksList, int ranksCount, uint64_t tag,
                                          weftComm_t* newcomm, const weftConfig_t* config);

/* Makes the id by which new ranks join those of `comm`. One rank of `comm` calls it, gives the id to the new
 * ranks, and passes it to weftCommGrow. Errors: as weftGetUniqueId, weftInvalidComm, weftInvalidUsage
 * (finalized). */
WEFT_API weftResult_t weftCommGetUniqueId(weftComm_t comm, weftUniqueId* uniqueId);

/* Makes a communicator of `nRanks` ranks: those of `comm`, with the same numbers, and new ones. A collective
 * of all of them. The ranks of `comm` pass rank -1, and NULL for the id, but for the one that has made it.
 * New ranks pass comm NULL, the id, and a rank behind those of `comm`. The new communicator has connections
 * of its own. `comm` stays as it is, and may be destroyed. Errors: as weftCommInitRankConfig and
 * weftCommSplit, weftInvalidArgument (nRanks is not more than comm has; no rank of comm passes an id),
 * weftMismatch (nRanks differ; two ids). */
WEFT_API weftResult_t weftCommGrow(weftComm_t comm, int nRanks, const weftUniqueId* uniqueId, int rank,
                                   weftComm_t* newcomm, const weftConfig_t* config);

/* ---- ending and asking communicators ---- */

/* Waits until this rank's operations are complete. For a CUDA stream that does not reach its operation it
 * waits for config.timeoutSeconds, then fails with weftTimeout. Afterwards only questions, weftCommAbort and
 * weftCommDestroy are allowed. Errors: weftInvalidComm, weftInvalidUsage (twice, or inside a group), and what
 * the communicator failed with. */
WEFT_API weftResult_t weftCommFinalize(weftComm_t comm);

/* Frees the communicator. It first waits for this rank's operations, whose failure is no error here. The last
 * communicator of a job then waits until data of complete operations has reached the peers' machines, for 5 s
 * at most. What a peer has not taken by then is lost, and the peer's calls fail. A process that ends without
 * this call may lose what the last 100 us of its calls had still to send. Errors: weftInvalidComm (NULL, or
 * destroyed before), weftInvalidUsage (inside a group). */
WEFT_API weftResult_t weftCommDestroy(weftComm_t comm);

/* Ends everything in flight, here with weftAborted and on the other ranks with weftRemoteError, and frees the
 * communicator. Returns in bounded time, whatever state peers are in, and may be called while another thread
 * waits in an operation, which then returns weftAborted. A communicator that is still being created without
 * blocking does not wait for ranks that have not come. Once all have met, this call waits for the rest of the
 * creation, for WEFT_INIT_TIMEOUT_S at most, and in a split for the parent's timeoutSeconds at most. Ranks
 * that are threads of one process may reach each other's GPU memory directly. After a failure or an abort,
 * free such memory when the operation has ended on all ranks of the process. Errors: weftInvalidComm (NULL,
 * or destroyed before), weftInvalidUsage (inside a group). */
WEFT_API weftResult_t weftCommAbort(weftComm_t comm);

/* As weftCommAbort. The other ranks read `reason` in weftGetLastError, after "was aborted: ", unless the
 * communicator failed before. NULL and "" are no reason. The first 400 bytes of it travel. Errors: as
 * weftCommAbort. */
WEFT_API weftResult_t weftCommAbortWithReason(weftComm_t comm, const char* reason);

/* Sets *asyncError to weftSuccess, to weftInProgress while a non-blocking call goes on, or to what the
 * communicator failed with. Does not block. Errors: weftInvalidPointer, weftInvalidComm. */
WEFT_API weftResult_t weftCommGetAsyncError(weftComm_t comm, weftResult_t* asyncError);

/* Weft only. Sets the deadline of operations that are called on the communicator from now on, as
 * timeoutSeconds in weftConfig_t. Not a collective: ranks may differ, and the shortest time counts. NCCL's
 * operations have none. Errors: weftInvalidComm, weftInvalidUsage (finalized), weftInvalidArgument (not
 * greater than 0). */
WEFT_API weftResult_t weftCommSetTimeout(weftComm_t comm, double timeoutSeconds);

/* Weft only. Sets the deadline of the calls that the calling thread makes from now on, on whichever
 * communicator. 0, the default: that of the communicator. Errors: weftInvalidArgument (negative or NaN). */
WEFT_API weftResult_t weftSetCallTimeout(double timeoutSeconds);

/* Sets *count to the number of ranks. Errors: weftInvalidPointer, weftInvalidComm. */
WEFT_API weftResult_t weftCommCount(const weftComm_t comm, int* count);

/* Sets *rank to the caller's rank. Errors: weftInvalidPointer, weftInvalidComm. */
WEFT_API weftResult_t weftCommUserRank(const weftComm_t comm, int* rank);

/* Weft only. Writes the flight recorder to `path` as JSON, also after a failure. Errors: weftInvalidPointer,
 * weftInvalidComm, weftSystemError. */
WEFT_API weftResult_t weftCommDump(weftComm_t comm, const char* path);

/* Weft only. Fills in *stats, which starts as WEFT_COMM_STATS_INITIALIZER. Does not block.
 * Errors: weftInvalidPointer, weftInvalidComm, weftInvalidArgument (not initialized). */
WEFT_API weftResult_t weftCommGetStats(weftComm_t comm, weftCommStats_t* stats);

/* ---- memory ---- */

/* Allocates `size` bytes that peers on this node can reach without a copy: host memory, unlike NCCL. Aligned
 * to 64 bytes, contents undefined. Size 0 gives NULL. Errors: weftInvalidPointer, weftOutOfMemory,
 * weftSystemError. */
WEFT_API weftResult_t weftMemAlloc(void** ptr, size_t size);

/* Frees what weftMemAlloc gave. No operation may be using it. NULL is allowed. Errors: weftInvalidPointer
 * (not the start of such an allocation). */
WEFT_API weftResult_t weftMemFree(void* ptr);

/* Prepares a buffer for repeated use on `comm`, so that no operation has to register it. A matter of speed
 * only; not a collective. The buffer must stay allocated until it is deregistered, with `*handle`. Errors:
 * weftInvalidPointer, weftInvalidComm, weftInvalidArgument (size 0), weftSystemError. */
WEFT_API weftResult_t weftCommRegister(const weftComm_t comm, void* buff, size_t size, void** handle);

/* Undoes weftCommRegister. No operation may be using the buffer. Errors: weftInvalidComm, weftInvalidArgument
 * (unknown handle). */
WEFT_API weftResult_t weftCommDeregister(const weftComm_t comm, void* handle);

/* ---- operators ---- */

/* Makes an operator that multiplies this rank's input by a scalar before it is summed. Every rank makes its
 * own, in the same order, with its own scalar; scalars may differ. Valid on `comm` and `datatype` only.
 * `scalar` points to one element of `datatype`; `residence` says when it is read. Errors: weftInvalidPointer,
 * weftInvalidComm, weftInvalidType, weftInvalidArgument (residence), weftInvalidUsage (4096 are alive). */
WEFT_API weftResult_t weftRedOpCreatePreMulSum(weftRedOp_t* op, void* scalar, weftDataType_t datatype,
                                               weftScalarResidence_t residence, weftComm_t comm);

/* Destroys an operator as soon as the calls that were given it have returned, even if they are still in
 * flight. Errors: weftInvalidComm, weftInvalidOp (built in, or not of this communicator). */
WEFT_API weftResult_t weftRedOpDestroy(weftRedOp_t op, weftComm_t comm);

/* ---- streams ---- */

/* Weft only. Makes a stream of operations on host memory. It belongs to no communicator.
 * Errors: weftInvalidPointer, weftOutOfMemory. */
WEFT_API weftResult_t weftStreamCreate(weftStream_t* stream);

/* Waits for the stream's operations, and for the ends of its callbacks (weftStreamNotify), and frees it.
 * Errors: weftInvalidPointer (NULL or destroyed), weftInvalidUsage (inside a callback), and what the
 * operations failed with; then it is freed anyhow. */
WEFT_API weftResult_t weftStreamDestroy(weftStream_t stream);

/* Waits until every operation on the stream is complete. Returns the first failure since the last
 * synchronization or query that told it, if any. Errors: weftInvalidPointer (NULL or destroyed), and what the
 * operations failed with. */
WEFT_API weftResult_t weftStreamSynchronize(weftStream_t stream);

/* How many operations have been put on the stream so far, those of an open group not among them.
 * Errors: weftInvalidPointer (NULL or destroyed, or `position` is NULL). */
WEFT_API weftResult_t weftStreamGetPosition(weftStream_t stream, uint64_t* position);

/* Waits until the first `position` operations of the stream are complete; those behind them go on. Returns
 * and errors as weftStreamSynchronize; weftInvalidArgument if the stream has not had so many. */
WEFT_API weftResult_t weftStreamSynchronizeTo(weftStream_t stream, uint64_t position);

/* Weft only. As weftStreamSynchronizeTo, for `timeoutSeconds` at most: weftInProgress if the operations are
 * unfinished then. They go on. 0 looks once; INFINITY waits as long as it takes. Further errors:
 * weftInvalidArgument (timeoutSeconds is negative or NaN). */
WEFT_API weftResult_t weftStreamWait(weftStream_t stream, uint64_t position, double timeoutSeconds);

/* weftSuccess when every operation on the stream is complete, weftInProgress when not; does not block.
 * Errors: as weftStreamSynchronize. */
WEFT_API weftResult_t weftStreamQuery(weftStream_t stream);

/* Weft only. As weftStreamQuery, for the first `position` operations of the stream. Errors: as
 * weftStreamSynchronizeTo. */
WEFT_API weftResult_t weftStreamQueryTo(weftStream_t stream, uint64_t position);

/* Weft only. Calls `notify` once, as soon as every operation that is on the stream now (not in an open group)
 * is complete. Does not block. The operations need nobody who waits. `notify` runs on a thread of the
 * library, never inside this call, and may call every function but weftStreamDestroy. Callbacks of a process
 * begin one after the other, those of one stream in the order of these calls. One that blocks delays the next
 * by a millisecond. For a poll loop, let `notify` write to an eventfd. Errors: weftInvalidPointer (NULL or
 * destroyed, or `notify` is NULL). */
WEFT_API weftResult_t weftStreamNotify(weftStream_t stream, weftNotify_t notify, void* arg);

/* ---- collectives ----
 *
 * Errors of all of them: weftInvalidComm, weftInvalidPointer (a buffer that the rank needs is NULL or not
 * aligned), weftInvalidArgument (the stream is destroyed), weftInvalidType, weftInvalidCount. Of reductions:
 * weftInvalidOp. With a root: weftInvalidRoot. After weftCommFinalize: weftInvalidUsage. With a null stream:
 * also what the operation fails with. n is the number of ranks.
 */

/* recvbuff[i] of `root` = op over all ranks of sendbuff[i], i < count. recvbuff is not used elsewhere and may
 * be NULL there. In place when sendbuff == recvbuff. */
WEFT_API weftResult_t weftReduce(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype,
                                 weftRedOp_t op, int root, weftComm_t comm, weftStream_t stream);

/* recvbuff[i] of every rank = sendbuff[i] of `root`, i < count. sendbuff is not used elsewhere and may be
 * NULL there. In place when sendbuff == recvbuff. */
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
 * recvcount elements. In place when recvbuff == sendbuff + rank × recvcount. */
WEFT_API weftResult_t weftReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                        weftDataType_t datatype, weftRedOp_t op, weftComm_t comm,
                                        weftStream_t stream);

/* recvbuff[r × sendcount + i] of every rank = sendbuff[i] of rank r, i < sendcount. recvbuff has n ×
 * sendcount elements. In place when sendbuff == recvbuff + rank × sendcount. */
WEFT_API weftResult_t weftAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                                    weftDataType_t datatype, weftComm_t comm, weftStream_t stream);

/* recvbuff[r × count + i] of rank s = sendbuff[s × count + i] of rank r, i < count. Both have n × count
 * elements. In place when sendbuff == recvbuff: on all ranks or on none. */
WEFT_API weftResult_t weftAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                                   weftDataType_t datatype, weftComm_t comm, weftStream_t stream);

/* recvbuff[r × count + i] of `root` = sendbuff[i] of rank r, i < count. At the root, recvbuff has n × count
 * elements. Elsewhere it is not used and may be NULL. In place when, at the root, sendbuff == recvbuff + root
 * × count. */
WEFT_API weftResult_t weftGather(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype,
                                 int root, weftComm_t comm, weftStream_t stream);

/* recvbuff[i] of rank r = sendbuff[r × count + i] of `root`, i < count. At the root, sendbuff has n × count
 * elements. Elsewhere it is not used and may be NULL. In place when, at the root, recvbuff == sendbuff + root
 * × count. */
WEFT_API weftResult_t weftScatter(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype,
                                  int root, weftComm_t comm, weftStream_t stream);

/* Weft only, as the next two. AllGather whose ranks send different counts. On every rank
 * recvbuff[displs[r] + i] = sendbuff[i] of rank r, i < recvcounts[r]. Both arrays, recvcounts and displs,
 * have n entries, in elements, and are read before the call returns. recvcounts is the same on all ranks;
 * displs need not be. NULL for displs: the blocks lie one behind the other. Blocks may not overlap. In place
 * when sendbuff == recvbuff + displs[rank]. Further errors: weftInvalidArgument (blocks overlap). */
WEFT_API weftResult_t weftAllGatherV(const void* sendbuff, void* recvbuff, const size_t* recvcounts,
                                     const size_t* displs, weftDataType_t datatype, weftComm_t comm,
                                     weftStream_t stream);

/* recvbuff[i] of rank r = op over all ranks of sendbuff[displs[r] + i], i < recvcounts[r]. The arrays are as
 * for weftAllGatherV, but blocks that are only read may overlap. In place when recvbuff == sendbuff +
 * displs[rank], and the other blocks are apart from that one. */
WEFT_API weftResult_t weftReduceScatterV(const void* sendbuff, void* recvbuff, const size_t* recvcounts,
                                         const size_t* displs, weftDataType_t datatype, weftRedOp_t op,
                                         weftComm_t comm, weftStream_t stream);

/* recvbuff[rdispls[r] + i] of rank s = sendbuff[sdispls[s] + i] of rank r, i < recvcounts[r]; sendcounts[s]
 * of rank r is recvcounts[r] of rank s. Counts and displacements have n entries each, and are this rank's
 * alone. NULL for displacements: the blocks lie one behind the other. Not in place. Further errors:
 * weftInvalidArgument (blocks of recvbuff overlap; the own counts differ; in place). */
WEFT_API weftResult_t weftAlltoAllV(const void* sendbuff, const size_t* sendcounts, const size_t* sdispls,
                                    void* recvbuff, const size_t* recvcounts, const size_t* rdispls,
                                    weftDataType_t datatype, weftComm_t comm, weftStream_t stream);

/* Sends `count` elements to rank `peer`, which must call weftRecv with the same count and type. Sends from
 * one rank to another match receives in the order of the calls. The call may complete only when the peer
 * receives: sends and receives that wait for each other must be in one group. A rank may send to itself, in a
 * group. */
WEFT_API weftResult_t weftSend(const void* sendbuff, size_t count, weftDataType_t datatype, int peer,
                               weftComm_t comm, weftStream_t stream);

/* Receives `count` elements from rank `peer`; see weftSend. */
WEFT_API weftResult_t weftRecv(void* recvbuff, size_t count, weftDataType_t datatype, int peer,
                               weftComm_t comm, weftStream_t stream);

/* ---- one-sided operations ----
 *
 * A rank puts data into windows of other ranks, which call nothing for it. It tells them by signals, for
 * which they wait. Signals are counted by sender, `sigIdx` and `ctx`, both in [0, WEFT_NUM_SIGNALS). A signal
 * is counted when it is there, and all puts and signals that the sender's library sent to this rank before
 * it. So calls on one stream are counted in their order. Puts that have not been waited for may be written in
 * any order. While a window is open, the library's progress thread takes puts for a rank that calls nothing.
 *
 * Errors of the three operations: as of collectives, and weftInvalidArgument (window, offset, sigIdx, ctx,
 * flags), weftInvalidRoot (peer), weftUnsupported (in a capture of a CUDA graph, with the backend NCCL). A
 * call with wrong arguments has sent nothing.
 */

/* Opens `size` bytes at `buff` to the other ranks. A collective: all ranks call it, in the same place among
 * their calls, and wait for each other. Sizes may differ; of size 0, buff may be NULL. `buff` is memory as
 * collectives take it, and stays until the window is deregistered. In a group, *win is set by weftGroupEnd.
 * winFlags: WEFT_WIN_*. Errors: weftInvalidPointer, weftInvalidComm, weftInvalidArgument (winFlags),
 * weftUnsupported (device memory on a communicator of host memory; the backend NCCL), weftSystemError, and
 * what the collective fails with. */
WEFT_API weftResult_t weftCommWindowRegister(weftComm_t comm, void* buff, size_t size, weftWindow_t* win,
                                             int winFlags);

/* Closes a window on this rank. Not a collective, and waits for nobody: call it when the last put into the
 * window has been waited for. A put that comes later fails the communicator. The end of the communicator
 * closes its windows. Errors: weftInvalidComm, weftInvalidArgument (no window of this communicator, or
 * deregistered before). */
WEFT_API weftResult_t weftCommWindowDeregister(weftComm_t comm, weftWindow_t win);

/* Writes `count` elements of localbuff at `peerWinOffset`, in bytes, of rank `peer`'s part of the window,
 * then signals. The call is complete when localbuff may be reused, which says nothing of the peer. `peer` may
 * be the caller. With a count of 0 it is weftSignal. `flags` is 0. */
WEFT_API weftResult_t weftPutSignal(const void* localbuff, size_t count, weftDataType_t datatype, int peer,
                                    weftWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx,
                                    unsigned int flags, weftComm_t comm, weftStream_t stream);

/* Signals rank `peer` that all earlier puts of this rank to it are there. Needs no window. `flags` is 0. */
WEFT_API weftResult_t weftSignal(int peer, int sigIdx, int ctx, unsigned int flags, weftComm_t comm,
                                 weftStream_t stream);

/* What weftWaitSignal() waits for. */
typedef struct {
  int opCnt;  /* how many signals more than all earlier calls have waited for */
  int peer;   /* of which rank */
  int sigIdx; /* and by which name */
  int ctx;
} weftWaitSignalDesc_t;

/* Waits for the signals of nDesc descriptors, which are read before the call returns. Then the data of the
 * puts before those signals are there. A peer that dies ends the wait with weftRemoteError. At the deadline,
 * the error says which rank has sent how many signals. */
WEFT_API weftResult_t weftWaitSignal(int nDesc, const weftWaitSignalDesc_t* signalDescs, weftComm_t comm,
                                     weftStream_t stream);

/* ---- groups ---- */

/* Opens a group on the calling thread. Groups nest; only the outermost weftGroupEnd() starts anything. Cannot
 * fail. */
WEFT_API weftResult_t weftGroupStart(void);

/* Closes a group. The outermost one starts all recorded calls and waits for those with a null stream. Returns
 * the first error of a grouped call, or of what it waited for. If a grouped call is wrong, no call of the
 * group has been started, except calls that are NCCL's. Further errors: weftInvalidUsage (no group is open).
 */
WEFT_API weftResult_t weftGroupEnd(void);

/* Closes the outermost group without running it, and estimates how long it would take, its calls one after
 * the other. An uneven call counts as the even one that moves as much through this rank. Communicators that
 * would have been created are left NULL or unusable. simInfo starts as WEFT_SIM_INFO_INITIALIZER. A nested
 * call only closes its group. Errors: as weftGroupEnd, weftInvalidPointer (simInfo NULL), and
 * weftInvalidArgument (simInfo not initialized). */
WEFT_API weftResult_t weftGroupSimulateEnd(weftSimInfo_t* simInfo);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* WEFT_WEFT_H_ */
