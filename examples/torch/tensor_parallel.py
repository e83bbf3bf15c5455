"""Tensor parallel training (DTensor) over Weft, on CPU tensors.

    torchrun --nproc-per-node 2 examples/torch/tensor_parallel.py

The first layer's columns and the second one's rows are divided over the ranks, which all see the same samples.
"""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class MLP(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(16, 64)
        self.down = torch.nn.Linear(64, 16)

    def forward(self, x):  # [samples, 16] to [samples, 16]
        return self.down(torch.nn.functional.gelu(self.up(x)))


def main():
    dist.init_process_group("weft")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = parallelize_module(MLP(), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    inputs = torch.randn(128, 16)
    for step in range(30):
        loss = torch.nn.functional.mse_loss(model(inputs), inputs.cumsum(1) / 4)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9 and dist.get_rank() == 0:
            print(f"step {step + 1}: loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
