"""Measured speed-ups over the best peer, from docs/results/data/collectives.csv."""
from pictures.ranges import ranges
from pictures.tables import ratios

NAMES = {
    "shm2": "1 node, 2 ranks, shared memory", "shm4": "1 node, 4 ranks, shared memory", "shm8": "1 node, 8 ranks, shared memory",
    "tcp2": "2 ranks, TCP over loopback", "tcp4": "4 ranks, TCP over loopback", "cluster4": "4 nodes, 500 Mbit/s",
    "cluster8": "8 nodes, 500 Mbit/s", "cluster4x2": "4 nodes of 2 ranks, 500 Mbit/s", "cluster8x2": "8 nodes of 2 ranks, 500 Mbit/s",
    "cluster8-1ms": "8 nodes, 500 Mbit/s, 1 ms"}


def draw():
    measured = ratios("collectives.csv", "scenario")
    return ranges("Time of the best peer ÷ time of Weft",
                  "For ten scenarios: the geometric mean over all cells, with the range from the slowest to the fastest cell.",
                  "AllReduce, AllGather, ReduceScatter, AlltoAll, Broadcast; 8 B and up", "Peers: Open MPI, MPICH (2 ranks), Gloo.",
                  {name: measured[key,] for key, name in NAMES.items()}, (0.5, 1, 2, 4, 8, 16))
