"""How far apart two CPUs are. A virtual machine's host moves them about, within a second: a cache line takes 25 ns between cores
that share a cache, 160 between others, and 10 between the threads of one core, which then computes at half its rate. Launches
of different systems, and of measurements that are to predict one another, say little unless they found the same.
"""
from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import sys
import time
from typing import Any, Callable, Optional, TypeVar

from .scenarios import UsageError
from .systems import LaunchError, execute

T = TypeVar("T")

LOOKS = 15       # for what is usual
PAUSE_S = 0.1    # between two looks
PATIENCE_S = 5   # until what has become of the cores is usual
MOVED = 1.6      # times as far apart, or as near: other cores
RETRIES = 2      # of a launch during which they moved
LOOK_LIMIT_S = 5


class Cores:
    """CPUs 0 and 1, which two ranks are bound to. A look that fails is the last one: launches then count as they are."""

    def __init__(self, look: Callable[[], float], apart_ns: Optional[float] = None, pause_s: float = PAUSE_S,
                 patience_s: float = PATIENCE_S) -> None:
        self.look, self.pause_s, self.patience_s = look, pause_s, patience_s
        self.trouble = ""  # why nobody looks any more
        self.given = apart_ns is not None
        self.usual: list[float] = []  # ns, the last one now
        self.launches = self.repeated = self.restless = 0
        found = self.looks(1 if self.given else LOOKS)
        if found:
            self.usual.append(apart_ns or statistics.median(found))

    def looks(self, count: int) -> list[float]:
        """Fewer where looking fails."""
        found = []
        for at in range(count):
            if at > 0:
                time.sleep(self.pause_s)
            try:
                found.append(self.look())
            except (LaunchError, OSError, ValueError) as error:
                self.trouble = str(error)
                break
        return found

    def are_usual(self) -> bool:
        now_ns = [] if self.trouble else self.looks(1)
        return not now_ns or self.usual[-1] / MOVED < now_ns[0] < self.usual[-1] * MOVED

    def wait(self) -> None:
        """Until they are as far apart as usual. If they stay elsewhere that is usual from then on, unless the user has said
        what is."""
        end = time.monotonic() + self.patience_s
        while not self.are_usual():
            if time.monotonic() > end:
                found = [] if self.given else self.looks(LOOKS)
                if found:
                    self.usual.append(statistics.median(found))
                return
            time.sleep(self.pause_s)

    def steadily(self, launch: Callable[[], T]) -> T:
        """What a launch returns that began and ended with the cores where they usually are; of the last try, if none did."""
        self.launches += 1
        for attempt in range(1 + RETRIES):
            self.wait()
            found = launch()
            if self.are_usual():
                break
            if attempt < RETRIES:
                self.repeated += 1
            else:
                self.restless += 1
        return found

    def sentence(self) -> str:
        if self.trouble:
            return f"Whether the cores moved is not known: {self.trouble}."
        return (f"A cache line took about {', then '.join(f'{ns:.0f}' for ns in self.usual)} ns between the two cores; of "
                f"{self.launches} launches {self.repeated} were repeated because the cores had moved meanwhile, and "
                f"{self.restless} stand although they had.")


def cores_of(build: pathlib.Path, apart_ns: Optional[float]) -> Optional[Cores]:
    """None, and a line that says why, where these CPUs cannot be looked at."""
    bench = build / "bin/shm_bench"
    trouble = ""
    if not {0, 1} <= os.sched_getaffinity(0):
        trouble = "CPUs 0 and 1 are not both there for this process"
    elif not bench.exists():
        trouble = f"there is no {bench}"
    else:
        cores = Cores(lambda: float(execute([bench, "--apart"], timeout_s=LOOK_LIMIT_S)), apart_ns)
        if cores.usual:
            return cores
        trouble = cores.trouble
    print(f"Nobody looks whether the cores move: {trouble}.", file=sys.stderr)
    return None


def add_cores_option(add: Callable[..., Any]) -> None:
    add("--cores-apart", type=float, metavar="NS", help="what a cache line takes between CPUs 0 and 1 while a launch counts (the "
        "median of what it takes at the beginning)")


def check_cores_option(arguments: argparse.Namespace) -> None:
    if arguments.cores_apart is not None and not arguments.cores_apart > 0:
        raise UsageError(f"--cores-apart: is {arguments.cores_apart:g}, must be more than 0")


def steadily(cores: Optional[Cores], launch: Callable[[], T]) -> T:
    return cores.steadily(launch) if cores else launch()
