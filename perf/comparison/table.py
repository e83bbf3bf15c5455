"""The results as Markdown."""
from __future__ import annotations

from .results import Results, Section, machine_text
from .scenarios import KIB, size_text
from .summary import Startup, system_names

CPU_FROM = 256 * KIB  # below, a call costs CPU time rather than a byte


def number(value: float | None, suffix: str = "") -> str:
    if value is None:
        return "-"
    if value >= 1000:
        return f"{value:.0f}{suffix}"
    return f"{value:.3g}{suffix}"


def rows_text(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def times(section: Section) -> str:
    names = system_names(section.cells)
    cluster = section.scenario.is_cluster
    head = ["collective", "size"] + [f"{name}, µs" for name in names] + ["speed-up"]
    if cluster:
        head.append("share of the line rate")
    rows = []
    for cell in section.cells:
        row = [cell.collective, size_text(cell.size)]
        row += [number(cell.figures[name].us if name in cell.figures else None) for name in names]
        row.append(number(cell.speedup))
        if cluster:
            row.append("-" if cell.line_share is None else f"{100 * cell.line_share:.0f} %")
        rows.append(row)
    return rows_text(head, rows)


def cpu(section: Section) -> str:
    names = system_names(section.cells)
    rows = [[cell.collective, size_text(cell.size)] +
            [number(cell.figures[name].cpu_s_per_gb if name in cell.figures else None) for name in names]
            for cell in section.cells if cell.size >= CPU_FROM]
    return rows_text(["collective", "size"] + [f"{name}, s/GB" for name in names], rows) if rows else ""


def verdict(section: Section) -> str:
    its = section.verdict
    if its.mean is None:
        return "No peer was measured."
    worst = f"; the worst is {its.worst.collective} of {size_text(its.worst.size)}, {number(its.worst.speedup)}"
    return (f"Geometric mean of the speed-ups: {its.mean:.2f}. Slower than the best peer in {its.slower} of "
            f"{its.compared} cells{worst if its.worst and its.slower else ''}.")


def section_text(section: Section) -> str:
    parts = [f"### {section.scenario.title} (`{section.scenario.name}`)", ""]
    if section.cells:
        parts += [verdict(section), "", times(section)]
        if cpu(section):
            parts += ["CPU seconds that a rank spends for each GB that it sends or receives:", "", cpu(section)]
    parts += [f"* {note}" for note in section.notes]
    return "\n".join(parts).rstrip() + "\n"


def startup_text(startup: list[Startup], notes: list[str]) -> str:
    names = list(dict.fromkeys(name for one in startup for name in one.us))
    rows = [[str(one.ranks), "threads" if one.threads else "processes"] +
            [number(one.us[name] / 1e3 if name in one.us else None) for name in names] for one in startup]
    parts = ["### Start-up", "", "Milliseconds from the call that starts until it returns, mean over ranks.", "",
             rows_text(["ranks", "as"] + [f"{name}, ms" for name in names], rows)]
    return "\n".join(parts + [f"* {note}" for note in notes]).rstrip() + "\n"


def text_of(results: Results) -> str:
    document = results.document
    parts = [f"`{document['command']}` on {machine_text(document['machine'])}.",
             "Times are medians over launches; a speed-up is the best peer's time over Weft's: above 1, Weft is faster."]
    parts += document["notes"].get("", [])
    parts += [section_text(section) for section in results.sections]
    if results.startup or results.startup_notes:
        parts.append(startup_text(results.startup, results.startup_notes))
    return "\n\n".join(part.rstrip() for part in parts) + "\n"
