"""Training with DeepSpeed's ZeRO stage 3 over Weft, on CPU tensors.

    DS_ACCELERATOR=cpu torchrun --nproc-per-node 2 examples/torch/deepspeed_zero3.py

Parameters, gradients and optimizer state are divided over the ranks. Needs deepspeed, a C++ compiler and ninja: at its first
start DeepSpeed compiles an operator for CPUs.
"""
import warnings

import deepspeed
import torch
import torch.distributed as dist

CONFIGURATION = {
    "train_micro_batch_size_per_gpu": 64,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    "zero_allow_untested_optimizer": True,  # torch's AdamW
}


def main():
    warnings.filterwarnings("ignore", category=FutureWarning)  # DeepSpeed calls torch by names that torch has changed
    deepspeed.init_distributed(dist_backend="weft")
    torch.manual_seed(0)  # the same model on every rank
    with deepspeed.zero.Init(config_dict_or_path=CONFIGURATION):
        model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIGURATION)

    torch.manual_seed(1 + dist.get_rank())  # samples of its own
    inputs = torch.randn(64, 16)
    targets = inputs.sum(1, keepdim=True).sin()
    for step in range(30):
        loss = torch.nn.functional.mse_loss(engine(inputs), targets)
        engine.backward(loss)
        engine.step()
        if step % 10 == 9:
            mean = loss.detach().clone()
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            if dist.get_rank() == 0:
                print(f"step {step + 1}: loss {mean.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
