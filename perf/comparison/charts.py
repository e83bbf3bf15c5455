"""Line charts as SVG text: sizes from left to right in logarithmic steps, one line a system. No other software needed.

Colours are CSS variables, which page.py defines for light and dark screens.
"""
from __future__ import annotations

import dataclasses
import html
import math

WIDTH, HEIGHT = 430, 270
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 30, 34


@dataclasses.dataclass
class Series:
    name: str
    colour: str                      # a CSS class
    points: list[tuple[int, float]]  # size in bytes, value above 0


@dataclasses.dataclass
class Axis:
    """A logarithmic scale from `low` to `high` onto pixels."""
    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        span = math.log(self.high / self.low)
        return self.begin + (self.end - self.begin) * (math.log(value / self.low) / span if span else 0.5)


def short(value: float) -> str:
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


def short_size(size: int) -> str:
    for unit, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if size >= unit:
            return f"{size / unit:g}{letter}"
    return str(size)


def ticks(low: float, high: float) -> list[float]:
    """Powers of ten, with 2 and 5 between them where there are few."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = (1, 2, 5) if last - first <= 2 else (1,)
    every = max(1, (last - first) // 6)
    values = [step * 10.0 ** power for power in range(first, last + 1, every) for step in steps]
    return [float(f"{value:.6g}") for value in values if low <= value <= high]


def chart(title: str, unit: str, series: list[Series], mark_one: bool = False) -> str:
    """`mark_one` draws a line at 1, for ratios. Empty text where there is nothing to draw."""
    points = [point for one in series for point in one.points if point[1] > 0]
    if not points:
        return ""
    values = [value for _, value in points] + ([1.0] if mark_one else [])
    sizes = sorted({size for size, _ in points})
    x = Axis(sizes[0], sizes[-1], LEFT, WIDTH - RIGHT)
    y = Axis(min(values) / 1.2, max(values) * 1.2, HEIGHT - BOTTOM, TOP)
    parts = [f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(title)}">',
             f'<text class="title" x="{LEFT}" y="16">{html.escape(title)}<tspan class="unit">  {html.escape(unit)}</tspan>'
             '</text>']
    for value in ticks(y.low, y.high):
        at = y.at(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
                     f'<text class="tick" text-anchor="end" x="{LEFT - 6}" y="{at + 3.5:.1f}">{short(value)}</text>')
    for size in sizes:
        parts.append(f'<text class="tick" text-anchor="middle" x="{x.at(size):.1f}" y="{HEIGHT - BOTTOM + 16}">'
                     f'{short_size(size)}</text>')
    if mark_one:
        parts.append(f'<line class="one" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y.at(1):.1f}" y2="{y.at(1):.1f}"/>')
    for one in reversed(series):  # the first is drawn last, on top
        places = [(x.at(size), y.at(value), size, value) for size, value in one.points if value > 0]
        if len(places) > 1:
            line = " ".join(f"{px:.1f},{py:.1f}" for px, py, _, _ in places)
            parts.append(f'<polyline class="line {one.colour}" points="{line}"/>')
        for px, py, size, value in places:
            parts.append(f'<circle class="dot {one.colour}" cx="{px:.1f}" cy="{py:.1f}" r="3.5"><title>'
                         f'{html.escape(one.name)}, {short_size(size)}: {value:.4g} {html.escape(unit)}</title></circle>')
    return "".join(parts) + "</svg>"
