"""Sharded data parallel training (FSDP2) with an HSDP mesh over Weft, on CPU tensors.

    torchrun --nproc-per-node 4 examples/torch/sharded_data_parallel.py --shards 2

Ranks of a partition group share one copy of parameters, gradients and optimizer state; groups replicate it. This is
what MiCS does. `--shards` is the size of a partition group; the number of ranks (the default) is plain FSDP.
weft_torch.overlap() lets communication run while the model computes; without it, the program imports nothing of Weft.
"""
import argparse

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from weft_torch import overlap


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shards", type=int, default=0, help="ranks that share one copy; 0: all")
    arguments = parser.parse_args()
    dist.init_process_group("weft")
    ranks = dist.get_world_size()
    shards = arguments.shards or ranks
    if ranks % shards:
        parser.error(f"--shards is {shards}, must divide the {ranks} ranks")
    mesh = init_device_mesh("cpu", (ranks // shards, shards), mesh_dim_names=("replicate", "shard"))
    if shards == ranks:
        mesh = mesh["shard"]  # no replicas

    torch.manual_seed(0)  # the same model on every rank
    model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.GELU()) for _ in range(4)])
    for block in model:
        fully_shard(block, mesh=mesh)
    overlap(fully_shard(model, mesh=mesh))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    torch.manual_seed(1 + dist.get_rank())
    inputs = torch.randn(128, 32)
    for step in range(30):
        loss = torch.nn.functional.mse_loss(model(inputs), inputs.flip(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            mean = loss.detach().clone()
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            if dist.get_rank() == 0:
                print(f"step {step + 1}: loss {mean.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
