"""Training with Accelerate over Weft, on CPU tensors.

    torchrun --nproc-per-node 2 examples/torch/accelerate_regression.py

Accelerate takes the group that the program has made. It reports the backend "gloo" for every group of CPU tensors.
"""
import torch
import torch.distributed as dist
from accelerate import Accelerator


def main():
    dist.init_process_group("weft")
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    inputs = torch.randn(512, 16)
    samples = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True) / 4)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    # Each rank's loader has samples of its own.
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), lr=0.05),
        torch.utils.data.DataLoader(samples, batch_size=32, shuffle=True))
    for epoch in range(4):
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
        losses = accelerator.gather(torch.nn.functional.mse_loss(model(inputs), samples.tensors[1]).detach())
        accelerator.print(f"step {(epoch + 1) * len(loader)}: loss {losses.mean().item():.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
