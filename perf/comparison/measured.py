"""Files of measurements: what perf/tuner_check.py and perf/validate.py write and read, and their common options.

  {"when": date, "computer": {…}, "scenarios": {name: {"rows": [row]}}}

A row is that of candidates.py. Its "machines" are what the library measured before each round, and all that a simulator may
be told.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
from typing import Any, Callable

from .cores import add_cores_option, check_cores_option
from .document import read
from .results import machine_text
from .scenarios import (COLLECTIVES, DEFAULT, STARTUP, Scenario, UsageError, parse_scenario, parse_size,
                        size_text)
from .systems import ROOT

Document = dict[str, Any]


def percentile(values: list[float], share: float) -> float | None:
    return sorted(values)[min(int(share * len(values)), len(values) - 1)] if values else None


def scenarios_of(text: str) -> list[Scenario]:
    names = list(dict.fromkeys(text.split(",")))
    if STARTUP in names:
        raise UsageError(f"--scenarios: {STARTUP} has no sizes; perf/compare.py measures it")
    scenarios = [parse_scenario(name) for name in names]
    if os.geteuid() != 0 and any(scenario.is_cluster for scenario in scenarios):
        raise UsageError("--scenarios: making the network namespaces of a cluster needs root")
    return scenarios


def own_sizes(scenario: Scenario, arguments: argparse.Namespace) -> list[int]:
    """Those of --sizes, or those of the scenario's cells; every other one of them with --quick."""
    sizes = scenario.sizes()
    if arguments.sizes:
        sizes = sorted({parse_size("--sizes", text) for text in arguments.sizes.split(",")})
    return sizes[::2] if arguments.quick else sizes


def add_options(add: Callable[..., Any], of: str, measured: str) -> None:
    """What both tools can be asked: they launch each `of`, and with --measured do that instead."""
    names = ",".join(name for name in DEFAULT if name != STARTUP)
    add("--build", type=pathlib.Path, default=ROOT / "build", help="build folder (build)")
    add("--scenarios", default=names, help=f"names with commas ({names})")
    add("--collectives", default=",".join(COLLECTIVES), help=f"names with commas ({','.join(COLLECTIVES)})")
    add("--sizes", help="sizes with commas: 8,1K,4M (those of perf/compare.py)")
    add("--quick", action="store_true", help="every other size")
    add("--rounds", type=int, default=3, help=f"launches of each {of} (3)")
    add("--time-ms", type=float, default=50, help="about how long each row is measured, of Broadcasts ten times as long (50)")
    add_cores_option(add)
    add("--json", type=pathlib.Path, help="write what was measured to this file")
    add("--measured", type=pathlib.Path, nargs="+", metavar="JSON", help=f"measure nothing: {measured}")
    add("--docs", type=pathlib.Path, metavar="PAGE", help="replace the table in this page")


def check_options(arguments: argparse.Namespace) -> None:
    check_cores_option(arguments)
    if arguments.rounds < 1:
        raise UsageError(f"--rounds: is {arguments.rounds}, must be at least 1")
    if not arguments.time_ms > 0:
        raise UsageError(f"--time-ms: is {arguments.time_ms:g}, must be more than 0")
    if arguments.json and not arguments.json.absolute().parent.is_dir():
        raise UsageError(f"--json: there is no folder {arguments.json.absolute().parent}")
    if not (arguments.build / "bin/weft_run").exists():
        raise UsageError(f"--build: there is no bin/weft_run in {arguments.build.resolve()}; make builds it")


def save(path: pathlib.Path, document: Document) -> None:
    path.write_text(json.dumps(document, indent=1) + "\n")


def load(path: pathlib.Path, needs: str = "us") -> Document:
    """A file of measurements, all of whose rows say what was measured and have the key `needs`."""
    document = read(path)
    scenarios = document.get("scenarios")
    rows = [row for found in scenarios.values() for row in found["rows"]] if is_whole(scenarios) else None
    keys = {"collective", "bytes", needs}
    if rows is None or not all(isinstance(row, dict) and keys <= row.keys() for row in rows):
        raise UsageError(f"{path} is no whole result of perf/tuner_check.py")
    for name in scenarios:
        parse_scenario(name)
    return document


def joined(documents: list[Document]) -> dict[str, list[dict[str, Any]]]:
    """The rows of all files by scenario. UsageError when two files have the same cell: which is meant?"""
    scenarios: dict[str, list[dict[str, Any]]] = {}
    seen = set()
    for document in documents:
        for name, found in document["scenarios"].items():
            for row in found["rows"]:
                cell = (name, row["collective"], row["bytes"])
                if cell in seen:
                    raise UsageError(f"--measured: two files have {row['collective']} of {size_text(row['bytes'])} in "
                                     f"{name}; leave one out")
                seen.add(cell)
            scenarios.setdefault(name, []).extend(found["rows"])
    return scenarios


def origin(document: Document) -> str:
    """Where and when a file's scenarios were measured, as an item of a list."""
    computer = document.get("computer")
    where = f" on {machine_text(computer)}" if computer else ""
    cores = f" {document['cores']}" if "cores" in document else ""
    return f"* {', '.join(document['scenarios'])}: measured {document.get('when', 'at a time not told')}{where}.{cores}"


def is_whole(scenarios: Any) -> bool:
    return isinstance(scenarios, dict) and all(isinstance(found, dict) and isinstance(found.get("rows"), list)
                                               for found in scenarios.values())
