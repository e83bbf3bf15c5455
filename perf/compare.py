#!/usr/bin/env python3
"""Weft beside its peers, in alternation, in one run: a table in Markdown, JSON, and a page with charts.

  perf/compare.py                                    everything; takes hours
  perf/compare.py --minutes 10 --html bench.html     what fits into ten minutes
  perf/compare.py --scenarios shm2,tcp2 --collectives all_reduce --max 4M --rounds 5
  perf/compare.py --replot bench.json --html bench.html

Scenarios: shmN and tcpN are N ranks on this machine, over shared memory or TCP. clusterN, clusterNxR and clusterN-1ms
are N nodes of one rank (of R ranks, with 1 ms of added latency) as network namespaces with 500 Mbit/s each; they need
root. startup is the time that ranks take to come together. Peers are Open MPI, MPICH and Gloo; scripts/deps.sh --peers
installs them, and those that are missing are left out.

A cell is the median over rounds of the mean time of back-to-back blocking calls; every launch checks its results. A host
moves a virtual machine's CPUs; launches begin and end while a cache line takes as long between them as it mostly does. A
speed-up is the best peer's time over Weft's, so above 1 Weft is faster. Exit code: 0; 1 when a launch of Weft failed;
2 when the command line is wrong.
"""
from __future__ import annotations

import argparse
import datetime
import os
import pathlib
import shlex
import sys
import time

from comparison import results as results_of
from comparison.cores import add_cores_option, check_cores_option, cores_of
from comparison.measure import STARTUPS, Run, launches_planned
from comparison.page import page_of
from comparison.progress import Progress
from comparison.scenarios import (COLLECTIVES, DEFAULT, STARTUP, Scenario, UsageError, parse_scenario, parse_size)
from comparison.schedule import Plan, plan
from comparison.systems import ROOT, find_systems, versions_of
from comparison.table import text_of

STARTUP_ROUND_S = 40  # of all systems, roughly


def parse_arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--build", type=pathlib.Path, default=ROOT / "build", help="build folder (build)")
    add("--scenarios", default=",".join(DEFAULT), help=f"names with commas ({','.join(DEFAULT)})")
    add("--collectives", default=",".join(COLLECTIVES), help=f"names with commas ({','.join(COLLECTIVES)})")
    add("--peers", help="openmpi, mpich, gloo, with commas; none for Weft alone (those that are installed)")
    add("--sizes", help="sizes with commas: 8,1K,4M (eight from 8 to 256M, on clusters to 16M)")
    add("--max", help="leave out larger sizes")
    add("--rounds", type=int, default=3, help="launches of each system (3)")
    add("--time-ms", type=float, default=50, help="about how long each row is measured (50)")
    add_cores_option(add)
    add("--minutes", type=float, help="time for everything: leaves out rounds, then the largest sizes")
    add("--json", type=pathlib.Path, help="write the results to this file")
    add("--html", type=pathlib.Path, help="write a page with charts to this file")
    add("--replot", type=pathlib.Path, metavar="JSON", help="measure nothing: show the results of an earlier --json")
    return parser.parse_args(words)


