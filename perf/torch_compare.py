#!/usr/bin/env python3
"""Measures backends of torch.distributed in turns, in one program: Weft and gloo, synchronous collectives on CPU tensors.

    perf/torch_compare.py [-n 2] [-b 4] [-e 64M] [--seconds 0.2] [--rounds 3] [--json FILE]

Needs a Python with torch and weft_torch. For each size and collective the backends take turns in rounds, so that other
load on the machine falls on both; a time is the best round's mean on the slowest rank. Sizes are bytes of the larger
buffer. Prints a table in Markdown.
"""
import argparse
import json
import os
import tempfile
import time


def parse_bytes(text):
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1].upper(), 1)
    return int(text[:-1] if unit > 1 else text) * unit


def name_bytes(count):
    for unit, letter in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit and count % unit == 0:
            return f"{count // unit} {letter}"
    return f"{count} B"


def calls(dist, torch, size, ranks):
    """{collective: function of a group} on float32 buffers, the larger of `size` bytes (at least one element a rank)."""
    whole = torch.ones(max(1, size // 4))
    share = torch.ones(max(1, size // 4 // ranks))
    joined = torch.empty(share.numel() * ranks)
    return {
        "all_reduce": lambda group: dist.all_reduce(whole, dist.ReduceOp.MAX, group=group),
        "all_gather_into_tensor": lambda group: dist.all_gather_into_tensor(joined, share, group=group),
        "reduce_scatter_tensor": lambda group: dist.reduce_scatter_tensor(share, joined, dist.ReduceOp.MAX, group=group),
    }


def mean_time(call, group, seconds, meet):
    """Seconds of one call: the mean over about `seconds`; all ranks make the same number of calls."""
    begin = time.perf_counter()
    call(group)
    repeats = int(meet(max(1.0, min(2000.0, seconds / max(time.perf_counter() - begin, 1e-6)))))
    meet(0.0)
    begin = time.perf_counter()
    for _ in range(repeats):
        call(group)
    return meet((time.perf_counter() - begin) / repeats)


def rank_main(rank, arguments, folder):
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("weft", store=dist.FileStore(folder + "/store", arguments.ranks), rank=rank,
                            world_size=arguments.ranks)
    groups = {"weft": None, "gloo": dist.new_group(backend="gloo")}
    control = dist.new_group(backend="weft")

    def meet(value):  # the greatest of all ranks
        tensor = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=control)
        return tensor.item()

    results, size = [], arguments.begin
    while size <= arguments.end:
        for name, call in calls(dist, torch, size, arguments.ranks).items():
            times = {backend: [] for backend in groups}
            for _ in range(arguments.rounds):
                for backend, group in groups.items():
                    times[backend].append(mean_time(call, group, arguments.seconds, meet))
            results.append({"collective": name, "bytes": size,
                            **{backend + "_us": min(values) * 1e6 for backend, values in times.items()}})
        size *= arguments.factor
    if rank == 0:
        report(results, arguments)
    dist.destroy_process_group()


def report(results, arguments):
    print(f"| size | collective, {arguments.ranks} ranks | weft, µs | gloo, µs | gloo ÷ weft |\n| ---: | --- | ---: | ---: | ---: |")
    for each in sorted(results, key=lambda each: (each["collective"], each["bytes"])):
        print(f"| {name_bytes(each['bytes'])} | {each['collective']} | {each['weft_us']:.1f} | {each['gloo_us']:.1f} | "
              f"{each['gloo_us'] / each['weft_us']:.1f} |")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--ranks", type=int, default=2)
    parser.add_argument("-b", "--begin", type=parse_bytes, default=4, help="smallest size, bytes")
    parser.add_argument("-e", "--end", type=parse_bytes, default=64 << 20, help="largest size, bytes")
    parser.add_argument("-f", "--factor", type=int, default=16, help="between sizes")
    parser.add_argument("--seconds", type=float, default=0.2, help="of one measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="also write results to this file")
    arguments = parser.parse_args()
    import torch.multiprocessing as multiprocessing
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(rank_main, (arguments, folder), arguments.ranks)


if __name__ == "__main__":
    main()
