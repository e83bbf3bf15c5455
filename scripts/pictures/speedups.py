"""Measured speed-ups over the best peer, from docs/results/data: geometric mean, and slowest to fastest cell."""
import csv
import math
import pathlib

from pictures.svg import Canvas

DATA = pathlib.Path(__file__).resolve().parents[2] / "docs/results/data/collectives.csv"
NAMES = {
    "shm2": "1 node, 2 ranks, shared memory", "shm4": "1 node, 4 ranks, shared memory", "shm8": "1 node, 8 ranks, shared memory",
    "tcp2": "2 ranks, TCP over loopback", "tcp4": "4 ranks, TCP over loopback", "cluster4": "4 nodes, 500 Mbit/s",
    "cluster8": "8 nodes, 500 Mbit/s", "cluster4x2": "4 nodes of 2 ranks, 500 Mbit/s", "cluster8x2": "8 nodes of 2 ranks, 500 Mbit/s",
    "cluster8-1ms": "8 nodes, 500 Mbit/s, 1 ms"}


def read(table=DATA):
    """Of each scenario the speed-ups of its cells."""
    found = {}
    with open(table, newline="") as rows:
        for row in csv.DictReader(rows):
            found.setdefault(row["scenario"], []).append(float(row["speed_up"]))
    return found


def draw():
    measured = read()
    out = Canvas(860, 60 + 30 * len(NAMES) + 62, "Weft's speed-up over the best of Open MPI, MPICH and Gloo",
                 "For ten scenarios: the geometric mean over all cells, with the range from the slowest to the fastest cell.")
    left, right, top, least, greatest = 270, 810, 52, 0.5, 16.0
    bottom = top + 30 * len(NAMES)

    def x(ratio):
        ratio = min(max(ratio, least), greatest)
        return left + (right - left) * math.log(ratio / least) / math.log(greatest / least)

    out.text(10, 22, "Time of the best peer ÷ time of Weft", size=16, bold=True)
    out.text(850, 22, "AllReduce, AllGather, ReduceScatter, AlltoAll, Broadcast; 8 B and up", "soft", 12, "end")
    for tick in (0.5, 1, 2, 4, 8, 16):
        out.line(x(tick), top - 8, x(tick), bottom, "orange" if tick == 1 else "line", 1.5 if tick == 1 else 0.5, dashed=tick != 1)
        out.text(x(tick), bottom + 18, f"{tick:g}×", "orange" if tick == 1 else "soft", 12, "middle")
    out.text(x(1), bottom + 36, "as fast as the best peer", "orange", 12, "middle")
    for number, (key, name) in enumerate(NAMES.items()):
        y, cells = top + 30 * number + 12, measured[key]
        mean = math.exp(sum(map(math.log, cells)) / len(cells))
        out.text(left - 14, y + 5, name, size=13, anchor="end")
        out.line(x(min(cells)), y, x(max(cells)), y, "blue", 2)
        out.dot(x(mean), y, 6)
        out.text(x(mean), y - 9, f"{mean:.2f}", "blue", 12, "middle", True)
    out.text(10, bottom + 56, "Dot: geometric mean of all cells. Line: slowest to fastest cell. Peers: Open MPI, MPICH (2 ranks), Gloo.", "soft", 12)
    return out
