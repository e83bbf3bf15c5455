"""Data parallel training (DDP) over Weft, on CPU tensors.

    torchrun --nproc-per-node 2 examples/torch/data_parallel.py

Every rank has the whole model and its own samples; DDP averages gradients while the backward pass still runs.
"""
import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50, help="steps to train; rank 0 prints five times, or every 10 steps")
    steps = parser.parse_args().steps
    print_every = max(10, steps // 5)
    dist.init_process_group("weft")
    torch.manual_seed(0)  # the same model on every rank
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    torch.manual_seed(1 + dist.get_rank())  # samples of its own
    inputs = torch.randn(256, 16)
    targets = inputs.sum(1, keepdim=True).sin()
    for step in range(steps):
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % print_every == 0:
            mean = loss.detach().clone()
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            if dist.get_rank() == 0:
                print(f"step {step + 1}: loss {mean.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
