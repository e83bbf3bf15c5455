#!/usr/bin/env python3
"""Registers of the GPU kernels, and that none of them spills: registers.py KERNELS LOG...

KERNELS is src/loom/device/cuda/kernels; a log is what `nvcc -Xptxas -v` has said of one of its files. Prints a table, a row for each kernel and
a column for each GPU, of registers, with the bytes of a thread's local memory where there is some. The exit code is 1 if a kernel spills, has
local memory that it is not known to have, or is missing for a GPU.
"""
import re
import sys
from pathlib import Path

# Kernels with arrays that have an index known at run time only, and the most bytes that they may take: rows of norms that are not whole
# packs (norm.h), and the angles' cosines for any argument.
LOCAL = {"loom_norm_forward": 64, "loom_norm_backward": 128, "loom_norm_backward_wide": 256, "loom_rotary_turns": 40}

# Spills of kernels whose blocks need more shared memory than a multiprocessor of that GPU has, so that no launch succeeds.
NEVER_RUN = {("loom_attention_forward_bf16_256", "sm_75"), ("loom_attention_backward_keys_fp16_128", "sm_75")}

# Kernels that spill a few bytes around calls, and the most bytes: sm_75 has no products of bf16, so that each is a function's (primitives_gpu.h).
SPILLS = {("loom_attention_forward_bf16_128", "sm_75"): 56}


def read(log):
    """{(kernel, GPU): (registers, local bytes, spilled bytes)} of a log."""
    kernels, key = {}, None
    local = spilled = 0
    for line in log.read_text(encoding="utf-8").splitlines():
        if found := re.search(r"Compiling entry function '(\w+)' for '(\w+)'", line):
            key, local, spilled = found.groups(), 0, 0
        elif found := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            if key not in kernels:  # later lines are of functions that are called
                local, spilled = int(found[1]), int(found[2]) + int(found[3])
        elif (found := re.search(r"Used (\d+) registers", line)) and key:
            kernels[key] = (int(found[1]), local, spilled)
    return kernels


def names_of(source):
    """How many kernels a source has cannot be read off it, for macros make them; their first words can."""
    return set(re.findall(r"LOOM_KERNEL\((loom_[a-z0-9_]+?)_?(?:##|,)", source.read_text(encoding="utf-8")))


def main():
    kernels = {}
    wrong = []
    for log in map(Path, sys.argv[2:]):
        of_file = read(log)
        source = Path(sys.argv[1]) / log.name.replace(".fatbin.log", ".cu")
        wrong += [f"{log}: nothing of {name}" for name in names_of(source) if not any(k[0].startswith(name) for k in of_file)]
        kernels.update(of_file)
    gpus = sorted({gpu for _, gpu in kernels}, key=lambda gpu: int(re.sub(r"\D", "", gpu)))
    width = max((len(name) for name, _ in kernels), default=0)
    print(f"{'kernel':{width}}  " + "  ".join(f"{gpu:>9}" for gpu in gpus))
    for name in sorted({name for name, _ in kernels}):
        cells = []
        for gpu in gpus:
            if (name, gpu) not in kernels:
                wrong.append(f"{name} is missing for {gpu}")
                continue
            registers, local, spilled = kernels[name, gpu]
            cells.append(f"{registers}" + (f" + {local} B" if local else ""))
            allowed = LOCAL.get(re.sub(r"_(fp32|bf16|fp16)$", "", name), 0)
            if (name, gpu) in NEVER_RUN:
                continue
            if spilled > SPILLS.get((name, gpu), 0):
                wrong.append(f"{name} spills {spilled} bytes on {gpu}")
            elif not spilled and local > allowed:
                wrong.append(f"{name} has {local} bytes of local memory on {gpu}, {allowed} are known")
        print(f"{name:{width}}  " + "  ".join(f"{cell:>9}" for cell in cells))
    print("\n".join(wrong) if wrong else f"{len(kernels)} kernels, none of which spills more than is known where it can run")
    return 1 if wrong or not kernels else 0


if __name__ == "__main__":
    sys.exit(main())
