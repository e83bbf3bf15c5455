"""Times of one collective over nodes and sizes: who wins by how much, and from which size on. Pure functions."""
from __future__ import annotations

import math

from comparison.table import rows_text

from .simulator import MESH, TITLES, size_text

SHORT = {"ring": "r", "recursive_doubling": "d", "recursive_halving": "h", "double_tree": "t"}
MUCH = 1.2      # times faster: worth telling in bold
EVEN = 0.995    # slower than this, all-to-all loses


class Field:
    """us[(nodes, bytes)][algorithm], and what the line alone takes."""

    def __init__(self, collective: str, rows: list[dict]) -> None:
        self.collective = collective
        self.us: dict[tuple[int, int], dict[str, float]] = {}
        self.line: dict[tuple[int, int], float] = {}
        for row in rows:
            key = (row["nodes"], row["bytes"])
            self.line[key] = row["line_us"]
            if "us" in row:
                self.us.setdefault(key, {})[row["algorithm"]] = row["us"]
        self.us = {key: times for key, times in self.us.items() if MESH in times and len(times) > 1}
        self.nodes = sorted({nodes for nodes, _ in self.us})
        self.sizes = sorted({size for _, size in self.us})

    def sizes_of(self, nodes: int) -> list[int]:
        """Those that can be shared out among that many nodes' ranks."""
        return [size for size in self.sizes if (nodes, size) in self.us]

    def rival(self, nodes: int, size: int) -> str:
        times = self.us[nodes, size]
        return min((name for name in times if name != MESH), key=times.get)

    def gain(self, nodes: int, size: int) -> float:
        """How many times faster all-to-all is than the best of the others."""
        times = self.us[nodes, size]
        return times[self.rival(nodes, size)] / times[MESH]

    def line_share(self, nodes: int, size: int) -> float:
        return self.line[nodes, size] / self.us[nodes, size][MESH]

    def smallest(self, nodes: int, wanted: float, value) -> float | None:
        """From where on value(nodes, size) is at least `wanted` at every larger size, between two sizes by their
        logarithms. 0: from the first of all. None: not even at the last."""
        sizes = self.sizes_of(nodes)
        at = len(sizes)
        while at > 0 and value(nodes, sizes[at - 1]) >= wanted:
            at -= 1
        if at == len(sizes):
            return None
        if at == 0:
            return 0.0
        size, following = sizes[at - 1], sizes[at]
        low, high = value(nodes, size), value(nodes, following)
        return math.exp(math.log(size) + (wanted - low) / (high - low) * math.log(following / size))


def gain_text(gain: float, rival: str) -> str:
    text = f"{gain:.2f} {SHORT[rival]}"
    return f"**{text}**" if gain >= MUCH else f"_{text}_" if gain < EVEN else text


def gain_table(field: Field) -> str:
    def cell(nodes: int, size: int) -> str:
        return gain_text(field.gain(nodes, size), field.rival(nodes, size)) if (nodes, size) in field.us else "-"
    return rows_text(["nodes"] + [size_text(size) for size in field.sizes],
                     [[str(nodes)] + [cell(nodes, size) for size in field.sizes] for nodes in field.nodes]).rstrip()


def size_or(value: float | None, first: int) -> str:
    if value is None:
        return "none of these"
    return f"{size_text(first)} or less" if value == 0 else size_text(value)


def least_size_table(fields: dict[str, Field]) -> str:
    rows = []
    for nodes in next(iter(fields.values())).nodes:
        row = [str(nodes)]
        for wanted, value in ((0.8, Field.line_share), (EVEN, Field.gain)):
            row += [size_or(field.smallest(nodes, wanted, lambda n, s, f=field, v=value: v(f, n, s)),
                            field.sizes_of(nodes)[0]) for field in fields.values()]
        rows.append(row)
    return rows_text(["nodes"] + [f"{TITLES[name]}: 80 %" for name in fields] +
                     [f"{TITLES[name]}: fastest" for name in fields], rows).rstrip()
