"""The results as one HTML page that needs nothing else: its style and the script that draws its charts are in it (share/pages)."""
from __future__ import annotations

import html
import json
import math
import pathlib
from typing import Callable

from .results import Results, Section, machine_text
from .scenarios import size_text
from .summary import WEFT, Cell, Figure, system_names
from .table import CPU_FROM, number, verdict

SYSTEMS = [WEFT, "Open MPI", "MPICH", "Gloo"]  # their colours are fixed, whoever else is there
PAGES = pathlib.Path(__file__).resolve().parents[2] / "share" / "pages"


def colour_of(system: str) -> int:
    """The number of a colour of the page."""
    return SYSTEMS.index(system) if system in SYSTEMS else 1


def tint(speedup: float) -> str:
    """Green above 1, red below, full at three times."""
    strength = min(1.0, abs(math.log(speedup)) / math.log(3))
    return f"background:rgba(var(--{'good' if speedup >= 1 else 'bad'}),{0.08 + 0.5 * strength:.2f})"


def table(head: list[str], rows: list[list[str]], caption: str) -> str:
    """Cells that are `<td …>…</td>` stay as they are; anything else is put into one."""
    def cell(text: str) -> str:
        return text if text.startswith("<td") else f"<td>{html.escape(text)}</td>"
    heads = "".join(f"<th>{html.escape(text)}</th>" for text in head)
    lines = [f"<caption>{html.escape(caption)}</caption><tr>{heads}</tr>"]
    lines += ["<tr>" + "".join(cell(text) for text in row) + "</tr>" for row in rows]
    return '<div class="scroll"><table>' + "\n".join(lines) + "</table></div>"


def speedup_cell(cell: Cell | None) -> str:
    if cell is None or cell.speedup is None:
        return "<td>-</td>"
    times = "; ".join(f"{name} {number(figure.us)} µs" + (f" ({figure.algorithm})" if figure.algorithm else "")
                      for name, figure in cell.figures.items())
    return f'<td style="{tint(cell.speedup)}" title="{html.escape(times)}">{cell.speedup:.2f}</td>'


def speedups(section: Section) -> str:
    cells = {(cell.collective, cell.size): cell for cell in section.cells}
    sizes = sorted({cell.size for cell in section.cells})
    rows = [[collective] + [speedup_cell(cells.get((collective, size))) for size in sizes]
            for collective in dict.fromkeys(cell.collective for cell in section.cells)]
    return table(["speed-up"] + [size_text(size) for size in sizes], rows,
                 "The best peer's time over Weft's; above 1 (green), Weft is faster. Point at a cell for the times.")


def chart(title: str, label: str, unit: str, series: list[dict], mark: float | None = None) -> str:
    """What share/pages/charts.js draws over sizes, both axes logarithmic; empty text where there are no points."""
    if not any(one["points"] for one in series):
        return ""
    spec = {"title": title, "x": {"label": "size", "log": True, "bytes": True}, "y": {"label": label, "unit": unit, "log": True},
            "series": series}
    if mark is not None:
        spec["mark"] = mark
    text = json.dumps(spec).replace("</", "<\\/")
    return f'<script type="application/json" class="chart">{text}</script>'


def series_of(cells: list[Cell], value: Callable[[Figure], float]) -> list[dict]:
    return [{"name": name, "colour": colour_of(name), "points": [[c.size, value(c.figures[name])] for c in cells if name in c.figures]}
            for name in system_names(cells)]


def charts_of(section: Section) -> str:
    parts = []
    for collective in dict.fromkeys(cell.collective for cell in section.cells):
        cells = [cell for cell in section.cells if cell.collective == collective]
        ratio = {"name": "best peer / Weft", "points": [[c.size, c.speedup] for c in cells if c.speedup is not None]}
        parts += [chart(f"{collective}: time", "time", "µs", series_of(cells, lambda f: f.us)),
                  chart(f"{collective}: bus bandwidth", "bus bandwidth", "GB/s", series_of(cells, lambda f: f.bus_gb_per_s)),
                  chart(f"{collective}: speed-up", "best peer / Weft", "", [ratio], mark=1)]
    return '<div class="charts">' + "".join(parts) + "</div>"


