#!/usr/bin/env python3
"""What a short all_reduce of torch.distributed costs over Weft, beside what torch and Weft take alone.

    perf/torch_overhead.py [-n 2] [--size 4] [--rounds 7] [--blocks 20] [--build build]

Needs a Python with torch and weft_torch. "torch alone" is torch's backend "fake", which does nothing. "Weft alone" is
all_reduce_perf, whose time is the mean of its calls. They take turns in rounds. A time is the median of blocks of
back-to-back calls on the slowest rank, then the median over rounds.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

BLOCK = 200  # calls
CALLS = ["synchronous", "async_op=True and wait()", "async_op=True and get_future().wait()"]


def median_time(call, blocks):
    """µs of a call: the median of the means of `blocks` blocks."""
    times = []
    for _ in range(blocks + 1):  # the first one is warm-up
        begin = time.perf_counter()
        for _ in range(BLOCK):
            call()
        times.append((time.perf_counter() - begin) / BLOCK * 1e6)
    return statistics.median(times[1:])


def call_times(dist, torch, size, blocks):
    """µs of a synchronous call, and of an asynchronous one with wait(), and with its Future's wait()."""
    tensor, largest = torch.ones(size // 4), dist.ReduceOp.MAX  # values stay what they are
    return (median_time(lambda: dist.all_reduce(tensor, largest), blocks),
            median_time(lambda: dist.all_reduce(tensor, largest, async_op=True).wait(), blocks),
            median_time(lambda: dist.all_reduce(tensor, largest, async_op=True).get_future().wait(), blocks))


def torch_alone(size, blocks):
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    torch.set_num_threads(1)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    return call_times(dist, torch, size, blocks)


def torch_over_weft(rank, ranks, folder, size, blocks):
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("weft", store=dist.FileStore(folder + "/store", ranks), rank=rank, world_size=ranks)
    times = torch.tensor(call_times(dist, torch, size, blocks), dtype=torch.float64)
    dist.all_reduce(times, dist.ReduceOp.MAX)
    dist.destroy_process_group()
    return times.tolist()


def weft_alone(build, ranks, size, blocks, folder):
    result = folder + "/result.json"
    subprocess.run([build / "bin/weft_run", "-n", str(ranks), "--no-label", build / "bin/all_reduce_perf", "--sizes", str(size),
                    "-n", str(BLOCK * blocks), "-w", str(BLOCK), "--in_place", "1", "-c", "0", "-a", "3", "--json", result],
                   check=True, stdout=subprocess.DEVNULL)
    return json.loads(pathlib.Path(result).read_text())["results"][0]["in_place"]["time"]


def in_processes(ranks, *arguments):
    """The answer of this file's first process, of `ranks` that run at once."""
    runs = [subprocess.Popen([sys.executable, __file__, "--member", *map(str, arguments), str(rank)], stdout=subprocess.PIPE,
                             env={**os.environ, "OMP_NUM_THREADS": "1"}, text=True) for rank in range(ranks)]
    answers = [run.communicate()[0] for run in runs]
    if any(run.returncode for run in runs):
        sys.exit("A process of torch failed.")
    return json.loads(answers[0].splitlines()[-1])


def member(kind, folder, ranks, size, blocks, rank):
    print(json.dumps(torch_alone(size, blocks) if kind == "fake" else torch_over_weft(rank, ranks, folder, size, blocks)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--ranks", type=int, default=2)
    parser.add_argument("--size", type=int, default=4, help="bytes of the tensor (4)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--blocks", type=int, default=20, help=f"of {BLOCK} calls (20)")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1] / "build")
    parser.add_argument("--member", nargs=6, help=argparse.SUPPRESS)  # what member() takes
    arguments = parser.parse_args()
    if arguments.member:
        kind, folder, *numbers = arguments.member
        member(kind, folder, *map(int, numbers))
        return
    rounds = []
    for _ in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as folder:
            what = folder, arguments.ranks, arguments.size, arguments.blocks
            fake = in_processes(1, "fake", *what)
            weft = weft_alone(arguments.build.resolve(), *what[1:], folder)
            rounds.append((weft, *fake, *in_processes(arguments.ranks, "weft", *what)))
    weft, *times = (statistics.median(each) for each in zip(*rounds))
    print(f"all_reduce of {arguments.size} B, {arguments.ranks} ranks of one node, µs of a call; load {os.getloadavg()[0]:.1f}:\n")
    print("| call | torch alone | Weft alone | their sum | torch over Weft | above the sum |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, alone, took in zip(CALLS, times[:len(CALLS)], times[len(CALLS):]):
        print(f"| {name} | {alone:.2f} | {weft:.2f} | {alone + weft:.2f} | {took:.2f} | {took - alone - weft:.2f} |")


if __name__ == "__main__":
    main()
