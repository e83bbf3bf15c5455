"""Every algorithm of a scenario measured in turn, each pinned by WEFT_ALGO, beside what the tuner picks without pins.

A row is a cell as plain data that JSON can hold:

  {"collective": "allreduce", "bytes": 1024, "us": {candidate: µs}, "predicted_us": {candidate: µs},
   "pick": algorithm, "best": candidate, "ratio": the pick's time over the best's, "left_out": [candidate],
   "again": {candidate: µs}, "alike": [candidate], "machines": [{…}]}

A candidate is an algorithm, or "algorithm/slice" where slices were asked for. Times, and what is predicted, are medians over
rounds. The library measures the machine anew for each ("machines"), since one that shares its host with others changes its
mood within minutes: neither side owes a difference to when it was measured. Whoever is the best of several owes that to
luck, too, so where others seem quicker than the pick they and it are measured again, and `best` and `ratio` are of these
launches alone ("again"). Whose plans are the pick's, step by step on every rank, as those of several algorithms are for two
ranks, is the pick by another name ("alike"), and not quicker than that.
"""
from __future__ import annotations

import json
import pathlib
import statistics
from typing import Any, Callable

from .cores import Cores, steadily
from .measure import CLUSTER_LIMIT_S, LAUNCH_LIMIT_S
from .progress import Progress
from .scenarios import COLLECTIVES, MIB, Scenario, UsageError, exact_size
from .systems import LaunchError, Weft, Work, execute

NAMES = {name.replace("_", ""): name for name in COLLECTIVES}  # as WEFT_ALGO writes them, and as the perf tools do
HOPELESS = 3        # times the best: not measured again, nor at longer messages
LONG = 4 * MIB      # from above this on a launch of its own, for the candidates that are not hopeless
LONG_ROWS = 10      # times as long are rows of Broadcasts: their root ends earlier by what its kernel and the line keep
SLICED = 256 << 10  # shorter messages are not cut
RIGHT = 1.1         # a pick within 10 % of the best is right

Settings = dict[str, str]


def collectives_of(text: str) -> list[str]:
    """Names with commas, written either way."""
    names = [name.strip().lower().replace("_", "") for name in text.split(",")]
    for name, written in zip(names, text.split(",")):
        if name not in NAMES:
            raise UsageError(f"--collectives: {written!r} is none of {', '.join(NAMES)}")
    return list(dict.fromkeys(names))


def algorithms_of(build: pathlib.Path, collective: str) -> list[str]:
    try:
        listed = json.loads(execute([build / "bin/weft_info", "--algorithms", "--json"]))["algorithms"]
    except (LaunchError, OSError) as error:
        raise UsageError(f"--build: {build}/bin/weft_info does not list algorithms: {error}") from None
    return next(list(found) for name, found in listed.items() if name.lower() == collective)


def candidates_of(names: list[str], collective: str, slices: list[str]) -> dict[str, Settings]:
    """What each candidate needs in the environment."""
    found = {name: {"WEFT_ALGO": f"{collective}={name}"} for name in names}
    for name in names:
        for text in slices:
            found[f"{name}/{text}"] = {**found[name], "WEFT_SLICE_BYTES": text}
    return found


