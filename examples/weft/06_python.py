"""Weft from Python without PyTorch: the C functions by ctypes. With PyTorch use the backend "weft" (examples/torch).

    weft_run -n 2 python3 06_python.py                            # a Weft that is installed
    weft_run -n 2 python3 06_python.py build/lib/libweft.so       # a library by its path
"""
import ctypes
import sys

FLOAT, SUM = 7, 0  # weftFloat and weftSum of weft.h

weft = ctypes.CDLL(sys.argv[1] if len(sys.argv) > 1 else "libweft.so.0")
weft.weftGetLastError.restype = ctypes.c_char_p
weft.weftGetLastError.argtypes = [ctypes.c_void_p]
weft.weftCommUserRank.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
weft.weftCommDestroy.argtypes = [ctypes.c_void_p]
weft.weftAllReduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_void_p,
                               ctypes.c_void_p]


def check(result):
    if result != 0:
        raise RuntimeError(weft.weftGetLastError(None).decode())


comm, rank = ctypes.c_void_p(), ctypes.c_int()
check(weft.weftCommInitEnv(ctypes.byref(comm)))
check(weft.weftCommUserRank(comm, ctypes.byref(rank)))
mine = (ctypes.c_float * 4)(*(rank.value + i for i in range(4)))
total = (ctypes.c_float * 4)()
check(weft.weftAllReduce(mine, total, 4, FLOAT, SUM, comm, None))
print(f"rank {rank.value}: {list(total)}")
check(weft.weftCommDestroy(comm))