def collectives_of(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in COLLECTIVES:
            raise UsageError(f"--collectives: {name!r} is none of {', '.join(COLLECTIVES)}")
    return names


def peers_of(text: str | None) -> list[str] | None:
    if text is None:
        return None
    names = [] if text == "none" else text.split(",")
    for name in names:
        if name not in ("openmpi", "mpich", "gloo"):
            raise UsageError(f"--peers: {name!r} is none of openmpi, mpich, gloo")
    return names


def sizes_of(scenario: Scenario, arguments: argparse.Namespace) -> list[int]:
    sizes = scenario.sizes()
    if arguments.sizes:
        sizes = sorted({parse_size("--sizes", text) for text in arguments.sizes.split(",")})
    if arguments.max:
        limit = parse_size("--max", arguments.max)
        sizes = [size for size in sizes if size <= limit]
    if not sizes:
        raise UsageError(f"--max: {arguments.max} leaves no size")
    return sizes


def check(arguments: argparse.Namespace) -> None:
    if arguments.rounds < 1:
        raise UsageError(f"--rounds: is {arguments.rounds}, must be at least 1")
    if not arguments.time_ms > 0:
        raise UsageError(f"--time-ms: is {arguments.time_ms:g}, must be more than 0")
    check_cores_option(arguments)
    if arguments.minutes is not None and not arguments.minutes > 0:
        raise UsageError(f"--minutes: is {arguments.minutes:g}, must be more than 0")
    for option, path in (("--json", arguments.json), ("--html", arguments.html)):
        if path and not path.absolute().parent.is_dir():
            raise UsageError(f"{option}: there is no folder {path.absolute().parent}")


def measure(arguments: argparse.Namespace) -> tuple[results_of.Results, bool]:
    """The results, and whether every launch of Weft went well."""
    names = list(dict.fromkeys(arguments.scenarios.split(",")))
    scenarios = [parse_scenario(name) for name in names if name != STARTUP]
    collectives = collectives_of(arguments.collectives)
    wanted = peers_of(arguments.peers)
    all_sizes = {scenario.name: sizes_of(scenario, arguments) for scenario in scenarios}
    build = arguments.build.resolve()
    if not (build / "bin/weft_run").exists():
        raise UsageError(f"--build: there is no bin/weft_run in {build}; make builds it")
    general = []
    if os.geteuid() != 0 and any(s.is_cluster for s in scenarios):
        scenarios = [s for s in scenarios if not s.is_cluster]
        general.append("Clusters are left out: making network namespaces needs root.")
    systems, missing = find_systems(build, wanted)
    general += missing
    for sentence in general:
        print(sentence, file=sys.stderr)

    machine = results_of.machine()
    startup_rounds = 0 if STARTUP not in names else 1 if arguments.minutes else arguments.rounds
    budget_s = None if arguments.minutes is None else arguments.minutes * 60 - startup_rounds * STARTUP_ROUND_S
    run, plans = run_of(arguments, scenarios, systems, collectives, all_sizes, startup_rounds, budget_s)
    run.progress.close()
    if run.cores and run.cores.launches:
        general.append(run.cores.sentence())
    if general:
        run.notes[""] = general
    document = {"version": results_of.VERSION, "created": f"{datetime.datetime.now():%Y-%m-%d %H:%M}",
                "command": shlex.join(["perf/compare.py", *sys.argv[1:]]), "machine": machine,
                "versions": versions_of(systems), "scenarios": plans, "notes": run.notes, "launches": run.launches,
                "startup": run.startup}
    return results_of.Results(document), not run.weft_failed


def run_of(arguments: argparse.Namespace, scenarios: list[Scenario], systems: list, collectives: list[str],
           all_sizes: dict[str, list[int]], startup_rounds: int, budget_s: float | None) -> tuple[Run, list[str]]:
    def plan_of(scenario: Scenario, share_s: float | None) -> Plan:
        return plan(scenario, len(systems), collectives, all_sizes[scenario.name], arguments.rounds, arguments.time_ms,
                    share_s)

    begin = time.monotonic()
    share_s = budget_s / max(1, len(scenarios)) if budget_s is not None else None
    drafts = [plan_of(scenario, share_s) for scenario in scenarios]
    progress = Progress(launches_planned(drafts, collectives, len(systems), startup_rounds))
    run = Run(systems, arguments.time_ms, progress, cores_of(arguments.build.resolve(), arguments.cores_apart))
    for at, scenario in enumerate(scenarios):
        if budget_s is not None:  # what the ones before have left or used up
            share_s = max(1.0, budget_s - (time.monotonic() - begin)) / (len(scenarios) - at)
        final = plan_of(scenario, share_s)
        progress.total += (final.rounds - drafts[at].rounds) * len(collectives) * len(systems)
        run.scenario(final, collectives)
    run.startups(startup_rounds)
    return run, [scenario.name for scenario in scenarios]


def main(words: list[str]) -> int:
    arguments = parse_arguments(words)
    os.environ.setdefault("WEFT_RECORDER_DIR", "none")
    os.environ.setdefault("CLUSTER", "weftcmp")
    try:
        check(arguments)
        results, good = (results_of.load(arguments.replot), True) if arguments.replot else measure(arguments)
    except UsageError as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        results.save(arguments.json)
    if arguments.html:
        arguments.html.write_text(page_of(results))
    print(text_of(results))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
