#!/usr/bin/env python3
"""Times PyTorch's training steps of GPT-2 on a GPU, for a place beside loom_step: the same sizes, random tokens, no dropout.

    perf/gpu/torch_gpt2.py eager|compiled [--layers 12 --width 768 --heads 12] [--batch 64] [--tokens 1024] [--steps 30]

A step is forward, loss, backward, clipping of the norm and fused AdamW; products in bfloat16 by autocast, parameters, moments and
sums in fp32, as Loom has masters and sums. Attention is scaled_dot_product_attention. `compiled` compiles each block and the
head's loss, not the model as a whole, which takes minutes with 48 blocks. Where memory is too small the batch is halved, and
the line says so. Prints a line of JSON a step, then one with the sums, as loom_step does.
"""
import argparse
import json
import statistics
import sys
import time

CONTEXT, VOCABULARY = 1024, 50257
WARMUP = 3  # steps that are left out of the median


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("eager", "compiled"))
    for name, default in (("layers", 12), ("width", 768), ("heads", 12), ("batch", 64), ("tokens", 1024), ("steps", 30)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", default="cuda")
    return parser.parse_args()


def model_of(options, torch):
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            width = options.width
            self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            batch, tokens, width = x.shape
            heads = self.qkv(self.norm_1(x)).view(batch, tokens, 3, options.heads, -1).permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(*heads, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
            return x + self.down(functional.gelu(self.up(self.norm_2(x)), approximate="tanh"))

    class Gpt2(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(VOCABULARY, options.width)
            self.positions = nn.Embedding(max(CONTEXT, options.tokens), options.width)
            self.blocks = nn.ModuleList(Block() for _ in range(options.layers))
            self.norm = nn.LayerNorm(options.width)
            self.apply(self.initialize)

        @staticmethod
        def initialize(module):
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

        def head(self, x, targets):
            logits = functional.linear(self.norm(x), self.tokens.weight)
            return functional.cross_entropy(logits.float().view(-1, VOCABULARY), targets.view(-1))

        def forward(self, tokens, targets):
            x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
            for block in self.blocks:
                x = block(x)
            return self.head(x, targets)

    with torch.device(options.device):
        model = Gpt2()
    if options.mode == "compiled":
        for block in model.blocks:
            block.compile()
        model.head = torch.compile(model.head)
    return model


def say(**row):
    print(json.dumps(row), flush=True)


def measure(options, torch):
    on_gpu = options.device == "cuda"
    torch.manual_seed(1)
    model = model_of(options, torch)
    parameters = sum(each.numel() for each in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    x, y = (torch.randint(0, VOCABULARY, (options.batch, options.tokens), device=options.device) for _ in range(2))
    times = []
    for step in range(options.steps):
        begin = time.perf_counter()
        with torch.autocast(options.device, dtype=torch.bfloat16):
            loss = model(x, y)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss_and_norm = loss.item(), norm.item()
        if on_gpu:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
        say(step=step, loss=loss_and_norm[0], norm=loss_and_norm[1], ms=times[-1] * 1e3)
    sequences = options.batch * options.tokens
    seconds = statistics.median(times[min(WARMUP, len(times) - 1):])
    say(system=f"PyTorch {torch.__version__}, {options.mode}", parameters=parameters, batch=options.batch, tokens=options.tokens,
        ms=seconds * 1e3, tokens_per_second=sequences / seconds,
        flops_per_token=6 * parameters + 6 * options.layers * options.width * options.tokens,
        memory_mb=torch.cuda.max_memory_allocated() >> 20 if on_gpu else None)


def main():
    options = parse_arguments()
    import torch
    torch.set_float32_matmul_precision("high")
    while True:
        try:
            measure(options, torch)
            return 0
        except torch.OutOfMemoryError as why:
            if options.batch == 1:
                raise
            words = str(why).splitlines()[0]
        say(note=f"a batch of {options.batch} does not fit: {words}")
        options.batch //= 2
        torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
