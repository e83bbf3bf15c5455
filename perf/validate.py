#!/usr/bin/env python3
"""Is the simulator right? Measures every algorithm, simulates the same with weft_sim, and prints how far apart they are.

  perf/validate.py                                          every scenario and cell of perf/compare.py; takes hours
  perf/validate.py --scenarios shm2 --collectives allreduce --sizes 1K,1M --every
  perf/validate.py --measured shm2.json tcp2.json --docs docs/results/data/predicted-and-measured.md         measures nothing

The files of --measured are from --json of this tool, of perf/tuner_check.py or of perf/compare.py, each of some scenarios.
Scenarios are those of perf/compare.py: shmN, tcpN, clusterN, clusterNxR, clusterN-1ms (clusters need root). What the library
measures of this machine before each round is all that the simulator is told: the file in the tuning cache, and how many
cores a node has; the prediction is the median of what it says then. Files of perf/compare.py do not hold it: --machine takes
a file of the tuning cache (weft_info --tuning lists them), or a machine as weft_info prints it.

This tool measures with slices of one length (--slice), and simulates with the same. Where the tuner chose the slices, as in
files of the other tools, the simulator takes those which it finds fastest, as the tuner does. The error of a point is
|predicted - measured| / measured, of the median over launches. --docs replaces the table between the lines
<!-- validation: perf/validate.py --> and <!-- end --> of a page. Exit code: 0; 1 when the median error is above 15 % or the
90th percentile above 30 %, or a launch failed; 2 when the command line or a file is wrong.
"""
from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from comparison.candidates import Check, collectives_of
from comparison.cores import cores_of
from comparison.document import read
from comparison.marked import fill_in
from comparison.measure import Cluster
from comparison.measured import (Document, add_options, check_options, is_whole, joined, load, origin, own_sizes, percentile,
                                 save, scenarios_of)
from comparison.progress import Progress
from comparison.results import machine as this_computer
from comparison.scenarios import MIB, UsageError, exact_size, parse_scenario, parse_size, size_text
from comparison.systems import LaunchError, Weft
from comparison.table import rows_text

