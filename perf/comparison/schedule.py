"""How much is measured in the time that there is: sizes and rounds of each scenario, from a rough model of what they take.

The model only has to be right within a factor of two: measure.py watches the clock as well.
"""
from __future__ import annotations

import dataclasses

from .scenarios import KIB, MIB, Scenario, bus_factor, line_time_us

LAUNCH_S = 1.2          # processes start, connect and end
ROWS_PER_SIZE = 1.6     # Gloo measures up to four algorithms, MPI libraries one
COPY_BYTES_PER_S = 3e9  # of one rank, with a core of its own
TCP_BYTES_PER_S = 1.5e9
CORES = 2               # of the smallest machine that is worth comparing on
SMALLEST_CUT = MIB      # sizes up to this are never dropped


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is measured of one scenario. `budget_s` is when no other round is begun; None: no limit."""
    scenario: Scenario
    sizes: tuple[int, ...]
    rounds: int
    budget_s: float | None
    note: str = ""


def row_seconds(scenario: Scenario, collective: str, size: int, time_ms: float) -> float:
    if scenario.is_cluster:
        call_s = 1.5 * line_time_us(scenario, collective, size) * 1e-6 + 1e-3 + scenario.latency_ms * 1e-3
    else:
        rate = COPY_BYTES_PER_S if scenario.kind == "shm" else TCP_BYTES_PER_S
        crowd = max(1.0, scenario.ranks / CORES)
        call_s = (2 * bus_factor(collective, scenario.ranks) * size / rate + 5e-6) * crowd
    fill_s = scenario.ranks / scenario.nodes * size * 3 / COPY_BYTES_PER_S
    return max(2 * time_ms * 1e-3, 7 * call_s) + call_s + fill_s


def round_seconds(scenario: Scenario, systems: int, collectives: list[str], sizes: tuple[int, ...],
                  time_ms: float) -> float:
    rows = sum(row_seconds(scenario, c, size, time_ms) for c in collectives for size in sizes)
    return systems * (len(collectives) * LAUNCH_S + ROWS_PER_SIZE * rows)


def plan(scenario: Scenario, systems: int, collectives: list[str], sizes: list[int], rounds: int, time_ms: float,
         budget_s: float | None) -> Plan:
    """Two rounds come before the largest sizes, and one round before sizes above 1 MiB."""
    chosen = tuple(sizes)
    if budget_s is None:
        return Plan(scenario, chosen, rounds, None)

    def cost(count: int) -> float:
        return count * round_seconds(scenario, systems, collectives, chosen, time_ms)

    while cost(min(2, rounds)) > budget_s and chosen[-1] > SMALLEST_CUT and len(chosen) > 1:
        chosen = chosen[:-1]
    possible = max(1, min(rounds, int(budget_s / cost(1))))
    cuts = []
    if len(chosen) < len(sizes):
        cuts.append(f"sizes above {chosen[-1] // MIB} MiB" if chosen[-1] >= MIB else
                    f"sizes above {chosen[-1] // KIB} KiB" if chosen[-1] >= KIB else f"sizes above {chosen[-1]} B")
    if possible < rounds:
        cuts.append(f"round {possible + 1} and later")
    note = f"Left out for want of time: {' and '.join(cuts)}." if cuts else ""
    return Plan(scenario, chosen, possible, budget_s, note)
