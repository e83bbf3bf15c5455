"""PyTorch's collectives over Weft beside gloo, from docs/results/data/pytorch.csv."""
from pictures.ranges import ranges
from pictures.tables import ratios

NAMES = {
    ("shm2", "synchronous"): "2 ranks", ("shm2", "asynchronous"): "2 ranks, async_op=True", ("shm4", "synchronous"): "4 ranks",
    ("shm4", "asynchronous"): "4 ranks, async_op=True", ("cluster2", "synchronous"): "2 nodes, 500 Mbit/s"}


def draw():
    measured = ratios("pytorch.csv", "scenario", "calls")
    return ranges("Time over gloo ÷ time over Weft",
                  "For five scenarios: the geometric mean over all cells, with the range from the slowest to the fastest cell.",
                  "all_reduce, all_gather, reduce_scatter, all_to_all, broadcast; 4 B and up", "CPU tensors on one node, unless nodes are named.",
                  {name: measured[key] for key, name in NAMES.items()}, (0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256))
