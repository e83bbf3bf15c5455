"""From launches to cells: medians over rounds, the best peer, speed-ups and their geometric means. Pure functions."""
from __future__ import annotations

import dataclasses
import math
import statistics
from typing import Any, Iterable

from .scenarios import COLLECTIVES, Scenario, bus_factor, line_time_us

WEFT = "Weft"


@dataclasses.dataclass
class Figure:
    """One system in one cell."""
    us: float                # median over launches
    least_us: float
    launches: int
    iterations: int          # calls of the shortest launch
    cpu_s_per_gb: float      # CPU seconds of one rank for 1e9 bytes of bus traffic
    bus_gb_per_s: float
    algorithm: str


@dataclasses.dataclass
class Cell:
    collective: str
    size: int
    figures: dict[str, Figure]
    line_share: float | None = None  # of the line rate, which Weft reaches; clusters only

    @property
    def best_peer(self) -> str | None:
        peers = [name for name in self.figures if name != WEFT]
        return min(peers, key=lambda name: self.figures[name].us, default=None)

    @property
    def speedup(self) -> float | None:
        """The best peer's time over Weft's: above 1, Weft is faster."""
        if WEFT not in self.figures or self.best_peer is None:
            return None
        return self.figures[self.best_peer].us / self.figures[WEFT].us


def figure_of(rows: list[dict[str, Any]], factor: float, size: int) -> Figure:
    us = statistics.median(row["us"] for row in rows)
    cpu_us = statistics.median(row["cpu_us"] for row in rows)
    travelled = factor * size  # bytes of one rank
    return Figure(us, min(row["us"] for row in rows), len(rows), min(row["iterations"] for row in rows),
                  cpu_us * 1e-6 / travelled * 1e9 if travelled else 0, travelled / us * 1e-3, rows[-1]["algorithm"])


def figure_of_best(system: str, rows: list[dict[str, Any]], factor: float, size: int) -> Figure:
    """A peer's algorithms are its user's choice, so its best counts; Weft has to choose by itself."""
    if system == WEFT:
        return figure_of(rows, factor, size)
    ways: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        ways.setdefault(row["algorithm"], []).append(row)
    return min((figure_of(way, factor, size) for way in ways.values()), key=lambda figure: figure.us)


def cells_of(scenario: Scenario, launches: Iterable[dict[str, Any]]) -> list[Cell]:
    rows: dict[tuple[str, int], dict[str, list[dict[str, Any]]]] = {}
    for launch in launches:
        if launch["scenario"] != scenario.name:
            continue
        for row in launch["rows"]:
            systems = rows.setdefault((launch["collective"], row["size"]), {})
            systems.setdefault(launch["system"], []).append(row)
    cells = []
    order = {collective: at for at, collective in enumerate(COLLECTIVES)}
    for collective, size in sorted(rows, key=lambda key: (order.get(key[0], len(order)), key[1])):
        factor = bus_factor(collective, scenario.ranks)
        figures = {name: figure_of_best(name, its, factor, size) for name, its in rows[collective, size].items()}
        cell = Cell(collective, size, figures)
        if scenario.is_cluster and WEFT in figures:
            cell.line_share = line_time_us(scenario, collective, size) / figures[WEFT].us
        cells.append(cell)
    return cells


def geometric_mean(values: Iterable[float]) -> float | None:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else None


@dataclasses.dataclass
class Verdict:
    """A scenario in one line."""
    mean: float | None   # geometric mean of the speed-ups
    compared: int        # cells with a peer
    slower: int          # of them, cells in which the best peer is faster
    worst: Cell | None


def verdict_of(cells: list[Cell]) -> Verdict:
    compared = [cell for cell in cells if cell.speedup is not None]
    return Verdict(geometric_mean(cell.speedup for cell in compared), len(compared),
                   sum(cell.speedup < 1 for cell in compared), min(compared, key=lambda cell: cell.speedup, default=None))


def system_names(cells: Iterable[Cell]) -> list[str]:
    """Weft first, then the peers in the order in which they were measured."""
    names = dict.fromkeys(name for cell in cells for name in cell.figures)
    return ([WEFT] if WEFT in names else []) + [name for name in names if name != WEFT]


@dataclasses.dataclass
class Startup:
    ranks: int
    threads: bool
    us: dict[str, float]  # by system, median


def startups_of(measured: Iterable[dict[str, Any]]) -> list[Startup]:
    groups: dict[tuple[bool, int], dict[str, list[float]]] = {}
    for one in measured:
        groups.setdefault((one["threads"], one["ranks"]), {}).setdefault(one["system"], []).append(one["us"])
    return [Startup(ranks, threads, {name: statistics.median(values) for name, values in systems.items()})
            for (threads, ranks), systems in sorted(groups.items())]
