"""Carries out the plans: us and the peers in alternation, several launches each, with an eye on the clock."""
from __future__ import annotations

import dataclasses
import time

from .cores import Cores, steadily
from .progress import Progress
from .scenarios import STARTUP, Scenario, UsageError, size_text
from .schedule import Plan
from .systems import CLUSTER, LaunchError, Weft, Work, execute, oversubscribed

LAUNCH_LIMIT_S = 60
CLUSTER_LIMIT_S = 120
# MPICH polls without giving way: with more ranks than cores every call takes milliseconds, however small.
CROWDED_LIMIT_S = 15
CROWDED_TIME_MS = 10
STARTUP_LIMIT_S = 90
STARTUPS = ((2, False), (8, False), (64, False), (64, True), (256, True))  # ranks, and whether they are threads


class Run:
    """Everything measured so far, as plain data that JSON can hold."""

    def __init__(self, systems: list, time_ms: float, progress: Progress, cores: Cores | None = None) -> None:
        self.systems, self.time_ms, self.progress, self.cores = systems, time_ms, progress, cores
        self.launches: list[dict] = []
        self.startup: list[dict] = []
        self.notes: dict[str, list[str]] = {}  # by scenario
        self.weft_failed = False

    def note(self, scenario: str, sentence: str) -> None:
        notes = self.notes.setdefault(scenario, [])
        if sentence and sentence not in notes:
            notes.append(sentence)

    def scenario(self, plan: Plan, collectives: list[str]) -> None:
        """Measures one scenario; a cluster stands while it runs."""
        self.note(plan.scenario.name, plan.note)
        planned = plan.rounds * len(collectives) * len(self.systems)
        before = self.progress.done
        try:
            with Cluster(plan.scenario):
                self.measure_machine(plan.scenario)
                self.rounds(plan, collectives)
        except LaunchError as error:
            self.note(plan.scenario.name, f"Not measured: {error}.")
        self.progress.done = before + planned

    def measure_machine(self, scenario: Scenario) -> None:
        """Before the first launch that counts, while the cores are where they will be then."""
        for system in self.systems:
            if system.name != Weft.name:
                continue
            try:
                steadily(self.cores, lambda: system.measure_machine(scenario))
            except LaunchError as error:
                self.note(scenario.name, f"{Weft.name} did not measure the machine: {error}.")
                self.weft_failed = True

    def rounds(self, plan: Plan, collectives: list[str]) -> None:
        begin = time.monotonic()
        name = plan.scenario.name
        longest_s = 0.0
        for number in range(plan.rounds):
            elapsed_s = time.monotonic() - begin
            if number > 0 and plan.budget_s is not None and elapsed_s + longest_s > plan.budget_s:
                self.note(name, f"Its time was over after {number} of {plan.rounds} rounds.")
                return
            for collective in collectives:
                over = plan.budget_s is not None and time.monotonic() - begin > 2 * plan.budget_s
                if over:
                    self.note(name, f"Its time was over before {collective} in round {number + 1}.")
                    self.progress.step(len(self.systems))
                    continue
                first = number % len(self.systems)  # nobody is always measured right after the same other
                for system in self.systems[first:] + self.systems[:first]:
                    self.progress.show(f"{name}, round {number + 1} of {plan.rounds}: {collective}, {system.name}")
                    self.launch(plan, number, collective, system)
                    self.progress.step()
            longest_s = max(longest_s, time.monotonic() - begin - elapsed_s)

    def launch(self, plan: Plan, number: int, collective: str, system) -> None:
        scenario = plan.scenario
        key = f"{system.name}, {collective}: "
        if system.name != Weft.name and any(n.startswith(key) and n.endswith("not tried again.") for n in
                                            self.notes.get(scenario.name, [])):
            return
        crowded = system.name == "MPICH" and oversubscribed(scenario) and not scenario.is_cluster
        limit_s = CROWDED_LIMIT_S if crowded else CLUSTER_LIMIT_S if scenario.is_cluster else LAUNCH_LIMIT_S
        time_ms = min(self.time_ms, CROWDED_TIME_MS) if crowded else self.time_ms
        if crowded:
            self.note(scenario.name, f"MPICH polls without giving way, so with more ranks than cores its rows get "
                                     f"{time_ms:g} ms and its launches {limit_s} s.")
        work = Work(scenario, collective, plan.sizes, time_ms, limit_s)
        try:
            rows = steadily(self.cores, lambda: system.sweep(work))
        except LaunchError as error:
            self.note(scenario.name, f"{key}{error}" + ("." if system.name == Weft.name else "; not tried again."))
            self.weft_failed |= system.name == Weft.name
            return
        measured = {row.size for row in rows}
        missing = [size for size in dict.fromkeys(work.exact().values()) if size not in measured]
        if missing:
            self.note(scenario.name, f"{key}no time for {size_text(missing[0])} and above in {limit_s} s.")
        self.launches.append({"scenario": scenario.name, "collective": collective, "system": system.name,
                              "round": number, "rows": [dataclasses.asdict(row) for row in rows]})

    def startups(self, rounds: int) -> None:
        for number in range(rounds):
            for ranks, threads in STARTUPS:
                for system in self.systems:
                    self.progress.show(f"start-up, round {number + 1} of {rounds}: {ranks} ranks, {system.name}")
                    self.progress.step()
                    if not threads or system.threads:
                        self.one_startup(ranks, threads, system)

    def one_startup(self, ranks: int, threads: bool, system) -> None:
        kind = "threads of one process" if threads else "processes"
        key = f"{system.name}, {ranks} {kind}: "
        if any(note.startswith(key) for note in self.notes.get(STARTUP, [])):
            return
        scenario = Scenario(STARTUP, "shm", ranks)
        begin = time.monotonic()
        try:
            us = system.startup(scenario, threads, STARTUP_LIMIT_S)
        except LaunchError as error:
            self.note(STARTUP, f"{key}{error}.")
            self.weft_failed |= system.name == Weft.name
            return
        self.startup.append({"ranks": ranks, "threads": threads, "system": system.name, "us": us,
                             "command_us": (time.monotonic() - begin) * 1e6})


class Cluster:
    """The nodes of a scenario, up for as long as this is entered; nothing for one machine."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario

    def __enter__(self) -> None:
        if not self.scenario.is_cluster:
            return
        execute([CLUSTER, "down"])
        words = [CLUSTER, "up", self.scenario.nodes, "500mbit"]
        if self.scenario.latency_ms:
            words.append(f"{self.scenario.latency_ms:g}ms")
        try:
            execute(words)
        except LaunchError:
            execute([CLUSTER, "down"])
            raise

    def __exit__(self, *error: object) -> None:
        if self.scenario.is_cluster:
            execute([CLUSTER, "down"])


def launches_planned(plans: list[Plan], collectives: list[str], systems: int, startup_rounds: int) -> int:
    if not plans and not startup_rounds:
        raise UsageError("--scenarios: there is nothing to measure")
    return systems * (sum(p.rounds for p in plans) * len(collectives) + startup_rounds * len(STARTUPS))
