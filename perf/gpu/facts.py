#!/usr/bin/env python3
"""Prints one line of JSON: what is on this machine of what the measurements of perf/gpu need.

    perf/gpu/facts.py [DRIVER]      the CUDA driver's library, libcuda.so.1

Run as a program of its own, with a time limit: a driver or PyTorch that hangs must not hang the caller. Nothing is loaded
into PyTorch but its version.
"""
import ctypes
import glob
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys


def said(*command):
    """What a command prints, or None."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def devices(library):
    """The names of the GPUs that the driver finds, or a sentence why there is none."""
    try:
        driver = ctypes.CDLL(library)
    except OSError as error:
        return f"there is no CUDA driver: {error}"
    count, name, names = ctypes.c_int(), ctypes.create_string_buffer(256), []
    for function, arguments in (("cuInit", (0,)), ("cuDeviceGetCount", (ctypes.byref(count),))):
        code = getattr(driver, function)(*arguments)
        if code != 0:
            return f"{function} says error {code}"
    for device in range(count.value):
        driver.cuDeviceGetName(name, len(name), device)  # a device's handle is its number
        names.append(name.value.decode(errors="replace"))
    return names or "the CUDA driver finds no GPU"


def torch_version():
    """PyTorch's version from its folder, since importing it takes seconds."""
    found = importlib.util.find_spec("torch")
    if not found:
        return None
    with open(os.path.join(os.path.dirname(found.origin), "version.py"), encoding="utf-8") as file:
        version = re.search(r"__version__ = '([^']+)'", file.read())
    return version.group(1) if version else "unknown"


def nccl_file():
    """NVIDIA's NCCL: beside PyTorch, or where the linker finds it."""
    found = importlib.util.find_spec("torch")
    if found:
        beside = glob.glob(os.path.join(os.path.dirname(found.origin), "..", "nvidia", "nccl", "lib", "libnccl.so.2"))
        if beside:
            return os.path.realpath(beside[0])
    known = re.search(r"libnccl\.so\.2 .*=> (\S+)", said("ldconfig", "-p") or "")
    return known.group(1) if known else None


def cublaslt_file():
    """cuBLASLt of the Python packages that PyTorch comes with. Loom itself finds the one of CUDA's folder."""
    found = importlib.util.find_spec("nvidia")
    for folder in found.submodule_search_locations if found else []:
        if files := sorted(glob.glob(f"{folder}/*/lib/libcublasLt.so.1[23]"), reverse=True):
            return files[0]
    return None


def cudnn_file():
    """cuDNN of the Python packages that PyTorch comes with, or where the linker finds it."""
    found = importlib.util.find_spec("nvidia")
    for folder in found.submodule_search_locations if found else []:
        if os.path.exists(file := f"{folder}/cudnn/lib/libcudnn.so.9"):
            return file
    known = re.search(r"libcudnn\.so\.9 .*=> (\S+)", said("ldconfig", "-p") or "")
    return known.group(1) if known else None


def nccl_version(file):
    if not file:
        return None
    try:
        version = ctypes.c_int()
        ctypes.CDLL(file).ncclGetVersion(ctypes.byref(version))
    except (OSError, AttributeError) as error:
        return str(error)
    return f"{version.value // 10000}.{version.value // 100 % 100}.{version.value % 100}"


def nvcc_release():
    found = re.search(r"release (\S+),", said("nvcc", "--version") or "")
    return found.group(1) if found else None


def tool(name, *folders):
    """A tool of CUDA's on the path, or in a folder of its own."""
    found = [file for folder in folders for file in sorted(glob.glob(f"{folder}/{name}"), reverse=True)]
    return shutil.which(name) or (found[0] if found else None)


def cards():
    columns = ["name", "driver_version", "memory.total", "clocks.sm", "compute_cap"]
    listed = said("nvidia-smi", f"--query-gpu={','.join(columns)}", "--format=csv,noheader")
    return [dict(zip(columns, line.split(", "))) for line in listed.splitlines()] if listed else None


def cuda_of_the_driver():
    found = re.search(r"CUDA Version: ([\d.]+)", said("nvidia-smi") or "")
    return found.group(1) if found else None


def main():
    library = sys.argv[1] if len(sys.argv) > 1 else "libcuda.so.1"
    asked = {
        "devices": lambda: devices(library),
        "cards": cards,
        "CUDA of the driver": cuda_of_the_driver,
        "nvcc": nvcc_release,
        "torch": torch_version,
        "NCCL": lambda: nccl_version(nccl_file()),
        "NCCL's file": nccl_file,
        "cuBLASLt's file": cublaslt_file,
        "cuDNN's file": cudnn_file,
        "compute-sanitizer": lambda: tool("compute-sanitizer", "/usr/local/cuda*/bin", "/usr/local/cuda*/compute-sanitizer"),
        "ncu": lambda: tool("ncu", "/usr/local/cuda*/bin", "/opt/nvidia/nsight-compute/*"),
        "python": platform.python_version,
        "system": lambda: platform.freedesktop_os_release().get("PRETTY_NAME"),
        "kernel": platform.release,
        "C library": lambda: " ".join(platform.libc_ver()),
        "CPUs": lambda: len(os.sched_getaffinity(0)),
    }
    facts = {}
    for name, ask in asked.items():
        try:
            facts[name] = ask()
        except Exception:  # noqa: BLE001  a fact that cannot be found out must not cost the others
            facts[name] = None
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
