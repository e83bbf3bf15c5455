"""Scenarios: where ranks sit and what is between them. A scenario is written as a short name.

  shm4            4 ranks on this machine, shared memory
  tcp4            4 ranks on this machine, TCP over loopback
  cluster8        8 nodes of one rank each: network namespaces with 500 Mbit/s in each direction
  cluster4x2      4 nodes of 2 ranks
  cluster8-1ms    with 1 ms of added latency one way
  startup         not a sweep: how long ranks take to come together
"""
from __future__ import annotations

import dataclasses
import re

COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast"]
DEFAULT = ["shm2", "shm4", "shm8", "tcp2", "tcp4", "cluster4", "cluster4x2", "cluster8", "cluster8x2", "cluster8-1ms",
           "startup"]
STARTUP = "startup"
RATE_BITS = 500e6  # of a node of a cluster, in each direction
KIB, MIB = 1 << 10, 1 << 20
LOCAL_SIZES = [8, 128, KIB, 16 * KIB, 256 * KIB, 4 * MIB, 64 * MIB, 256 * MIB]
CLUSTER_SIZES = [8, 128, KIB, 16 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB]
ELEMENT = 4  # bytes of a float


class UsageError(Exception):
    """The command line asks for something that does not exist; the text is a sentence for the user."""


@dataclasses.dataclass(frozen=True)
class Scenario:
    name: str
    kind: str  # shm, tcp or cluster
    ranks: int
    nodes: int = 1
    latency_ms: float = 0

    @property
    def is_cluster(self) -> bool:
        return self.kind == "cluster"

    @property
    def ranks_per_node(self) -> int:
        return self.ranks // self.nodes

    @property
    def layout(self) -> tuple[int, int]:
        """Nodes and ranks of a node as Weft counts them: without shared memory each rank is a node of its own."""
        return (self.ranks, 1) if self.kind == "tcp" else (self.nodes, self.ranks_per_node)

    @property
    def title(self) -> str:
        if self.kind == "shm":
            return f"{self.ranks} ranks, shared memory"
        if self.kind == "tcp":
            return f"{self.ranks} ranks, TCP over loopback"
        each = "1 rank" if self.ranks_per_node == 1 else f"{self.ranks_per_node} ranks"
        latency = f", {self.latency_ms:g} ms of latency one way" if self.latency_ms else ""
        return f"{self.nodes} nodes of {each}, {RATE_BITS / 1e6:.0f} Mbit/s{latency}"

    def sizes(self) -> list[int]:
        return CLUSTER_SIZES if self.is_cluster else LOCAL_SIZES


def parse_scenario(name: str) -> Scenario:
    local = re.fullmatch(r"(shm|tcp)(\d+)", name)
    if local and 2 <= int(local[2]) <= 1024:
        return Scenario(name, local[1], int(local[2]))
    cluster = re.fullmatch(r"cluster(\d+)(?:x(\d+))?(?:-(\d+(?:\.\d+)?)ms)?", name)
    if cluster and 2 <= int(cluster[1]) <= 200 and 1 <= int(cluster[2] or 1) <= 64:
        nodes = int(cluster[1])
        return Scenario(name, "cluster", nodes * int(cluster[2] or 1), nodes, float(cluster[3] or 0))
    raise UsageError(f"--scenarios: {name!r} is none; examples are {', '.join(DEFAULT)}")


def parse_size(option: str, text: str) -> int:
    """8, 64K, 4M, 1G: units are powers of 1024."""
    match = re.fullmatch(r"(\d+)([kKmMgG]?)", text.strip())
    if not match or int(match[1]) == 0:
        raise UsageError(f"{option}: {text!r} is not a size such as 8, 64K or 4M")
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2].lower()]


def size_text(size: int) -> str:
    for unit, letters in ((MIB, "MiB"), (KIB, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {letters}"
    return f"{size} B"


def exact_size(collective: str, size: int, ranks: int) -> int:
    """What a size comes to when every rank's part is a whole number of elements, and at least one."""
    unit = ELEMENT if collective in ("all_reduce", "broadcast") else ELEMENT * ranks
    return max(unit, size // unit * unit)


def bus_factor(collective: str, ranks: int) -> float:
    """Bytes that each rank must send or receive, over the size."""
    if collective == "broadcast":
        return 1
    return (2 if collective == "all_reduce" else 1) * (ranks - 1) / ranks


def line_time_us(scenario: Scenario, collective: str, size: int) -> float:
    """What the bytes that a node must send or receive take at the line rate; traffic inside a node is free."""
    nodes = scenario.nodes
    if collective == "alltoall":  # each of the node's ranks sends the parts of the ranks elsewhere
        share = scenario.ranks_per_node * (nodes - 1) / nodes
    else:
        share = bus_factor(collective, nodes)
    return share * size * 8 / RATE_BITS * 1e6
