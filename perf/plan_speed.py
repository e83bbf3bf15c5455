#!/usr/bin/env python3
"""Times simulated steps of large clusters: `loom plan` of 960 and of 4,096 ranks of p4d.

  perf/plan_speed.py [--build build]

Models: GPT-NeoX 13B, sharded over 64 ranks, and GPT-3 175B, 8 tensor ranks and 15 or 16 stages. Prints seconds on the clock and of the
CPU for each. The exit code is 1 if 960 ranks take 2 s of the CPU or more, or 4,096 take 10.
"""
from __future__ import annotations

import argparse
import pathlib
import resource
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMITS = {960: 2.0, 4096: 10.0}  # seconds


def keys_of(model: str, ranks: int) -> list[str]:
    if model == "gpt_neox_13b":
        return [f"--data.global_batch={8 * ranks}"]
    stages = 15 if ranks == 960 else 16
    return ["--parallel.tensor_degree=8", f"--parallel.pipeline_degree={stages}", "--parallel.sharded_data_parallel_degree=1",
            "--parallel.prescaled_batch=true", "--data.microbatch=1", f"--data.global_batch={2 * ranks}"]


def timed(program: pathlib.Path, model: str, ranks: int) -> tuple[float, float]:
    """Seconds on the clock and of the CPU."""
    command = [program, "plan", ROOT / f"perf/seeds/models/{model}.json", "--cluster", ROOT / "clusters/p4d.json",
               "--nodes", str(ranks // 8), "--json", *keys_of(model, ranks)]
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    passed, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return passed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    options = parser.parse_args(words)
    late = False
    print(f"{'model':<16}{'ranks':>7}{'clock s':>10}{'CPU s':>10}{'limit s':>10}")
    for ranks, limit in LIMITS.items():
        for model in ("gpt_neox_13b", "gpt3_175b"):
            clock, cpu = timed(options.build / "bin/loom", model, ranks)
            late |= cpu >= limit
            print(f"{model:<16}{ranks:>7}{clock:>10.2f}{cpu:>10.2f}{limit:>10.1f}")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
