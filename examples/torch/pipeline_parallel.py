"""Pipeline parallel training (1F1B) over Weft, on CPU tensors.

    torchrun --nproc-per-node 2 examples/torch/pipeline_parallel.py

Each rank holds some of the layers. Microbatches pass from rank to rank, their gradients pass back.
"""
import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def main():
    dist.init_process_group("weft")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    layers = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.Linear(16, 16))
    stage = PipelineStage(layers, rank, size, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
    optimizer = torch.optim.AdamW(layers.parameters(), lr=1e-2)

    torch.manual_seed(100)  # the first rank needs the inputs, the last one the targets
    inputs = torch.randn(64, 16)
    targets = inputs.flip(1).tanh()
    for step in range(30):
        optimizer.zero_grad()
        losses = []
        if rank == 0:
            schedule.step(inputs)
        elif rank == size - 1:
            schedule.step(target=targets, losses=losses)
        else:
            schedule.step()
        optimizer.step()
        if step % 10 == 9 and losses:
            print(f"step {step + 1}: loss {torch.stack(losses).mean().item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
