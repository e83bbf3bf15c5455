"""The tables besides those of who wins: buckets, slices, what goes wrong, and how much assumed numbers matter."""
from __future__ import annotations

import statistics

from comparison.scenarios import MIB
from comparison.table import rows_text

from .field import EVEN, Field, gain_text
from .simulator import MESH, TITLES, Simulator, contestants, size_text

GRADIENTS, BUCKETS = 400 * MIB, [6.25, 25, 100, 400]  # MiB
SLICES = ["64K", "128K", "256K", "512K", "1M", "2M", "4M"]
SLICED_SIZES = ["64M", "1G"]
SICK_SIZE = 64 * MIB
TROUBLED = {**TITLES, "alltoall": "AlltoAll"}
TROUBLES = {"slow node": ["--slow-node", "{node}=0.5"],
            "slow rail": ["--slow-rail", "{node}:1=0.5"],
            "failed rail": ["--fail-rail", "{node}:1"],
            "incast": ["--incast", "{node}=3"],
            "leaves": ["--nodes-per-leaf", "4", "--oversubscription", "4"]}
SICK_NODE = 5  # the last, where there are fewer
ASSUMED = {"inter.alpha_us": "alpha between nodes", "nic_message_us": "an interface's time for a message"}
FACTORS = {0.5: "half", 2.0: "double"}
ASSUMED_SIZES = ["256K", "1M", "4M", "16M", "64M"]


def bucket_times(simulator: Simulator, collective: str, nodes: list[int]) -> dict[tuple[int, int, str], float]:
    """µs that GRADIENTS take in buckets one after another, by nodes, size of a bucket and algorithm."""
    sizes = [f"{round(bucket * 1024)}K" for bucket in BUCKETS]
    return {(row["nodes"], row["bytes"], row["algorithm"]): row["us"] * GRADIENTS / row["bytes"]
            for row in simulator.rows(collective, sizes, nodes, contestants(collective)) if "us" in row}


def bucket_table(times: dict[str, dict[tuple[int, int, str], float]]) -> str:
    lines = []
    for collective, us in times.items():
        sizes = sorted({size for _, size, _ in us})
        for count in sorted({count for count, _, _ in us}):
            lines.append([TITLES[collective], str(count)] +
                         [" / ".join(f"{us[count, size, name] / 1e3:.1f}" for name in contestants(collective))
                          for size in sizes])
    return rows_text(["collective", "nodes"] + [f"{GRADIENTS // size} of {size_text(size)}" for size in sizes], lines).rstrip()


def slice_table(simulator: Simulator, nodes: list[int]) -> str:
    lines = []
    for collective, title in TITLES.items():
        times = [{(row["nodes"], row["bytes"]): row["us"]
                  for row in simulator.rows(collective, SLICED_SIZES, nodes, [MESH], "--slice", text)} for text in SLICES]
        for key in sorted(times[0]):
            best = min(one[key] for one in times)
            lines.append([title, str(key[0]), size_text(key[1])] +
                         [f"**{one[key] / 1e3:.2f}**" if one[key] == best else f"{one[key] / 1e3:.2f}" for one in times])
    return rows_text(["collective", "nodes", "size"] + [f"{text}iB" for text in SLICES], lines).rstrip()


def trouble_tables(simulator: Simulator, nodes: int) -> dict[str, str]:
    """What each trouble costs every plan that fits, and how long anything waits for its receiver's interface."""
    troubles = {trouble: [option.format(node=min(SICK_NODE, nodes - 1)) for option in options]
                for trouble, options in TROUBLES.items()}
    costs, queues = [], []
    for collective, title in TROUBLED.items():
        def asked(options: list[str]) -> dict[str, dict]:
            rows = simulator.rows(collective, [str(SICK_SIZE)], [nodes], None, *options)
            return {row["algorithm"]: row for row in rows if "us" in row}
        healthy = asked([])
        sick = {trouble: asked(options) for trouble, options in troubles.items()}
        for name in sorted(healthy, key=lambda name: healthy[name]["us"]):
            us = healthy[name]["us"]
            costs.append([title, name, f"{us / 1e3:.2f}"] +
                         [f"{rows[name]['us'] / us:.2f} ×" if name in rows else "-" for rows in sick.values()])
            queues.append([title, name] + [f"{rows[name]['queued_at_receiver_us']:.0f}" if name in rows else "-"
                                           for rows in (healthy, *sick.values())])
    return {"troubles": rows_text(["collective", "plan", "healthy, ms", *TROUBLES], costs).rstrip(),
            "queues": rows_text(["collective", "plan", "healthy", *TROUBLES], queues).rstrip()}


def assumed_fields(simulator: Simulator, collective: str, nodes: list[int], sizes: list[str]) -> dict[str, Field]:
    """The collective as the cluster is described, and with each assumed number halved and doubled."""
    names = contestants(collective)
    fields = {"": Field(collective, simulator.rows(collective, sizes, nodes, names))}
    for key, title in ASSUMED.items():
        for factor, word in FACTORS.items():
            with simulator.changed(key, factor) as other:
                fields[f"{title}: {word}"] = Field(collective, other.rows(collective, sizes, nodes, names))
    return fields


def sensitivity_table(fields: dict[str, dict[str, Field]]) -> str:
    """A row for each number that was changed, of every collective: in how many cells another way is the fastest."""
    lines = []
    for collective, by_change in fields.items():
        base = by_change[""]
        for change, field in by_change.items():
            if change:
                lines.append([TITLES[collective], change, *verdicts(base, field)])
    return rows_text(["collective", "changed", "cells", "verdict changes in", "gain of all-to-all changes by (median, most)",
                      "where the verdict changes: nodes, size, from → to"], lines).rstrip()


def verdicts(base: Field, field: Field) -> list[str]:
    """Compares cell by cell. The verdict is whether all-to-all is at least as fast as the best of the others."""
    cells = sorted(base.us)
    turned = [cell for cell in cells if (base.gain(*cell) >= EVEN) != (field.gain(*cell) >= EVEN)]
    changes = [abs(field.gain(*cell) / base.gain(*cell) - 1) for cell in cells]
    told = "; ".join(f"{nodes}, {size_text(size)}: {gain_text(base.gain(nodes, size), base.rival(nodes, size))} → "
                     f"{gain_text(field.gain(nodes, size), field.rival(nodes, size))}" for nodes, size in turned)
    return [str(len(cells)), str(len(turned)), f"{100 * statistics.median(changes):.0f} %, {100 * max(changes):.0f} %",
            told or "nowhere"]
