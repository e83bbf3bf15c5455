#!/usr/bin/env python3
"""Checks the thread-safety annotations of src/ with clang: check_threads.py BUILD [PART...].

Reads the compile commands of a build directory and has clang check the syntax of each source of src/ that includes
an annotation, directly or not, with -Wthread-safety and every warning an error. No other source can break an
annotation. PART selects the sources whose path contains one of them. Reading headers takes longer than checking a source, so
headers that most sources include are compiled once, and sources are checked several at a time. If clang objects to several
sources together, for example because their names clash, each of them is checked alone.
Prints clang's messages, then how many sources were checked. The exit code is 1 if clang objects, and 77 without clang.
"""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ANNOTATIONS = ("src/weft/base/thread_annotations.h", "src/loom/base/mutex.h")
TOGETHER = 6
# What clang does not know, or would write or read of gcc's.
WITH_VALUE, ALONE = {"-o", "-include", "-MF", "-MT", "-MQ"}, {"-c", "-MD", "-MMD", "-Winvalid-pch", "-fconcepts"}


def flags_of(command):
    """The arguments of a compile command that say how to read the source."""
    words = iter(shlex.split(command)[1:])
    flags = []
    for word in words:
        if word in WITH_VALUE:
            next(words, None)
        elif word not in ALONE and not word.startswith(("-O", "-g", "--param", "-fsanitize", "-W")):
            flags.append(word)
    return flags


class Includes:
    """Which of our files lead to the annotations."""

    def __init__(self):
        self.known = {}

    def annotated(self, path, folders):
        if path in self.known:
            return self.known[path]
        self.known[path] = str(path).endswith(ANNOTATIONS)  # also for a file that includes itself, by a circle
        if not self.known[path]:
            names = re.findall(r'^\s*#include "([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE)
            files = (next((f / name for f in [path.parent, *folders] if (f / name).is_file()), None) for name in names)
            self.known[path] = any(file and self.annotated(file.resolve(), folders) for file in list(files))
        return self.known[path]


def united(file):
    """The sources of a file that is compiled: those that it includes if CMake wrote it (cmake/together.cmake), else itself."""
    if file.parent.name != "Unity":
        return [file]
    return [Path(name).resolve() for name in re.findall(r'^#include "([^"]+)"', file.read_text(encoding="utf-8"), re.MULTILINE)]


def sources(build, parts):
    """(file, flags without the file, folder) of what has to be checked."""
    root = Path(__file__).resolve().parent.parent / "src"
    includes = Includes()
    chosen = {}
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        compiled = Path(entry["directory"], entry["file"]).resolve()
        flags = [word for word in flags_of(entry["command"]) if Path(entry["directory"], word).resolve() != compiled]
        folders = [Path(word[2:]) for word in flags if word.startswith("-I")]
        for file in united(compiled):
            if root not in file.parents or file.suffix != ".cc" or (parts and not any(part in str(file) for part in parts)):
                continue
            if includes.annotated(file, folders):
                chosen.setdefault(file, (flags, entry["directory"]))
    return chosen


def batches(chosen):
    """The sources, by flags and in the order of their paths, TOGETHER at a time."""
    by_flags = {}
    for file in sorted(chosen):
        by_flags.setdefault(tuple(chosen[file][0]), []).append(file)
    for files in by_flags.values():
        yield from (files[at:at + TOGETHER] for at in range(0, len(files), TOGETHER))


def precompile(clang, build, flags, folder):
    """Compiles what most sources include of other libraries; returns the flags by which a source takes it."""
    listed = (Path(__file__).resolve().parent.parent / "cmake/precompiled_headers.cmake").read_text(encoding="utf-8")
    headers = re.findall(r"<[^>]+>", listed.split("WEFT_PRECOMPILED")[1].split(")")[0])
    header = build / "check_threads" / f"{zlib.crc32(shlex.join(flags).encode()):08x}.h"
    header.parent.mkdir(exist_ok=True)
    header.write_text("".join(f"#include {name}\n" for name in headers), encoding="utf-8")
    made = Path(f"{header}.pch")
    done = subprocess.run([clang, *flags, "-x", "c++-header", header, "-o", made], cwd=folder, capture_output=True, check=False)
    return ["-include-pch", str(made)] if done.returncode == 0 else []


def main():
    build = Path(sys.argv[1]).resolve()
    clang = shutil.which(os.environ.get("CLANG", "clang++"))
    if not clang:
        print("skipped: there is no clang++ to check thread-safety annotations with (scripts/deps.sh --tests installs it)")
        return 77
    chosen = sources(build, sys.argv[2:])
    workers = os.cpu_count() or 1
    with ThreadPoolExecutor(workers) as pool:
        kinds = {tuple(flags): folder for flags, folder in chosen.values()}
        ready = dict(zip(kinds, pool.map(lambda kind: precompile(clang, build, list(kind), kinds[kind]), kinds)))

        def check(files, name):
            """Checks sources of the same flags as one; returns clang's messages, empty if there are none."""
            flags, folder = chosen[files[0]]
            source = files[0]
            if len(files) > 1:
                source = build / "check_threads" / f"together_{name}.cc"
                source.write_text("".join(f'#include "{file}"\n' for file in files), encoding="utf-8")
            command = [clang, *flags, *ready[tuple(flags)], "-fsyntax-only", "-Wthread-safety", "-Werror", source]
            return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)

        together = list(batches(chosen))
        checked = list(pool.map(check, together, range(len(together))))
        objected = [file for files, result in zip(together, checked) if result.returncode != 0 for file in files]
        results = list(pool.map(lambda file: check([file], ""), objected))
    for result in results:
        sys.stdout.write(result.stderr)
    failed = sum(result.returncode != 0 for result in results)
    print(f"{len(chosen)} sources checked, {len(objected)} of them alone, {failed} with errors")
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
