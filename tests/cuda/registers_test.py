#!/usr/bin/env python3
"""That docs/results/data/gpu.md has the registers of the GPU kernels: registers_test.py [--write] PAGE IMAGE...

An image is a fat binary of the build: plan.fatbin, reduce.fatbin. `cuobjdump -res-usage` says what each of its kernels takes for each GPU. The
page has a table for each image, the first one below its heading: a row for each kernel, and a column for each GPU with registers of a thread and
bytes of its stack. Of a build for fewer GPUs, WEFT_GPU_GENERATIONS, only their columns are compared. --write makes the tables anew, by a build for
all. The exit code is 77, with the reason, where that cannot be told: another nvcc takes other registers than the one that the page names.
"""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HEADINGS = {"reduce.fatbin": "Registers of the reduction kernels", "plan.fatbin": "Registers of the plan kernels"}


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def check_version(page):
    """The nvcc of the build, WEFT_NVCC, has to be the page's."""
    named = re.search(r"by nvcc (\d+\.\d+)", page)[1]
    found = re.search(r"release (\d+\.\d+)", subprocess.run([os.environ["WEFT_NVCC"], "--version"], capture_output=True, text=True, check=True).stdout)[1]
    if found != named:
        skip(f"the page is by nvcc {named}, this is {found}")


def usage(cuobjdump, image):
    """{kernel: {GPU: "registers, stack"}} of a fat binary."""
    said = subprocess.run([cuobjdump, "-res-usage", image], capture_output=True, text=True, check=True).stdout
    kernels, gpu, kernel = {}, None, None
    for line in said.splitlines():
        if found := re.match(r"arch = (sm_\d+)", line):
            gpu = found[1]
        elif found := re.match(r" Function (\w+):", line):
            kernel = found[1]
        elif found := re.match(r"  REG:(\d+) STACK:(\d+)", line):
            kernels.setdefault(kernel, {})[gpu] = f"{found[1]}, {found[2]}"
    return kernels


def read(table):
    """{kernel: {GPU: "registers, stack"}} of the page's table."""
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return {name.strip("`"): dict(zip(head[1:], cells)) for name, *cells in rows}


def gpus_of(kernels):
    return sorted({gpu for of in kernels.values() for gpu in of}, key=lambda gpu: int(gpu[3:]))


def table(kernels):
    gpus = gpus_of(kernels)
    rows = ["| kernel | " + " | ".join(gpus) + " |", "| --- |" + " --- |" * len(gpus)]
    rows += [f"| `{name}` | " + " | ".join(of.get(gpu, "none") for gpu in gpus) + " |" for name, of in sorted(kernels.items())]
    return "\n".join(rows) + "\n"


def main():
    arguments = [each for each in sys.argv[1:] if each != "--write"]
    path = Path(arguments[0])
    page = text = path.read_text(encoding="utf-8")
    cuobjdump = shutil.which("cuobjdump") or skip("there is no cuobjdump; `pip install nvidia-cuda-cuobjdump` brings one")
    check_version(page)
    for image in arguments[1:]:
        heading = HEADINGS[Path(image).name]
        found = re.search(rf"\n## {heading}\n.*?\n((?:\|[^\n]*\n)+)", text, re.DOTALL)
        if not found:
            sys.exit(f"{path} has no table below the heading '{heading}'")
        built, stated = usage(cuobjdump, image), read(found[1])
        missing = [gpu for gpu in gpus_of(stated) if gpu not in gpus_of(built)]
        if missing and "--write" in sys.argv:
            sys.exit(f"{image} has nothing for {', '.join(missing)}: build with WEFT_GPU_GENERATIONS=all")
        for name, cells in built.items():
            cells.update({gpu: stated[name][gpu] for gpu in missing if name in stated})
        text = text[: found.start(1)] + table(built) + text[found.end(1) :]
    if "--write" in sys.argv:
        path.write_text(text, encoding="utf-8")
    elif text != page:
        new = [line for line in text.splitlines() if line not in page.splitlines()]
        sys.exit("\n".join([f"{path} has other registers than this build; --write makes its tables anew:", *new]))
    print("the page's registers are those of this build")


if __name__ == "__main__":
    main()
