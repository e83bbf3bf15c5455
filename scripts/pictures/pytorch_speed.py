"""PyTorch's collectives over Weft beside gloo, from the table of docs/results/pytorch.md."""
from pictures.bars import bars
from pictures.tables import rows


def draw():
    groups = {}
    for size, collective, _, _, ratio in rows("results/pytorch.md", "gloo ÷ weft"):
        groups.setdefault(collective, []).append((size, float(ratio), f"{ratio}×"))
    return bars("Time over gloo ÷ time over Weft", "For three collectives and four sizes, how many times as fast Weft is as gloo.",
                "Two ranks, CPU tensors, synchronous calls, a busy machine.", list(groups.items()), 20)
