#!/usr/bin/env python3
"""PyTorch's FSDP on two ranks that share a GPU, over whichever libnccl.so.2 is preloaded, against the same model unsharded.

    LD_PRELOAD=build/lib/weft-nccl/libnccl.so.2 perf/gpu/fsdp.py [--library weft-nccl] [--steps 20] [--device cpu --backend gloo]

It starts its ranks itself. A wheel of PyTorch names the folder of its own NCCL in a DT_RPATH, which goes before
LD_LIBRARY_PATH: only LD_PRELOAD puts another library in front. Rank 0 prints a line of JSON after each stage, so that the
output of a run that hangs says where. Exit code 1: the losses differ from the unsharded model's.
"""
import argparse
import json
import os
import socket
import subprocess
import sys
import time

RANKS = 2
WIDTH, LAYERS, ROWS, VOCABULARY = 256, 4, 16, 1000  # rows of each rank
LARGEST_DIFFERENCE = 1e-3                            # of a loss, relative


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--library", default="", help="a part of the path of the libnccl.so.2 that PyTorch has to use")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl")
    return parser.parse_args()


def say(rank, **values):
    if rank == 0:
        print(json.dumps(values), flush=True)


def nccl_of_this_process():
    """The files that the process has mapped as libnccl.so.2, the first of which PyTorch's calls go to."""
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        files = [line.split()[-1] for line in maps if "libnccl.so" in line]
    return sorted(set(files), key=lambda file: file not in os.environ.get("LD_PRELOAD", "").split(":"))


def make_model(torch):
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.LayerNorm(WIDTH)
            self.wide = torch.nn.Linear(WIDTH, 4 * WIDTH)
            self.narrow = torch.nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            return x + self.narrow(torch.nn.functional.gelu(self.wide(self.norm(x))))

    torch.manual_seed(1)
    layers = [torch.nn.Embedding(VOCABULARY, WIDTH), *(Block() for _ in range(LAYERS)), torch.nn.Linear(WIDTH, VOCABULARY)]
    return torch.nn.Sequential(*layers), Block


def batches(torch, steps, device):
    """The same on all ranks: the tokens of every rank's rows, at each step."""
    random = torch.Generator().manual_seed(2)
    for _ in range(steps):
        tokens = torch.randint(VOCABULARY, (RANKS * ROWS, 64), generator=random)
        yield tokens.to(device)


def loss_of(torch, model, tokens):
    return torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), (tokens * 7 % VOCABULARY).flatten())


def train(torch, model, steps, device, rows, synchronize, average=None):
    """The losses, and the milliseconds of a step, the first two left out."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses, begins = [], []
    for tokens in batches(torch, steps, device):
        synchronize()
        begins.append(time.perf_counter())
        loss = loss_of(torch, model, tokens[rows])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(average(loss.detach()) if average else loss.item())
    synchronize()
    begins.append(time.perf_counter())
    first = min(2, steps - 1)
    return losses, (begins[-1] - begins[first]) / (steps - first) * 1e3


def collectives_are_right(torch, dist, rank, device):
    ours = torch.full((1024,), rank + 1.0, device=device)
    total = ours.clone()
    dist.all_reduce(total)
    gathered = torch.empty(RANKS * 1024, device=device)
    dist.all_gather_into_tensor(gathered, ours)
    expected = torch.arange(1, RANKS + 1, device=device, dtype=torch.float).repeat_interleave(1024)
    return bool((total == RANKS * (RANKS + 1) / 2).all()) and bool((gathered == expected).all())


def run_rank(options, rank):
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    on_gpu = options.device == "cuda"
    device = torch.device("cuda", 0) if on_gpu else torch.device("cpu")
    synchronize = torch.cuda.synchronize if on_gpu else lambda: None
    torch.backends.cuda.matmul.allow_tf32 = False
    libraries = nccl_of_this_process()
    if options.library not in (libraries or [""])[0]:
        sys.exit(f"PyTorch uses {(libraries or ['no NCCL'])[0]}, must use one with {options.library} in its path: set LD_PRELOAD")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group(options.backend, rank=rank, world_size=RANKS)
    say(rank, stage="process group", torch=torch.__version__, libraries=libraries)
    if not collectives_are_right(torch, dist, rank, device):
        sys.exit("AllReduce or AllGather gave wrong results")
    say(rank, stage="collectives", right=True)

    plain, _ = make_model(torch)
    expected, alone_ms = train(torch, plain.to(device), options.steps, device, slice(None), synchronize)
    say(rank, stage="unsharded", step_ms=alone_ms, losses=expected)

    def average(loss):
        dist.all_reduce(loss)
        return loss.item() / RANKS

    def shard_by_class(model, block):
        return FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({block}), device_id=device, use_orig_params=True)

    def shard_by_function(model, block):
        for module in model:
            if isinstance(module, block):
                fully_shard(module)
        return fully_shard(model)

    rows = slice(rank * ROWS, (rank + 1) * ROWS)
    worst = 0.0
    for name, shard in (("FullyShardedDataParallel", shard_by_class), ("fully_shard", shard_by_function)):
        model, block = make_model(torch)
        model = shard(model.to(device), block)
        say(rank, stage=name + ", first step")
        losses, step_ms = train(torch, model, options.steps, device, rows, synchronize, average)
        difference = max(abs(a - b) / abs(b) for a, b in zip(losses, expected))
        worst = max(worst, difference)
        say(rank, stage=name, step_ms=step_ms, largest_difference=difference, losses=losses)
    dist.destroy_process_group()
    if not worst < LARGEST_DIFFERENCE:
        sys.exit(f"a loss differs from the unsharded model's by {worst:.2e}, must be below {LARGEST_DIFFERENCE}")


def main():
    options = parse_arguments()
    if "RANK" in os.environ:
        run_rank(options, int(os.environ["RANK"]))
        return 0
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    settings = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    # NCCL takes ranks that share a GPU only if it takes them for hosts; Weft does not read this.
    ranks = [subprocess.Popen([sys.executable, "-B", *sys.argv], env={**settings, "RANK": str(rank), "NCCL_HOSTID": f"host{rank}"})
             for rank in range(RANKS)]
    while any(rank.poll() is None for rank in ranks) and not any(rank.poll() for rank in ranks):
        time.sleep(0.05)
    for rank in ranks:  # one that has failed leaves its peer waiting
        if any(other.poll() for other in ranks) and rank.poll() is None:
            rank.kill()
    return int(any([rank.wait() for rank in ranks]))


if __name__ == "__main__":
    sys.exit(main())