class Cells:
    """The cells of one collective in one scenario, as they fill."""

    def __init__(self, collective: str, ranks: int, sizes: list[int]) -> None:
        self.collective = collective
        self.sizes = sorted({exact_size(NAMES[collective], size, ranks) for size in sizes})
        self.us: dict[int, dict[str, list[float]]] = {size: {} for size in self.sizes}
        self.predicted_us: dict[int, dict[str, list[float]]] = {size: {} for size in self.sizes}
        self.machines: list[dict[str, Any]] = []
        self.alike: dict[int, set[str]] = {size: set() for size in self.sizes}
        self.picks: dict[int, list[tuple[str, float]]] = {size: [] for size in self.sizes}  # algorithm, µs
        self.unfit: set[tuple[int, str]] = set()
        self.left_out: dict[int, set[str]] = {size: set() for size in self.sizes}
        self.again: dict[int, dict[str, list[float]]] = {size: {} for size in self.sizes}

    def groups(self) -> list[list[int]]:
        """Sizes of one launch."""
        parts = [[size for size in self.sizes if size <= LONG], [size for size in self.sizes if size > LONG]]
        return [part for part in parts if part]

    def hopeless(self, size: int, candidate: str) -> bool:
        medians = self.medians(size)
        return candidate in medians and medians[candidate] > HOPELESS * min(medians.values())

    def wanted(self, group: list[int], candidate: str | None) -> list[int]:
        """The sizes of a group at which a candidate is to be measured (again). The tuner's pick is wanted always."""
        if candidate is None:
            return group
        if "/" in candidate:
            group = [size for size in group if size >= SLICED]
        shorter = [size for size in self.sizes if group and size < group[0]]
        if shorter and group[0] > LONG and self.hopeless(shorter[-1], candidate):
            for size in group:
                self.left_out[size].add(candidate)
            return []
        return [size for size in group if (size, candidate) not in self.unfit and not self.hopeless(size, candidate)]

    def take(self, candidate: str | None, size: int, us: float, algorithm: str, predicted_us: float | None) -> None:
        if candidate is None:
            self.picks[size].append((algorithm, us))
        elif algorithm != candidate.split("/")[0]:
            self.unfit.add((size, candidate))
        else:
            self.us[size].setdefault(candidate, []).append(us)
            if predicted_us and predicted_us > 0:
                self.predicted_us[size].setdefault(candidate, []).append(predicted_us)

    def medians(self, size: int) -> dict[str, float]:
        return medians_of(self.us[size])

    def contested(self) -> dict[str, list[int]]:
        """Who is to be measured again, and at which sizes: the pick and whoever seems to be quicker."""
        found: dict[str, list[int]] = {}
        for size in self.sizes:
            if not self.us[size] or not self.picks[size]:
                continue
            pick = pick_of(self.picks[size])
            medians = with_pick(self.medians(size), self.picks[size])
            quicker = sorted(name for name, us in medians.items() if us < medians[pick] and name not in self.alike[size])
            for name in [pick, *quicker] if quicker else []:
                found.setdefault(name, []).append(size)
        return found

    def rows(self) -> list[dict[str, Any]]:
        return [row_of(self.collective, size, self.medians(size), medians_of(self.predicted_us[size]), self.picks[size],
                       sorted(self.left_out[size]), medians_of(self.again[size]), self.alike[size], self.machines)
                for size in self.sizes if self.us[size] and self.picks[size]]