TOOL = "perf/validate.py"
MEDIAN_LIMIT, LIMIT_90 = 0.15, 0.30
# What the tuner tries beside its usual length, and what another length must save (src/weft/model/tuner.cc).
USUAL_SLICE, SHORTEST_SLICE = MIB // 2, MIB // 64
TUNERS_SLICES = [USUAL_SLICE // 16, USUAL_SLICE // 4, USUAL_SLICE * 4]
WORTHWHILE = 0.97


@dataclasses.dataclass
class Point:
    scenario: str
    collective: str
    size: int
    algorithm: str
    measured_us: float
    predicted_us: float | None = None

    @property
    def off(self) -> float:
        return self.predicted_us / self.measured_us - 1


def from_comparison(document: Document) -> Document:
    """A result of perf/compare.py in this tool's form; only what was picked is known there, and no machine."""
    scenarios = {}
    for scenario, cells in document["cells"].items():
        ranks, rows = parse_scenario(scenario).ranks, []
        for cell in cells:
            figure = cell["systems"].get("Weft")
            if figure and figure.get("algorithm"):
                rows.append({"collective": cell["collective"].replace("_", ""),
                             "bytes": exact_size(cell["collective"], cell["bytes"], ranks),
                             "us": {figure["algorithm"]: figure["us"]}})
        scenarios[scenario] = {"rows": rows}
    return {"when": document.get("created", ""), "computer": document.get("machine"), "scenarios": scenarios}


def load_any(path: pathlib.Path) -> Document:
    document = read(path)
    if "cells" in document:
        return from_comparison(document)
    if not is_whole(document.get("scenarios")):
        raise UsageError(f"{path} is no result of perf/validate.py, perf/tuner_check.py or perf/compare.py")
    return load(path)


def points_of(scenario: str, rows: list[dict]) -> list[Point]:
    return [Point(scenario, row["collective"], row["bytes"], name, us)
            for row in rows for name, us in row["us"].items() if "/" not in name]


class Predictor:
    """Asks weft_sim."""

    def __init__(self, build: pathlib.Path) -> None:
        self.bin = build / "bin"
        explained = self.ask("weft_info", "--explain", "allreduce", "4", "-n", "1", "--json")
        self.cores = explained["explain"]["machine"]["cores"]

    def ask(self, program: str, *arguments: str) -> dict:
        command = [str(self.bin / program), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except OSError as error:
            raise UsageError(f"{command[0]} cannot be started: {error.strerror}; make builds it") from None
        if done.returncode != 0:
            raise UsageError(f"{' '.join(command)}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def cluster(self, scenario: str, machine: dict) -> dict:
        """The scenario as weft_sim reads it. All nodes are on this computer, and share its cores."""
        nodes, per_node = parse_scenario(scenario).layout
        cores = max(self.cores / nodes, 0.01)
        return {"name": scenario, "nodes": nodes, "ranks_per_node": per_node, "machine": {**machine, "cores": cores}}

    def predict(self, scenario: str, machines: list[dict], points: list[Point], slice_bytes: int | None = None) -> None:
        """Fills in the points, with the median over machines. `slice_bytes`: None where the tuner chose."""
        for collective in sorted({point.collective for point in points}):
            mine = [point for point in points if point.collective == collective]
            sizes = sorted({point.size for point in mine})
            answers = [self.best_times(scenario, machine, collective, sizes, slice_bytes) for machine in machines]
            for point in mine:
                times = [us[point.size, point.algorithm] for us in answers if (point.size, point.algorithm) in us]
                point.predicted_us = statistics.median(times) if times else None

    def best_times(self, scenario: str, machine: dict, collective: str, sizes: list[int],
                   slice_bytes: int | None) -> dict[tuple[int, str], float]:
        """µs by size and algorithm, with the best slices of those that may be chosen."""
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(self.cluster(scenario, machine), file)
            file.flush()
            us = self.times(file.name, collective, sizes, slice_bytes or USUAL_SLICE)
            for other in [] if slice_bytes else TUNERS_SLICES:
                longer = [size for size in sizes if size >= max(other, SHORTEST_SLICE)]
                for key, time_us in (self.times(file.name, collective, longer, other) if longer else {}).items():
                    if key in us and time_us < WORTHWHILE * us[key]:
                        us[key] = time_us
        return us

    def times(self, cluster: str, collective: str, sizes: list[int], slice_bytes: int) -> dict[tuple[int, str], float]:
        """µs by size and algorithm."""
        # As perf/compare.py measures: back-to-back blocking calls, Broadcast in place and the others out of place.
        place = "--in-place" if collective == "broadcast" else "--out-of-place"
        answer = self.ask("weft_sim", cluster, "--streak", place, "--json", "-c", collective, "-s", ",".join(map(str, sizes)), "--slice",
                          str(slice_bytes))
        return {(row["bytes"], row["algorithm"]): row["us"] for row in answer["rows"] if "us" in row}


def measure(arguments: argparse.Namespace) -> tuple[Document, list[str]]:
    """What was measured, and a sentence for each launch that failed."""
    check_options(arguments)
    scenarios = scenarios_of(arguments.scenarios)
    collectives = collectives_of(arguments.collectives)
    slice_bytes = parse_size("--slice", arguments.slice)
    os.environ.pop("WEFT_TUNE", None)
    weft, progress = Weft(arguments.build.resolve()), Progress(1)
    check = Check(weft, arguments.rounds, arguments.time_ms, progress, {"WEFT_SLICE_BYTES": str(slice_bytes)},
                  cores=cores_of(arguments.build.resolve(), arguments.cores_apart))
    sizes = {scenario.name: own_sizes(scenario, arguments) for scenario in scenarios}
    progress.total = sum(check.launches(scenario, collectives, sizes[scenario.name]) for scenario in scenarios)
    document = Document({"when": time.strftime("%F %T"), "computer": this_computer(), "slice_bytes": slice_bytes,
                         "scenarios": {}})
    for scenario in scenarios:
        rows = []
        with Cluster(scenario):
            for collective in collectives:
                rows += check.rows(scenario, collective, sizes[scenario.name])
        document["scenarios"][scenario.name] = {"rows": rows}
        if check.cores:
            document["cores"] = check.cores.sentence()
        if arguments.json:  # what is measured is kept, should a later scenario fail
            save(arguments.json, document)
    progress.close()
    return document, check.failures


def row_of(name: str, what: str, points: list[Point]) -> list[str]:
    errors = [abs(point.off) for point in points]
    return [name, what, str(len(points)), f"{100 * statistics.median(errors):.0f} %",
            f"{100 * percentile(errors, 0.9):.0f} %", f"{100 * statistics.median(p.off for p in points):+.0f} %"]


def table(points: list[Point]) -> str:
    lines = []
    scenarios = list(dict.fromkeys(point.scenario for point in points))
    for scenario in scenarios:
        mine = [point for point in points if point.scenario == scenario]
        for collective in dict.fromkeys(point.collective for point in mine):
            lines.append(row_of(scenario, collective, [point for point in mine if point.collective == collective]))
    lines.append(row_of("all", "all", points))
    return rows_text(["scenario", "collective", "points", "median error", "90th percentile",
                      "median of predicted - measured"], lines).rstrip()


def every(points: list[Point]) -> str:
    return rows_text(["scenario", "collective", "size", "algorithm", "measured µs", "predicted µs", "off"],
                     [[p.scenario, p.collective, size_text(p.size), p.algorithm, f"{p.measured_us:.4g}",
                       f"{p.predicted_us:.4g}", f"{100 * p.off:+.0f} %"] for p in points])


def predicted(documents: list[Document], predictor: Predictor, other: dict | None) -> list[Point]:
    """The points of all files that the simulator could predict, with the machines that belong to each row."""
    joined(documents)
    points = []
    for document in documents:
        for scenario, found in document["scenarios"].items():
            def of(row: dict) -> tuple[str, list[dict]]:
                return row["collective"], row.get("machines", []) if other is None else [other]
            for (_, machines), rows in itertools.groupby(found["rows"], of):
                if not machines:
                    raise UsageError(f"--machine is missing: the file with {scenario} does not hold what the library "
                                     "measured of that machine")
                mine = points_of(scenario, list(rows))
                predictor.predict(scenario, machines, mine, document.get("slice_bytes"))
                points += [point for point in mine if point.predicted_us]
    if not points:
        raise UsageError("no point was both measured and predicted")
    return points


def show(documents: list[Document], points: list[Point], arguments: argparse.Namespace) -> bool:
    """Prints tables and fills in the page; whether the goal is reached."""
    print(table(points))
    if arguments.every:
        print("\n" + every(points))
    errors = [abs(point.off) for point in points]
    median, ninety = statistics.median(errors), percentile(errors, 0.9)
    good = median <= MEDIAN_LIMIT and ninety <= LIMIT_90
    print(f"\n{len(points)} points: the median error is {100 * median:.0f} %, must be at most {100 * MEDIAN_LIMIT:.0f} %; the 90th "
          f"percentile is {100 * ninety:.0f} %, must be at most {100 * LIMIT_90:.0f} %: {'good' if good else 'NOT good'}")
    if arguments.docs:
        where = "\n".join(origin(document) for document in documents)
        fill_in(arguments.docs, TOOL, {"validation": f"{table(points)}\n\n{where}"})
    return good


def parse_arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add_options(add, of="algorithm", measured="simulate what is in these files")
    add("--slice", default="512K", help="length of slices, of the library and of the simulator (512K)")
    add("--every", action="store_true", help="print every point, too")
    add("--machine", type=pathlib.Path, metavar="FILE", help="what the simulator is told of the machine")
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    arguments = parse_arguments(words)
    os.environ.setdefault("CLUSTER", "weftcmp")
    failures: list[str] = []
    try:
        predictor = Predictor(arguments.build.resolve())
        other = None
        if arguments.machine:
            other = read(arguments.machine)
            other = other.get("machine", other)
        if arguments.measured:
            documents = [load_any(path) for path in arguments.measured]
        else:
            document, failures = measure(arguments)
            documents = [document]
        for failure in failures:
            print(f"validate.py: {failure}", file=sys.stderr)
        good = show(documents, predicted(documents, predictor, other), arguments)
    except (UsageError, LaunchError) as error:
        print(f"validate.py: {error}", file=sys.stderr)
        return 2
    return 0 if good and not failures else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
