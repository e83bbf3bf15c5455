"""A progress bar on stderr: one line that is rewritten on a terminal, a line now and then elsewhere."""
from __future__ import annotations

import sys
import time
from typing import TextIO

WIDTH = 28
QUIET_S = 15  # between lines where nothing can be rewritten


class Progress:
    def __init__(self, total: int, stream: TextIO = sys.stderr) -> None:
        self.total, self.done = max(1, total), 0
        self.stream, self.begin = stream, time.monotonic()
        self.rewrites = stream.isatty()
        self.last = -QUIET_S
        self.length = 0

    def show(self, what: str) -> None:
        now = time.monotonic()
        if not self.rewrites and now - self.last < QUIET_S and self.done < self.total:
            return
        self.last = now
        text = self.line(what, now - self.begin)
        if self.rewrites:
            self.stream.write("\r" + text.ljust(self.length))
            self.length = len(text)
        else:
            self.stream.write(text + "\n")
        self.stream.flush()

    def line(self, what: str, elapsed_s: float) -> str:
        share = min(1.0, self.done / self.total)
        filled = round(share * WIDTH)
        left = ""
        if self.done and share < 1:
            left = f", about {clock(elapsed_s / share - elapsed_s)} left"
        return f"[{'#' * filled}{'.' * (WIDTH - filled)}] {100 * share:3.0f} %  {what}  ({clock(elapsed_s)}{left})"

    def step(self, count: int = 1) -> None:
        self.done += count

    def close(self) -> None:
        if self.rewrites and self.length:
            self.stream.write("\r" + " " * self.length + "\r")
            self.stream.flush()


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
