#!/usr/bin/env python3
"""Draws the charts and fills in the tables of docs/results/scale.md and data/scale-tables.md beside it: collectives on 2 to 512
nodes, simulated by weft_sim.

  perf/scale.py [--build build] [--docs docs/results] [--cluster p4d] [--nodes 2,4,…] [--sizes 256K,…] [--json FILE]

Everything is computed anew from the cluster's description and the plans of the library. The text of the page stays as it is: a
table is replaced between the lines <!-- NAME: perf/scale.py --> and <!-- end -->. Takes three minutes of one CPU.
"""
from __future__ import annotations

import argparse
import json
import pathlib
import sys

from comparison.marked import fill_in
from comparison.progress import Progress
from comparison.scenarios import MIB, UsageError
from comparison.systems import ROOT
from scaling.drawings import bucket_chart, gain_chart, rate_chart, times_chart
from scaling.field import Field, gain_table, least_size_table
from scaling.simulator import TITLES, Simulator, contestants
from scaling.studies import (ASSUMED_SIZES, GRADIENTS, assumed_fields, bucket_table, bucket_times, sensitivity_table,
                             slice_table, trouble_tables)

TOOL = "perf/scale.py"
NODES = [2, 4, 8, 16, 32, 64, 128, 256, 512]
SIZES = ["16K", "64K", "256K", "1M", "4M", "16M", "64M", "256M", "1G"]
FEW_NODES = (8, 32, 128, 512)      # of buckets and slices
SHOWN_NODES = (8, 64, 512)         # of the charts over size
SICK_NODES = (16,)
ASSUMED_NODES = (8, 32, 128)
RATE_SIZE = 64 * MIB
PAGE, TABLES_PAGE = "scale.md", "data/scale-tables.md"
ON_PAGE = ("allreduce", "troubles")  # the tables of PAGE; TABLES_PAGE has the others


def parse_arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--docs", type=pathlib.Path, default=ROOT / "docs/results", help=f"where {PAGE} and {TABLES_PAGE} are")
    parser.add_argument("--cluster", default="p4d", help="a description that weft_sim knows, or a file")
    parser.add_argument("--nodes", default=",".join(map(str, NODES)))
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--json", type=pathlib.Path, help="write everything that was simulated to this file")
    return parser.parse_args(words)


class Page:
    """Tables and charts by their names, as they come."""

    def __init__(self, simulator: Simulator, nodes: list[int], sizes: list[str]) -> None:
        self.simulator, self.nodes, self.sizes = simulator, nodes, sizes
        self.few = self.some(FEW_NODES)
        self.tables: dict[str, str] = {}
        self.charts: dict[str, str] = {}

    def some(self, wanted: tuple[int, ...]) -> list[int]:
        return [count for count in wanted if count in self.nodes] or self.nodes[-1:]

    def fields(self) -> None:
        fields = {}
        for collective in TITLES:
            field = Field(collective, self.simulator.rows(collective, self.sizes, self.nodes, contestants(collective)))
            fields[collective] = field
            self.tables[collective] = gain_table(field)
            self.charts[f"{collective}-gain"] = gain_chart(field)
            size = RATE_SIZE if RATE_SIZE in field.sizes else field.sizes[-1]
            self.charts[f"{collective}-nodes"] = rate_chart(field, size)
            for nodes in self.some(SHOWN_NODES):
                self.charts[f"{collective}-{nodes}"] = times_chart(field, nodes)
        self.tables["least sizes"] = least_size_table(fields)

    def buckets(self) -> None:
        times = {collective: bucket_times(self.simulator, collective, self.few) for collective in TITLES}
        self.tables["buckets"] = bucket_table(times)
        self.charts["buckets"] = bucket_chart(times["allreduce"], GRADIENTS)

    def slices(self) -> None:
        self.tables["slices"] = slice_table(self.simulator, self.few)

    def troubles(self) -> None:
        self.tables |= trouble_tables(self.simulator, self.some(SICK_NODES)[0])

    def assumptions(self) -> None:
        nodes = self.some(ASSUMED_NODES)
        self.tables["assumptions"] = sensitivity_table(
            {collective: assumed_fields(self.simulator, collective, nodes, ASSUMED_SIZES) for collective in TITLES})

    def write(self, docs: pathlib.Path) -> None:
        fill_in(docs / PAGE, TOOL, {name: table for name, table in self.tables.items() if name in ON_PAGE})
        fill_in(docs / TABLES_PAGE, TOOL, {name: table for name, table in self.tables.items() if name not in ON_PAGE})
        folder = docs / "scale"
        folder.mkdir(exist_ok=True)
        for name, text in self.charts.items():
            (folder / f"{name}.svg").write_text(text)


def main(words: list[str]) -> int:
    arguments = parse_arguments(words)
    try:
        simulator = Simulator(arguments.build.resolve(), arguments.cluster)
        if not simulator.program.exists():
            raise UsageError(f"--build: there is no {simulator.program}; make builds it")
        page = Page(simulator, [int(text) for text in arguments.nodes.split(",")], arguments.sizes.split(","))
        parts = {"rings, trees and all-to-all": page.fields, "buckets": page.buckets, "slices": page.slices,
                 "troubles": page.troubles, "what assumptions matter": page.assumptions}
        progress = Progress(len(parts))
        for what, make in parts.items():
            progress.show(what)
            make()
            progress.step()
        progress.close()
        page.write(arguments.docs)
    except UsageError as error:
        print(f"scale.py: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        arguments.json.write_text(json.dumps(simulator.runs, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
