#!/usr/bin/env python3
"""Whether plan_kernel_races.cc notices what is wrong with the plan kernel: mutate_plan_kernel.py SOURCE WORK COMPILE...

Builds the program once for each row of MUTATIONS, with that mutation in a copy of the kernel's headers, and runs it; it must
fail. Without one it must pass. SOURCE is the project's root, WORK a folder to work in, COMPILE the command that compiles and links the program, to
which the folder of the mutated headers is added in front as -I. Prints what each was noticed by. The exit code is 1 if one
was not.
"""
import shutil
import subprocess
import sys
from pathlib import Path

HEADERS = ["plan_block.h", "plan_kernel.h", "plan_program.h"]
# Name, header, the text, what stands there instead.
MUTATIONS = [
    ("flag before data", "plan_kernel.h", "char* const to = step.flags & kEager ?",
     "notify(step);\n    char* const to = step.flags & kEager ?"),
    ("relaxed in place of release", "plan_block.h", "std::atomic_ref(*word).store(value, std::memory_order_release)",
     "std::atomic_ref(*word).store(value, std::memory_order_relaxed)"),
    ("one slot in place of two", "plan_kernel.h", "const uint64_t set = block_.epoch % 2;", "const uint64_t set = 0;"),
    ("= in place of >=", "plan_kernel.h", "return PlanBlock::load_acquire(word) >= value;",
     "return PlanBlock::load_acquire(word) == value;"),
    ("epoch not advanced", "plan_kernel.h", "own_.epoch = block_.epoch;", ""),
    ("a barrier left out", "plan_kernel.h", "if (!(step.flags & kMeets)) return true;", "return true;"),
    ("another block's flag", "plan_kernel.h", "&own_.flag[step.peer][step.tag][part_]", "&own_.flag[step.peer][step.tag][0]"),
    ("abort never looked at", "plan_kernel.h", "if (PlanBlock::load_acquire(&host.abort) != 0) return true;", ""),
    ("deadline by polls", "plan_kernel.h", "if (block_.waited_ns() <= call_.timeout_ns) return false;",
     "if (++polls_ <= 2000) return false;"),
    ("another call's buffer is read", "plan_kernel.h", "return PlanBlock::load_acquire(told) == stamp();",
     "return PlanBlock::load_acquire(told) != 0;"),
    ("a left-out graph begins", "plan_block.h", "return std::atomic_ref(*const_cast<uint32_t*>(loaded)).load();", "return 0;"),
    ("credit not waited for", "plan_kernel.h", "block_.epoch > 2 ? block_.epoch - 2 : 0", "0"),
]
UNCHANGED = ("nothing changed", "plan_kernel.h", "own_.epoch = block_.epoch;", "own_.epoch = block_.epoch;")


def mutated(source, work, row):
    """The folder of headers with one mutation, whose text must be there once."""
    name, header, old, new = row
    folder = work / name.replace(" ", "_").replace(">", "greater").replace("'", "")
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "device" / "cuda").mkdir(parents=True)
    for each in HEADERS:
        text = (source / "src" / "weft" / "device" / "cuda" / each).read_text(encoding="utf-8")
        if each == header:
            if text.count(old) != 1:
                raise SystemExit(f"{name}: {header} has \"{old}\" {text.count(old)} times")
            text = text.replace(old, new)
            if "polls_" in new:
                text = text.replace("  const uint32_t lane_, part_;\n};", "  const uint32_t lane_, part_;\n  static inline uint32_t polls_ = 0;\n};")
        (folder / "device" / "cuda" / each).write_text(text, encoding="utf-8")
    return folder


def main():
    source, work, command = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    missed = []
    unpinned = ["setarch", "-R"] if subprocess.run(["setarch", "-R", "true"], capture_output=True).returncode == 0 else []
    for row in [UNCHANGED, *MUTATIONS]:
        folder = mutated(source, work, row)
        program = folder / "program"
        subprocess.run([command[0], f"-I{folder}", *command[1:], "-o", str(program)], check=True)
        try:
            ran = subprocess.run([*unpinned, program], capture_output=True, text=True, timeout=200, errors="replace")
            code, said = ran.returncode, (ran.stdout + ran.stderr).strip().split("\n")
        except subprocess.TimeoutExpired:
            code, said = 1, ["it does not end"]
        told = next((line for line in said if "WARNING" in line), said[0])
        print(f"{row[0]}: {'not noticed' if code == 0 else told}", flush=True)
        if (code == 0) != (row is UNCHANGED):
            missed.append(row[0])
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