def medians_of(us: dict[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in us.items()}


def pick_of(picks: list[tuple[str, float]]) -> str:
    return statistics.mode(name for name, _ in picks)


def with_pick(us: dict[str, float], picks: list[tuple[str, float]]) -> dict[str, float]:
    """The medians, with the pick's own where its algorithm was left out as hopeless, and is picked all the same."""
    pick = pick_of(picks)
    return us if pick in us else {**us, pick: statistics.median(time for name, time in picks if name == pick)}


def row_of(collective: str, size: int, us: dict[str, float], predicted_us: dict[str, float],
           picks: list[tuple[str, float]], left_out: list[str], again: dict[str, float] | None = None,
           alike: set[str] = frozenset(), machines: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    pick = pick_of(picks)
    us = with_pick(us, picks)
    times = again if again and pick in again and len(again) > 1 else us  # one of them alone decides nothing
    best = min((name for name in times if name not in alike), key=times.get)
    return {"collective": collective, "bytes": size, "us": us, "predicted_us": predicted_us, "pick": pick, "best": best,
            "ratio": times[pick] / times[best], "left_out": [name for name in left_out if name not in us],
            "again": again or {}, "alike": sorted(alike), "machines": machines or []}


class Check:
    """Measures scenarios cell by cell. `settings` are environment variables of every launch, `again` how many launches decide
    between a pick and what seems quicker."""

    def __init__(self, weft: Weft, rounds: int, time_ms: float, progress: Progress, settings: Settings | None = None,
                 slices: list[str] | None = None, algorithms: Callable[[str], list[str]] | None = None,
                 cores: Cores | None = None, again: int = 0) -> None:
        self.again = again
        self.weft, self.rounds, self.time_ms, self.progress, self.cores = weft, rounds, time_ms, progress, cores
        self.settings, self.slices = settings or {}, slices or []
        self.algorithms = algorithms or (lambda collective: algorithms_of(weft.bin.parent, collective))
        self.failures: list[str] = []

    def measure_machine(self, scenario: Scenario, cells: Cells) -> None:
        """Before the launches of a round, while the cores are where they will be then."""
        try:
            steadily(self.cores, lambda: self.weft.measure_machine(scenario))
        except LaunchError as error:
            self.failures.append(f"{scenario.name}, measuring the machine: {error}")
            return
        machine = self.weft.machine_measured(scenario)
        if machine is not None:
            cells.machines.append(machine)

    def launches(self, scenario: Scenario, collectives: list[str], sizes: list[int]) -> int:
        """How many there are at most."""
        def of_rounds(collective: str) -> int:
            candidates = len(candidates_of(self.algorithms(collective), collective, self.slices))
            groups = len(Cells(collective, scenario.ranks, sizes).groups())
            return (self.rounds * (candidates + 1) + self.again * candidates) * groups
        return sum(map(of_rounds, collectives))

    def rows(self, scenario: Scenario, collective: str, sizes: list[int]) -> list[dict[str, Any]]:
        cells = Cells(collective, scenario.ranks, sizes)
        candidates = {**candidates_of(self.algorithms(collective), collective, self.slices), None: {}}
        broken: set[tuple[int, str | None]] = set()
        for turn in range(self.rounds):
            self.measure_machine(scenario, cells)
            order = list(candidates)
            first = turn % len(order)  # nobody is always measured right after the same other
            for at, group in enumerate(cells.groups()):
                for name in order[first:] + order[:first]:
                    self.progress.show(f"{scenario.name}, {collective}, round {turn + 1} of {self.rounds}: "
                                       f"{name or 'the pick'}")
                    wanted = [] if (at, name) in broken else cells.wanted(group, name)
                    if wanted and not self.launch(scenario, cells, name, wanted, candidates[name]):
                        broken.add((at, name))
                    self.progress.step()
        self.decide(scenario, cells, candidates)
        return cells.rows()

    def decide(self, scenario: Scenario, cells: Cells, candidates: dict[str | None, Settings]) -> None:
        """Measures again who is contested."""
        self.find_alike(scenario, cells, candidates)
        contested = cells.contested()
        for turn in range(self.again):
            order = list(contested)
            first = turn % max(len(order), 1)
            for group in cells.groups():
                for name in order[first:] + order[:first]:
                    self.progress.show(f"{scenario.name}, {cells.collective}, deciding, {turn + 1} of {self.again}: {name}")
                    wanted = [size for size in contested[name] if size in group]
                    if wanted:
                        self.launch(scenario, cells, name, wanted, candidates[name], again=True)
                for _ in range(len(candidates) - 1):
                    self.progress.step()

    def find_alike(self, scenario: Scenario, cells: Cells, candidates: dict[str | None, Settings]) -> None:
        """Who has the pick's plans, of those that seem quicker. For longer messages slices would have to be known."""
        plans: dict[tuple[int, str], list[str]] = {}
        for name, sizes in cells.contested().items():
            for size in [size for size in sizes if size < SLICED]:
                pick = pick_of(cells.picks[size])
                try:
                    for one in (pick, name):
                        if (size, one) not in plans:
                            settings = {**self.settings, **candidates[one]}
                            plans[size, one] = self.weft.plans(scenario, cells.collective, size, settings)
                except LaunchError as error:
                    self.failures.append(f"{scenario.name}, {cells.collective}, the plans of {name}: {error}")
                    continue
                if name != pick and plans[size, name] == plans[size, pick]:
                    cells.alike[size].add(name)

    def launch(self, scenario: Scenario, cells: Cells, name: str | None, sizes: list[int], settings: Settings,
               again: bool = False) -> bool:
        limit_s = CLUSTER_LIMIT_S if scenario.is_cluster else LAUNCH_LIMIT_S
        time_ms = self.time_ms * (LONG_ROWS if cells.collective == "broadcast" else 1)
        work = Work(scenario, NAMES[cells.collective], tuple(sizes), time_ms, limit_s)
        try:
            rows = steadily(self.cores, lambda: self.weft.sweep(work, {"WEFT_RECORDER_DIR": "none", **self.settings,
                                                                       **settings}))
        except LaunchError as error:
            self.failures.append(f"{scenario.name}, {cells.collective}, {name or 'the pick'}: {error}")
            return False
        for row in rows:
            if again:
                cells.again[row.size].setdefault(name, []).append(row.us)
            else:
                cells.take(name, row.size, row.us, row.algorithm, row.predicted_us)
        return True
