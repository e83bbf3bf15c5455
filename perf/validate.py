#!/usr/bin/env python3
"""Is the simulator right? Measures every algorithm, simulates the same with weft_sim, and prints how far apart they are.

  perf/validate.py [--build build] [--scenarios shm2,shm4,…] [--collectives allreduce,…] [--sizes 1K,…] [--rounds 3]
                   [--slice 512K] [--every] [--json FILE] [--docs docs/simulator-and-tuner.md]
  perf/validate.py --measured FILE [--machine FILE] …      measures nothing: FILE is from --json, or from --json of
                                                           perf/tuner_check.py or perf/compare.py

Scenarios are those of perf/tuner_check.py: shmN is N ranks over shared memory, clusterMxG M network namespaces of G ranks with
500 Mbit/s each (needs root). What the library measures of this machine when the scenario begins is all that the simulator is
told: the file in the tuning cache, and how many cores a node has. Files of the other tools do not hold it: --machine takes a file
of the tuning cache (weft_info --tuning lists them), or a machine as weft_info prints it. The error of a point is |predicted -
measured| / measured, of the median over launches. The exit code is 1 if the median error is above 15 % or the 90th percentile above
30 %. --docs replaces the table between the lines <!-- validation: perf/validate.py --> and <!-- end --> of a page.
"""
from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import tuner_check
from comparison.results import machine as this_computer
from comparison.results import machine_text

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCENARIOS = "shm2,shm4,shm8,cluster4,cluster4x2,cluster8,cluster8x2"
COLLECTIVES = "allreduce,allgather,reducescatter"
MEDIAN_LIMIT, LIMIT_90 = 0.15, 0.30


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


def fail(text: str) -> None:
    sys.exit(f"validate: {text}")


def load(path: pathlib.Path) -> dict:
    try:
        document = json.loads(path.read_text())
    except OSError as error:
        fail(f"{path} cannot be read: {error.strerror}")
    except json.JSONDecodeError as error:
        fail(f"{path} is not JSON: {error}")
    if not isinstance(document, dict):
        fail(f"{path} is no JSON object")
    return document


def measured_points(document: dict, path: pathlib.Path) -> list[Point]:
    """From a file of this tool, of tuner_check.py or of compare.py."""
    points = []
    if "cells" in document:  # compare.py; what was used is known, and no other algorithm was measured
        for scenario, cells in document["cells"].items():
            for cell in cells:
                figure = cell["systems"].get("Weft")
                if figure and figure.get("algorithm"):
                    points.append(Point(scenario, cell["collective"].replace("_", ""), cell["bytes"], figure["algorithm"],
                                        figure["us"]))
    elif "scenarios" in document:
        for scenario, found in document["scenarios"].items():
            points += [Point(scenario, row["collective"], row["bytes"], name, us)
                       for row in found["rows"] for name, us in row["us"].items() if "/" not in name]
    else:
        fail(f"{path} is no result of perf/validate.py, perf/tuner_check.py or perf/compare.py")
    return points


