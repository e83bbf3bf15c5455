#!/usr/bin/env python3
"""Does the tuner pick the right algorithm? Measures every candidate, and compares picks and predictions with that.

  perf/tuner_check.py                                       every scenario and cell of perf/compare.py; takes hours
  perf/tuner_check.py --scenarios tcp2 --json tcp2.json     one of them
  perf/tuner_check.py --scenarios shm2 --collectives allreduce --sizes 8,64K,4M --rounds 1
  perf/tuner_check.py --measured shm2.json tcp2.json --docs docs/results/data/predicted-and-measured.md      measures nothing

Scenarios are those of perf/compare.py: shmN, tcpN, clusterN, clusterNxR, clusterN-1ms; its --help tells them apart. Every
algorithm is pinned in turn by WEFT_ALGO, launches of all algorithms alternating; a cell's time is the median over rounds
of what perf/compare.py measures, too. The library measures the machine anew for each round, since one that shares its host
changes its mood within minutes. A candidate that takes over 3 times the best in the first round is not measured again, nor
above 4 MiB. `pick` is what the tuner uses without pins, and a pick is right when its algorithm's time is within 10 % of the
best candidate's. Where others seem quicker than the pick, they and the pick are measured again, --again times, and these
launches alone decide: the best of several candidates that take equally long owes its time to luck.
Below 256 KiB candidates whose plans are the pick's step by step, as several are for two ranks, count as the pick.
`error` is |predicted - measured| / measured, over all candidates and for the picks alone.
Slices count as candidates with --slices: each algorithm is then also measured with each of them.

--docs replaces the table between the lines <!-- picks: perf/tuner_check.py --> and <!-- end --> of a page. Exit code: 0; 1
when less than 95 % of the picks are right, or a launch failed; 2 when the command line or a file is wrong.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import time

from comparison.candidates import RIGHT, Check, collectives_of
from comparison.cores import cores_of
from comparison.marked import fill_in
from comparison.measured import (Document, add_options, check_options, joined, load, origin, own_sizes, percentile,
                                 save, scenarios_of)
from comparison.measure import Cluster
from comparison.progress import Progress
from comparison.results import machine as this_computer
from comparison.scenarios import UsageError, size_text
from comparison.systems import LaunchError, Weft
from comparison.table import rows_text

TOOL = "perf/tuner_check.py"
GOAL = 0.95  # of all picks


def summary(rows: list[dict]) -> dict:
    ratios = [row["ratio"] for row in rows if row["ratio"]]
    errors, pick_errors = [], []
    for row in rows:
        for name, prediction in row["predicted_us"].items():
            error = abs(prediction - row["us"][name]) / row["us"][name]
            errors.append(error)
            if name == row["pick"]:
                pick_errors.append(error)
    return {"cells": len(ratios), "right": sum(ratio <= RIGHT for ratio in ratios),
            "error_median": percentile(errors, 0.5), "error_90": percentile(errors, 0.9),
            "pick_error_median": percentile(pick_errors, 0.5), "pick_error_90": percentile(pick_errors, 0.9)}


def cells_text(rows: list[dict]) -> str:
    lines = []
    for row in rows:
        candidates = ", ".join(
            f"{name} {us:.4g}" + (f" ({row['predicted_us'][name]:.4g})" if name in row["predicted_us"] else "")
            for name, us in sorted(row["us"].items(), key=lambda item: item[1]))
        ratio = f"{row['ratio']:.2f}" if row["ratio"] else "-"
        lines.append([row["collective"], size_text(row["bytes"]), row["pick"], row["best"], ratio, candidates])
    return rows_text(["collective", "size", "pick", "best", "pick / best", "every candidate: measured (predicted), µs"],
                     lines)


def picks_row(scenario: str, collective: str, rows: list[dict]) -> list[str]:
    counted = [row for row in rows if row["ratio"]]
    right = sum(row["ratio"] <= RIGHT for row in counted)
    worst = max(counted, key=lambda row: row["ratio"], default=None)
    told = "-"
    if worst is not None and worst["ratio"] > 1:
        where = worst["collective"] + " of " if collective == "all" else ""
        told = (f"{where}{size_text(worst['bytes'])}: {worst['pick']} for {worst['best']}, "
                f"{100 * (worst['ratio'] - 1):.0f} % longer")
    return [scenario, collective, str(len(counted)), str(right), told]


def picks_text(scenarios: dict[str, list[dict]]) -> str:
    """A line for each collective of each scenario, and one for all."""
    lines = []
    for scenario, rows in scenarios.items():
        for collective in dict.fromkeys(row["collective"] for row in rows):
            lines.append(picks_row(scenario, collective, [row for row in rows if row["collective"] == collective]))
    lines.append(picks_row("all", "all", [row for rows in scenarios.values() for row in rows]))
    return rows_text(["scenario", "collective", "cells", "picks within 10 % of the best", "worst pick"], lines).rstrip()


def sentence(name: str, result: dict) -> str:
    def share(value: float | None) -> str:
        return "-" if value is None else f"{100 * value:.0f} %"
    return (f"{name}: {result['right']} of {result['cells']} picks within 10 % of the best; error of predictions "
            f"{share(result['error_median'])} (median), {share(result['error_90'])} (90th percentile); of the picks' "
            f"{share(result['pick_error_median'])}, {share(result['pick_error_90'])}")


def measure(arguments: argparse.Namespace) -> tuple[Document, list[str]]:
    """What was measured, and a sentence for each launch that failed."""
    check_options(arguments)
    if arguments.again is not None and arguments.again < 0:
        raise UsageError(f"--again: is {arguments.again}, must be at least 0")
    scenarios = scenarios_of(arguments.scenarios)
    collectives = collectives_of(arguments.collectives)
    weft = Weft(arguments.build.resolve())
    progress = Progress(1)
    check = Check(weft, arguments.rounds, arguments.time_ms, progress,
                  slices=[text for text in arguments.slices.split(",") if text],
                  again=2 * arguments.rounds if arguments.again is None else arguments.again,
                  cores=cores_of(arguments.build.resolve(), arguments.cores_apart))
    sizes = {scenario.name: own_sizes(scenario, arguments) for scenario in scenarios}
    progress.total = sum(check.launches(scenario, collectives, sizes[scenario.name]) for scenario in scenarios)
    document = Document({"when": time.strftime("%F %T"), "computer": this_computer(), "scenarios": {}})
    for scenario in scenarios:
        rows = []
        with Cluster(scenario):
            for collective in collectives:
                rows += check.rows(scenario, collective, sizes[scenario.name])
        document["scenarios"][scenario.name] = {"rows": rows, "summary": summary(rows)}
        if check.cores:
            document["cores"] = check.cores.sentence()
        if arguments.json:  # what is measured is kept, should a later scenario fail
            save(arguments.json, document)
    progress.close()
    return document, check.failures


def parse_arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add_options(add, of="candidate", measured="show what --json has written")
    add("--again", type=int, metavar="N", help="launches that decide between a pick and what seems quicker; by default twice --rounds")
    add("--slices", default="", help="values of WEFT_SLICE_BYTES to try as well, such as 128K,2M")
    return parser.parse_args(words)


def show(documents: list[Document], arguments: argparse.Namespace) -> bool:
    """Prints tables and fills in the page; whether the goal is reached."""
    scenarios = joined(documents)
    for name, rows in scenarios.items():
        print(f"### {name}\n\n{cells_text(rows)}\n{sentence(name, summary(rows))}\n")
    result = summary([row for rows in scenarios.values() for row in rows])
    if not result["cells"]:
        raise UsageError("nothing was measured")
    good = result["right"] >= GOAL * result["cells"]
    print(f"{picks_text(scenarios)}\n\n{sentence('all', result)}. At least {100 * GOAL:.0f} % of the picks must be within "
          f"10 %: {'good' if good else 'NOT good'}")
    if arguments.docs:
        where = "\n".join(origin(document) for document in documents)
        fill_in(arguments.docs, TOOL, {"picks": f"{picks_text(scenarios)}\n\n{where}"})
    return good


def main(words: list[str]) -> int:
    arguments = parse_arguments(words)
    os.environ.setdefault("CLUSTER", "weftcmp")
    failures: list[str] = []
    try:
        if arguments.measured:
            documents = [load(path, needs="pick") for path in arguments.measured]
        else:
            document, failures = measure(arguments)
            documents = [document]
        good = show(documents, arguments)
    except (UsageError, LaunchError) as error:
        for failure in failures:
            print(f"tuner_check.py: {failure}", file=sys.stderr)
        print(f"tuner_check.py: {error}", file=sys.stderr)
        return 2
    for failure in failures:
        print(f"tuner_check.py: {failure}", file=sys.stderr)
    return 0 if good and not failures else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
