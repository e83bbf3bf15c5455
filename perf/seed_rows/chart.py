"""Predicted against published, as SVG for light or dark screens."""
from __future__ import annotations

import html
import math

from .predictions import BAND, Row

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 560, 56, 16, 44, 48
X, Y = (95, 172), (80, 340)
X_TICKS, Y_TICKS = (100, 110, 120, 130, 140, 150, 160, 170), (80, 100, 120, 140, 160, 200, 250, 300)


def at_x(value: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * math.log(value / X[0]) / math.log(X[1] / X[0])


def at_y(value: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * math.log(value / Y[0]) / math.log(Y[1] / Y[0])


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>'


def text(x: float, y: float, words: str, style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{html.escape(words)}</text>'


def chart(rows: list[Row], dark: bool) -> str:
    ink, soft, grid, paper, mark = (("#e6edf3", "#9da7b1", "#30363d", "#0d1117", "#58a6ff") if dark else
                                    ("#1d2329", "#5b6670", "#dde2e7", "#ffffff", "#1769aa"))
    shapes = [f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{paper}"/>']
    corners = [(X[0], X[0] * (1 + BAND)), (X[1], X[1] * (1 + BAND)), (X[1], X[1] * (1 - BAND)), (X[0], X[0] * (1 - BAND))]
    shapes.append('<polygon points="' + " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in corners) +
                  f'" fill="{mark}" opacity="0.14"/>')
    for tick in X_TICKS:
        shapes.append(line(at_x(tick), TOP, at_x(tick), HEIGHT - BOTTOM, f'stroke="{grid}"'))
        shapes.append(text(at_x(tick), HEIGHT - BOTTOM + 16, str(tick), 'text-anchor="middle"'))
    for tick in Y_TICKS:
        shapes.append(line(LEFT, at_y(tick), WIDTH - RIGHT, at_y(tick), f'stroke="{grid}"'))
        shapes.append(text(LEFT - 6, at_y(tick) + 4, str(tick), 'text-anchor="end"'))
    shapes.append(line(at_x(X[0]), at_y(X[0]), at_x(X[1]), at_y(X[1]), f'stroke="{soft}" stroke-dasharray="4 3"'))
    for row in rows:
        x = at_x(row.published)
        shapes.append(line(x - 5, at_y(row.at_peak), x + 5, at_y(row.at_peak), f'stroke="{soft}" stroke-width="2"'))
        fill = mark if row.held_out else paper
        note = html.escape(f"{row.name}: published {row.published:g}, predicted {row.predicted:.1f}")
        shapes.append(f'<circle cx="{x:.1f}" cy="{at_y(row.predicted):.1f}" r="5" fill="{fill}" stroke="{mark}" '
                      f'stroke-width="2"><title>{note}</title></circle>')
    shapes.append(text(LEFT, 18, "TFLOP/s a GPU: predicted (up) against published (right)", f'fill="{ink}" font-weight="600"'))
    shapes.append(text(LEFT, 34, "full: held out; hollow: fitted; band: 10 %; grey: the floating-point operations at the peak"))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">'
            f"<style>text{{font:11px system-ui,sans-serif;fill:{soft}}}</style>" + "".join(shapes) + "</svg>\n")