class Predictor:
    def __init__(self, build: pathlib.Path, slice_text: str) -> None:
        self.bin, self.slice = build / "bin", slice_text
        explained = self.ask("weft_info", "--explain", "allreduce", "4", "-n", "1", "--json")
        self.cores = explained["explain"]["machine"]["cores"] if "explain" in explained else explained["machine"]["cores"]

    def ask(self, program: str, *arguments: str) -> dict:
        command = [str(self.bin / program), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except OSError as error:
            fail(f"{command[0]} cannot be started: {error.strerror}; make builds it")
        if done.returncode != 0:
            fail(f"{' '.join(command)}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def cluster(self, scenario: str, machine: dict) -> dict:
        """The scenario as weft_sim reads it. All nodes are on this computer, and share its cores."""
        shape = tuner_check.Scenario(scenario, self.bin.parent)
        per_node = shape.ranks // shape.nodes
        cores = max(self.cores * per_node / shape.ranks, 0.01)
        return {"name": scenario, "nodes": shape.nodes, "ranks_per_node": per_node, "machine": {**machine, "cores": cores}}

    def predict(self, scenario: str, machine: dict, points: list[Point]) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(self.cluster(scenario, machine), file)
            file.flush()
            for collective in sorted({point.collective for point in points}):
                mine = [point for point in points if point.collective == collective]
                sizes = sorted({point.size for point in mine})
                answer = self.ask("weft_sim", file.name, "--json", "-c", collective, "-s", ",".join(map(str, sizes)),
                                  "--slice", self.slice)
                us = {(row["bytes"], row["algorithm"]): row["us"] for row in answer["rows"] if "us" in row}
                for point in mine:
                    point.predicted_us = us.get((point.size, point.algorithm))


def cached_machine(folder: pathlib.Path, scenario: str) -> dict:
    files = sorted(folder.glob("machine-*.json"))
    if len(files) != 1:
        fail(f"{scenario}: the library has left {len(files)} measurements of this machine in its cache, must be one; "
             "is WEFT_TUNE set?")
    return load(files[0])["machine"]


def measure(arguments: argparse.Namespace, build: pathlib.Path) -> dict:
    document = {"when": time.strftime("%F %T"), "computer": this_computer(), "scenarios": {}}
    os.environ["WEFT_SLICE_BYTES"] = arguments.slice
    os.environ.pop("WEFT_TUNE", None)
    for name in arguments.scenarios.split(","):
        scenario = tuner_check.Scenario(name, build)
        default = tuner_check.CLUSTER_SIZES if scenario.cluster else tuner_check.SIZES
        sizes = [tuner_check.bytes_of(text) for text in (arguments.sizes.split(",") if arguments.sizes else default)]
        with tempfile.TemporaryDirectory() as folder:
            os.environ["WEFT_TUNE_CACHE"] = folder
            scenario.up()
            try:
                rows = []
                for collective in arguments.collectives.split(","):
                    rows += tuner_check.check(scenario, collective, sizes, arguments.rounds, [], build)
            finally:
                scenario.down()
            document["scenarios"][name] = {"rows": rows, "machine": cached_machine(pathlib.Path(folder), name)}
        print(file=sys.stderr)
        if arguments.json:  # what is measured is kept, should a later scenario fail
            arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    return document


def row_of(name: str, what: str, points: list[Point]) -> str:
    errors = [abs(point.off) for point in points]
    return (f"| {name} | {what} | {len(points)} | {100 * statistics.median(errors):.0f} % | "
            f"{100 * tuner_check.percentile(errors, 0.9):.0f} % | {100 * statistics.median(p.off for p in points):+.0f} % |")


def table(points: list[Point]) -> str:
    lines = ["| scenario | collective | points | median error | 90th percentile | median of predicted - measured |",
             "| --- | --- | --- | --- | --- | --- |"]
    scenarios = list(dict.fromkeys(point.scenario for point in points))
    for scenario in scenarios:
        mine = [point for point in points if point.scenario == scenario]
        for collective in dict.fromkeys(point.collective for point in mine):
            lines.append(row_of(scenario, collective, [point for point in mine if point.collective == collective]))
    lines.append(row_of("all", "all", points))
    return "\n".join(lines)


def every(points: list[Point]) -> str:
    lines = ["| scenario | collective | size | algorithm | measured µs | predicted µs | off |", "|" + " --- |" * 7]
    lines += [f"| {p.scenario} | {p.collective} | {tuner_check.text_of(p.size)} | {p.algorithm} | {p.measured_us:.4g} | "
              f"{p.predicted_us:.4g} | {100 * p.off:+.0f} % |" for p in points]
    return "\n".join(lines)


def fill_in(page: pathlib.Path, text: str) -> None:
    old = page.read_text()
    mark = "<!-- validation: perf/validate.py -->"
    pattern = re.compile(re.escape(mark) + r"\n.*?<!-- end -->", re.S)
    if len(pattern.findall(old)) != 1:
        fail(f"{page}: there must be one line {mark}, closed by <!-- end -->")
    page.write_text(pattern.sub(lambda _: f"{mark}\n{text}\n<!-- end -->", old))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--scenarios", default=SCENARIOS)
    parser.add_argument("--collectives", default=COLLECTIVES)
    parser.add_argument("--sizes", help="such as 128,8K,4M; the default depends on the scenario")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slice", default="512K", help="length of slices, of the library and of the simulator")
    parser.add_argument("--every", action="store_true", help="print every point, too")
    parser.add_argument("--measured", type=pathlib.Path)
    parser.add_argument("--machine", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path, help="write what was measured to this file")
    parser.add_argument("--docs", type=pathlib.Path, help="replace the table in this page")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    predictor = Predictor(build, arguments.slice)
    document = load(arguments.measured) if arguments.measured else measure(arguments, build)
    points = measured_points(document, arguments.measured or pathlib.Path("what was measured"))
    other = None
    if arguments.machine:
        other = load(arguments.machine)
        other = other.get("machine", other)
    for scenario in dict.fromkeys(point.scenario for point in points):
        own = document["scenarios"][scenario].get("machine") if isinstance(document.get("scenarios"), dict) else None
        if other is None and own is None:
            fail("--machine is missing: the file does not hold what the library measured of that machine")
        predictor.predict(scenario, own if other is None else other, [point for point in points if point.scenario == scenario])
    points = [point for point in points if point.predicted_us]
    if not points:
        fail("no point was both measured and predicted")
    print(table(points))
    if arguments.every:
        print("\n" + every(points))
    errors = [abs(point.off) for point in points]
    median, ninety = statistics.median(errors), tuner_check.percentile(errors, 0.9)
    good = median <= MEDIAN_LIMIT and ninety <= LIMIT_90
    print(f"\n{len(points)} points: the median error is {100 * median:.0f} %, must be at most {100 * MEDIAN_LIMIT:.0f} %; the 90th "
          f"percentile is {100 * ninety:.0f} %, must be at most {100 * LIMIT_90:.0f} %: {'good' if good else 'NOT good'}")
    if arguments.docs:
        where = f"Measured {document.get('when', document.get('created', ''))}"
        computer = document.get("computer") or (document.get("machine") if "cells" in document else None)
        if computer:
            where += f" on {machine_text(computer)}"
        fill_in(arguments.docs, f"{table(points)}\n\n{where}.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
