#!/usr/bin/env python3
"""Whether plan_kernel_races.cc notices what is wrong with the plan kernel.

    mutate_plan_kernel.py write HEADERS TARGET
    mutate_plan_kernel.py run PROGRAM

HEADERS is src/weft/device/cuda. TARGET gets copies of the kernel's headers, in which `mutated(n)` switches row n of MUTATIONS on;
the environment variable MUTATION says which one that is. So the kernel itself knows nothing of mutations. PROGRAM is
plan_kernel_races.cc, compiled with these headers. It must fail with each mutation, and pass without one. `run` prints what each
was noticed by. The exit code is 1 if one was not. A mutation whose place is not found exactly once is an error: the kernel has
changed, and the mutation has to change with it.
"""
import os
import subprocess
import sys
from pathlib import Path

HEADERS = ["plan_block.h", "plan_kernel.h", "plan_program.h", "plan_proxy.h"]
# Name, header, the text, what stands there instead, where {} is whether this mutation is switched on.
MUTATIONS = [
    ("flag before data", "plan_kernel.h",
     "    block_.each([&](uint32_t thread, uint32_t threads) {\n"
     "      copy_range(to + part.begin, from, part.bytes, thread, threads);\n    });\n    return notify(step);",
     "    if ({}) notify(step);\n    block_.each([&](uint32_t thread, uint32_t threads) {\n"
     "      copy_range(to + part.begin, from, part.bytes, thread, threads);\n    });\n    return {} || notify(step);"),
    ("relaxed in place of release", "plan_block.h", "std::atomic_ref(*word).store(value, std::memory_order_release)",
     "if ({}) std::atomic_ref(*word).store(value, std::memory_order_relaxed);\n"
     "    else std::atomic_ref(*word).store(value, std::memory_order_release)"),
    ("one slot in place of two", "plan_kernel.h", "const uint64_t set = block_.epoch % 2;",
     "const uint64_t set = {} ? 0 : block_.epoch % 2;"),
    ("= in place of >=", "plan_kernel.h", "return PlanBlock::load_acquire(word) >= value;",
     "return {} ? PlanBlock::load_acquire(word) == value : PlanBlock::load_acquire(word) >= value;"),
    ("epoch not advanced", "plan_kernel.h", "own_.epoch = block_.epoch;", "if (!{}) own_.epoch = block_.epoch;"),
    ("the CPU is told before the peers", "plan_kernel.h", "      for (uint32_t rank = 0; rank < program_.ranks && left >> 16 == 0; ++rank)",
     "      if ({}) PlanBlock::store_release(&call_.host->ended, block_.epoch), std::this_thread::sleep_for(std::chrono::milliseconds(1));\n"
     "      for (uint32_t rank = 0; rank < program_.ranks && left >> 16 == 0; ++rank)"),
    ("the CPU is told relaxed", "plan_kernel.h", "      PlanBlock::store_release(&call_.host->ended, block_.epoch);\n    });",
     "      if ({}) std::atomic_ref(call_.host->ended).store(block_.epoch, std::memory_order_relaxed);\n"
     "      else PlanBlock::store_release(&call_.host->ended, block_.epoch);\n    });"),
    ("a barrier left out", "plan_kernel.h", "if (!(step.flags & kMeets)) return true;",
     "if ({} || !(step.flags & kMeets)) return true;"),
    ("another block's flag", "plan_kernel.h", "&own_.flag[step.peer][step.tag][part_]",
     "&own_.flag[step.peer][step.tag][{} ? 0 : part_]"),
    ("abort never looked at", "plan_kernel.h", "if (PlanBlock::load_acquire(&host.abort) != 0) return true;",
     "if (!{} && PlanBlock::load_acquire(&host.abort) != 0) return true;"),
    ("deadline by polls", "plan_kernel.h", "if (block_.waited_ns() <= call_.timeout_ns) return false;",
     "if ({} ? ++polls_ <= 2000 : block_.waited_ns() <= call_.timeout_ns) return false;"),
    ("another call's buffer is read", "plan_kernel.h", "return PlanBlock::load_acquire(told) == stamp();",
     "return {} ? PlanBlock::load_acquire(told) != 0 : PlanBlock::load_acquire(told) == stamp();"),
    ("a left-out graph begins", "plan_block.h", "return std::atomic_ref(*const_cast<uint32_t*>(loaded)).load();",
     "return {} ? 0 : std::atomic_ref(*const_cast<uint32_t*>(loaded)).load();"),
    ("credit not waited for", "plan_kernel.h", "block_.epoch > 2 ? block_.epoch - 2 : 0",
     "!{} && block_.epoch > 2 ? block_.epoch - 2 : 0"),
    ("credit of the proxy not waited for", "plan_kernel.h", "crosses ? &call_.proxy->sent : &own_.ended_by[step.peer], before)",
     "crosses ? &call_.proxy->sent : &own_.ended_by[step.peer], crosses && {} ? 0 : before)"),
    ("the proxy sends before all blocks have put", "plan_proxy.h", "block < blocks; ++block", "block < ({} ? 1 : blocks); ++block"),
    ("what has arrived is told relaxed", "plan_proxy.h",
     "std::atomic_ref(memory_->arrived[sender][tag]).store(epoch, std::memory_order_release);",
     "if ({}) return std::atomic_ref(memory_->arrived[sender][tag]).store(epoch, std::memory_order_relaxed);\n"
     "    std::atomic_ref(memory_->arrived[sender][tag]).store(epoch, std::memory_order_release);"),
    ("the proxy's flag is relaxed", "plan_kernel.h", "return PlanBlock::store_release(&call_.proxy->raised",
     "return {} ? std::atomic_ref(call_.proxy->raised[step.peer][step.tag][part_]).store(block_.epoch, std::memory_order_relaxed)\n"
     "                 : PlanBlock::store_release(&call_.proxy->raised"),
    ("another rank's arrival", "plan_kernel.h", "&call_.proxy->arrived[step.peer][step.tag]",
     "&call_.proxy->arrived[{} ? program_.ranks - 1 - program_.rank : step.peer][step.tag]"),
]
COUNTER = ("  const uint32_t lane_, part_;\n};", "  const uint32_t lane_, part_;\n  static inline uint32_t polls_ = 0;\n};")
SWITCH = """
#include <chrono>
#include <cstdlib>
#include <thread>
inline const int g_mutation = std::getenv("MUTATION") ? std::atoi(std::getenv("MUTATION")) : -1;
inline bool mutated(int number) { return number == g_mutation; }
"""


