#!/usr/bin/env python3
"""Runs small jobs of Loom on this machine and compares each step with what was predicted before it.

  perf/loom_predicted.py DATA [--build build] [--steps 12] [--rounds 1]

DATA is a dataset of `loom tokenize`. The jobs: one rank; two ranks, replicated; two ranks, sharded; two tensor ranks; a pipeline
of two stages; one rank that offloads activations; eight ranks in groups of four. The prediction is the report's, from rates that the
run measures before its first step. Jobs take turns, `--rounds` times. Prints a line a job, with the median of its rounds and of the steps
of each, and the median of the errors. The machine must be quiet, or the command first in line (chrt -f 1): ranks share its cores.
"""
from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = {"width": 512, "layers": 6, "heads": 8}
JOBS = {"one rank": (1, {}),
        "two ranks, replicated": (2, {}),
        "two ranks, sharded": (2, {"sharded_data_parallel_degree": 2}),
        "two tensor ranks": (2, {"tensor_degree": 2}),
        "two stages": (2, {"pipeline_degree": 2}),
        "one rank, offloading": (1, {"activation_checkpointing": "each", "activation_offloading": True}),
        "eight ranks, groups of four": (8, {"sharded_data_parallel_degree": 4})}


def parse_arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="folder of a dataset")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=1)
    return parser.parse_args(words)


def run(options: argparse.Namespace, ranks: int, parallel: dict) -> tuple[float, float]:
    """Milliseconds of a step, predicted and measured."""
    with tempfile.TemporaryDirectory() as folder:
        config = {"model": MODEL, "data": {"folder": options.data, "sequence_length": 256, "global_batch": 8,
                                             "microbatch": 2 if ranks < 8 else 1},
                  "parallel": parallel,
                  "run": {"out": f"{folder}/out", "steps": options.steps, "trace_ranks": 0, "remeasure": True}}
        path = pathlib.Path(folder, "config.json")
        path.write_text(json.dumps(config), encoding="utf-8")
        programs = options.build / "bin"
        subprocess.run([programs / "weft_run", "-n", str(ranks), programs / "loom", "train", path], check=True,
                       stdout=subprocess.DEVNULL)
        steps = []
        for text in pathlib.Path(folder, "out", "log.jsonl").read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            if "seconds" in line:
                steps.append(line["seconds"] * 1e3)
            if "predicted" in line:
                return line["predicted"]["step_us"] / 1e3, statistics.median(steps[1:])
    raise SystemExit("the run's log has no prediction")


def main(words: list[str]) -> int:
    options = parse_arguments(words)
    rounds = [{name: run(options, *job) for name, job in JOBS.items()} for _ in range(options.rounds)]
    errors = []
    print(f"{'job':<28}{'predicted ms':>14}{'measured ms':>14}{'error':>10}")
    for name in JOBS:
        predicted, measured = (statistics.median(times) for times in zip(*(one[name] for one in rounds)))
        errors.append(predicted / measured - 1)
        print(f"{name:<28}{predicted:>14.1f}{measured:>14.1f}{errors[-1] * 100:>+9.1f} %")
    print(f"median of the amounts: {statistics.median(abs(error) for error in errors) * 100:.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
