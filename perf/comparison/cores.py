"""How far apart two CPUs are. A virtual machine's host moves them about, within a second: a cache line takes 25 ns between cores
that share a cache, 160 between others, and 10 between the threads of one core, which then computes at half its rate. Launches
of different systems, and of measurements that are to predict one another, say little unless they found the same.
"""
from __future__ import annotations

import argparse
import os
import pathlib
import statistics
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


class Cores:
    """CPUs 0 and 1, which two ranks are bound to."""

    def __init__(self, look: Callable[[], float], apart_ns: Optional[float] = None, pause_s: float = PAUSE_S,
                 patience_s: float = PATIENCE_S) -> None:
        self.look, self.pause_s, self.patience_s = look, pause_s, patience_s
        self.usual_ns = apart_ns or statistics.median(self.looks(LOOKS))
        self.given = apart_ns is not None
        self.launches = self.repeated = self.restless = 0

    def looks(self, count: int) -> list[float]:
        found = []
        for _ in range(count):
            found.append(self.look())
            time.sleep(self.pause_s)
        return found

    def are_usual(self) -> bool:
        now_ns = self.look()
        return self.usual_ns / MOVED < now_ns < self.usual_ns * MOVED

    def wait(self) -> None:
        """Until they are as far apart as usual. If they stay elsewhere that is usual from then on, unless the user has said
        what is."""
        end = time.monotonic() + self.patience_s
        while not self.are_usual():
            if time.monotonic() > end:
                if not self.given:
                    self.usual_ns = statistics.median(self.looks(LOOKS))
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
        return (f"A cache line took about {self.usual_ns:.0f} ns between the two cores; of {self.launches} launches "
                f"{self.repeated} were repeated because the cores had moved meanwhile, and {self.restless} stand although "
                "they had.")


def cores_of(build: pathlib.Path, apart_ns: Optional[float]) -> Optional[Cores]:
    """None where there is one CPU only, or nothing to look with."""
    bench = build / "bin/shm_bench"
    if (os.cpu_count() or 1) < 2 or not bench.exists():
        return None
    try:
        return Cores(lambda: float(execute([bench, "--apart"])), apart_ns)
    except (LaunchError, ValueError):  # a program of another build; a container with CPUs of its own
        return None


def add_cores_option(add: Callable[..., Any]) -> None:
    add("--cores-apart", type=float, metavar="NS", help="what a cache line takes between CPUs 0 and 1 while a launch counts (the "
        "median of what it takes at the beginning)")


def check_cores_option(arguments: argparse.Namespace) -> None:
    if arguments.cores_apart is not None and not arguments.cores_apart > 0:
        raise UsageError(f"--cores-apart: is {arguments.cores_apart:g}, must be more than 0")


def steadily(cores: Optional[Cores], launch: Callable[[], T]) -> T:
    return cores.steadily(launch) if cores else launch()