def write(headers, target):
    texts = {name: (headers / name).read_text(encoding="utf-8") for name in HEADERS}
    for number, (name, header, old, new) in enumerate(MUTATIONS):
        if texts[header].count(old) != 1:
            raise SystemExit(f"{name}: {header} has \"{old}\" {texts[header].count(old)} times")
        texts[header] = texts[header].replace(old, new.replace("{}", f"mutated({number})"))
    texts["plan_kernel.h"] = texts["plan_kernel.h"].replace(*COUNTER)
    texts["plan_program.h"] = texts["plan_program.h"].replace("#pragma once\n", "#pragma once\n" + SWITCH, 1)
    target.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (target / name).write_text(text, encoding="utf-8")


def run(program):
    missed = []
    unpinned = ["setarch", "-R"] if subprocess.run(["setarch", "-R", "true"], capture_output=True).returncode == 0 else []
    for number, name in [(-1, "nothing changed"), *enumerate(row[0] for row in MUTATIONS)]:
        try:
            ran = subprocess.run([*unpinned, program], capture_output=True, text=True, timeout=200, errors="replace",
                                 env={**os.environ, "MUTATION": str(number)})
            code, said = ran.returncode, (ran.stdout + ran.stderr).strip().split("\n")
        except subprocess.TimeoutExpired:
            code, said = 1, ["it does not end"]
        told = next((line for line in said if "WARNING" in line), said[0])
        print(f"{name}: {'not noticed' if code == 0 else told}", flush=True)
        if (code == 0) != (number < 0):
            missed.append(name)
    return 1 if missed else 0


def main():
    if sys.argv[1] == "run":
        return run(sys.argv[2])
    write(Path(sys.argv[2]), Path(sys.argv[3]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