def cpu_table(section: Section) -> str:
    names = system_names(section.cells)
    rows = [[f"{cell.collective}, {size_text(cell.size)}"] +
            [number(cell.figures[name].cpu_s_per_gb) if name in cell.figures else "-" for name in names]
            for cell in section.cells if cell.size >= CPU_FROM]
    return table(["CPU cost"] + names, rows, "CPU seconds that a rank spends for each GB that it sends or receives") \
        if rows else ""


def cluster_table(section: Section) -> str:
    cells = [cell for cell in section.cells if cell.line_share is not None]
    rows = [[f"{c.collective}, {size_text(c.size)}", number(c.figures[WEFT].us), f"{100 * c.line_share:.0f} %"]
            for c in cells if c.size >= CPU_FROM]
    return table(["line rate", "Weft, µs", "share"], rows, "What Weft reaches of the line rate; TCP can reach about 96 %") \
        if rows else ""


def notes_html(notes: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{html.escape(note)}</li>" for note in notes) + "</ul>" if notes else ""


def section_html(section: Section) -> str:
    name = section.scenario.name
    parts = [f'<h2 id="{name}">{html.escape(section.scenario.title)} <code>{name}</code></h2>']
    if section.cells:
        parts += [f"<p>{html.escape(verdict(section))}</p>", speedups(section), charts_of(section), cpu_table(section), cluster_table(section)]
    return "\n".join(parts + [notes_html(section.notes)])


def overview(results: Results) -> str:
    rows = []
    for section in results.sections:
        its = section.verdict
        mean = "<td>-</td>" if its.mean is None else f'<td style="{tint(its.mean)}">{its.mean:.2f}</td>'
        slower = f"{its.slower} of {its.compared}"
        worst = f"{its.worst.collective}, {size_text(its.worst.size)}: {its.worst.speedup:.2f}" if its.worst else "-"
        link = f'<td><a href="#{section.scenario.name}">{html.escape(section.scenario.title)}</a></td>'
        rows.append([link, mean, slower, worst])
    return table(["scenario", "geometric mean", "cells slower than the best peer", "least speed-up"], rows,
                 "Speed-ups against the best peer of each cell")


def startup_html(results: Results) -> str:
    if not results.startup and not results.startup_notes:
        return ""
    names = list(dict.fromkeys(name for one in results.startup for name in one.us))
    rows = [[f"{one.ranks} {'threads' if one.threads else 'processes'}"] +
            [number(one.us[name] / 1e3) if name in one.us else "-" for name in names] for one in results.startup]
    return ('<h2 id="startup">Start-up</h2>' +
            table(["ranks"] + [f"{name}, ms" for name in names], rows,
                  "Milliseconds from the call that starts until it returns, mean over ranks") +
            notes_html(results.startup_notes))


def page_of(results: Results) -> str:
    document = results.document
    versions = ", ".join(f"{name} {version}".strip() for name, version in document["versions"].items())
    body = [f"<h1>Weft beside its peers</h1><p>{html.escape(versions)}. Measured on {html.escape(document['created'])} by "
            f"<code>{html.escape(document['command'])}</code> on {html.escape(machine_text(document['machine']))}.</p>",
            '<p class="soft">Times are means of back-to-back blocking calls, medians over launches; systems take turns, and '
            "every launch checks its results. Sizes count as in nccl-tests: the larger of what a rank sends and receives. "
            "Of a peer with several algorithms the best counts.</p>", notes_html(document["notes"].get("", [])),
            overview(results), *(section_html(section) for section in results.sections), startup_html(results)]
    return ("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Weft beside its peers</title>"
            f"<meta name=\"viewport\" content=\"width=device-width\"><style>{(PAGES / 'page.css').read_text(encoding='utf-8')}</style></head>\n<body>\n" +
            "\n".join(body) + f"\n<script>{(PAGES / 'charts.js').read_text(encoding='utf-8')}</script>\n</body></html>\n")
