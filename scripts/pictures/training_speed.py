"""A training step of GPT-2 124M by Loom beside PyTorch and llm.c, from the first table of docs/results/training.md."""
from pictures.bars import bars
from pictures.tables import rows


def draw():
    groups, now = {}, None
    for name, _, short, _, long in rows("results/training.md", "T = 64, ms a step | ratio"):
        kind, _, rest = name.partition(": ")
        if rest == "Loom":
            now = kind
        elif short:
            label = rest or name
            for tokens, ratio in (("64", short), ("512", long)):
                least = float(ratio.split(" ")[0])
                groups.setdefault(f"{now if not rest else kind}, T = {tokens}", []).append((label.split(" (")[0].replace("`", ""), least, f"{ratio}×"))
    return bars("Time of the other ÷ time of Loom, a training step", "For fp32 and bf16, and sequences of 64 and 512 tokens, how many times as fast Loom is.",
                "GPT-2 124M, B = 4, one thread of an AMD EPYC. Bars end at the least of several runs.", list(groups.items()), 7)
