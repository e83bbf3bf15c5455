"""The results of a run as one document: what JSON holds, and what tables and pages are made from."""
from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import platform
from typing import Any

from .document import read as read_document
from .scenarios import STARTUP, Scenario, UsageError, parse_scenario
from .summary import Cell, Startup, Verdict, cells_of, startups_of, verdict_of

VERSION = 1


@dataclasses.dataclass
class Section:
    scenario: Scenario
    cells: list[Cell]
    verdict: Verdict
    notes: list[str]


class Results:
    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.sections: list[Section] = []
        for name in document["scenarios"]:
            scenario = parse_scenario(name)
            cells = cells_of(scenario, document["launches"])
            self.sections.append(Section(scenario, cells, verdict_of(cells), document["notes"].get(name, [])))
        self.startup: list[Startup] = startups_of(document["startup"])
        self.startup_notes: list[str] = document["notes"].get(STARTUP, [])

    def save(self, path: pathlib.Path) -> None:
        """Besides what was measured, the cells as they come out of it, for whoever reads the file by program."""
        cells = {section.scenario.name: [cell_document(cell) for cell in section.cells] for section in self.sections}
        path.write_text(json.dumps({**self.document, "cells": cells}, indent=1) + "\n")


def cell_document(cell: Cell) -> dict[str, Any]:
    return {"collective": cell.collective, "bytes": cell.size, "best_peer": cell.best_peer, "speedup": cell.speedup,
            "share_of_line_rate": cell.line_share,
            "systems": {name: dataclasses.asdict(figure) for name, figure in cell.figures.items()}}


def load(path: pathlib.Path) -> Results:
    try:
        document = read_document(path)
        if document.get("version") != VERSION:
            raise UsageError(f"{path} is not a result of perf/compare.py (version {VERSION})")
        return Results(document)
    except UsageError as error:
        raise UsageError(f"--replot: {error}") from None
    except (AttributeError, KeyError, TypeError) as error:
        raise UsageError(f"--replot: {path} is not a whole result of perf/compare.py: {error}") from None


def machine() -> dict[str, Any]:
    cpu = next((line.split(":", 1)[1].strip() for line in read("/proc/cpuinfo").splitlines()
                if line.startswith("model name")), platform.machine())
    memory = next((int(line.split()[1]) / (1 << 20) for line in read("/proc/meminfo").splitlines()
                   if line.startswith("MemTotal:")), 0)
    system = next((line.split("=", 1)[1].strip('"') for line in read("/etc/os-release").splitlines()
                   if line.startswith("PRETTY_NAME=")), platform.system())
    return {"cpu": cpu, "cores": os.cpu_count(), "memory_gib": round(memory, 1), "kernel": platform.release(),
            "system": system, "load_at_start": round(os.getloadavg()[0], 2)}


def machine_text(machine: dict[str, Any]) -> str:
    return (f"{machine['cores']} cores of {machine['cpu']}, {machine['memory_gib']} GiB, Linux {machine['kernel']}, "
            f"{machine['system']}; load {machine['load_at_start']} when the run began")


def read(path: str) -> str:
    try:
        return pathlib.Path(path).read_text()
    except OSError:
        return ""
