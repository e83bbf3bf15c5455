"""The tables of docs/results/seeds.md and data/seeds.md."""
from __future__ import annotations

import math
import statistics

from .predictions import BAND, COMPUTING, ENGINES, HIERARCHICAL, Predictor, Row, Scales, fitted, fitted_to


def table(head: list[str], lines: list[list[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def percent(value: float) -> str:
    return f"{value * 100:+.1f} %"


def row_table(rows: list[Row]) -> str:
    return table(["row", "engine", "published", "predicted", "error", "", "at the peak", "GiB of 40", "assumed"],
                 [[row.name, row.engine, f"{row.published:g}", f"{row.predicted:.1f}", percent(row.error), row.role,
                   f"{row.at_peak:.0f}", f"{row.plan['memory']['needed_bytes'] / 2 ** 30:.1f}", "; ".join(row.assumed)]
                  for row in rows])


def fit_table(rows: list[Row]) -> str:
    """Each row with the rates that all others give."""
    lines = []
    for row in rows:
        scales = fitted_to([other for other in rows if other is not row])
        lines.append([row.name, f"{row.predicted:.1f}", percent(row.error), percent(row.error_with(scales))])
    lines.append(["mean of the amounts", "", f"{statistics.fmean(abs(row.error) for row in rows) * 100:.1f} %",
                  f"{statistics.fmean(abs(row.error_with(fitted_to([o for o in rows if o is not row]))) for row in rows) * 100:.1f} %"])
    return table(["row", "predicted", "error", "error, rates from all other rows"], lines)


def first_outside(rows: list[Row], scales_at, up: bool) -> tuple[float, str]:
    """The least change of a constant with which a held-out row is outside the band, up to three times; and that row."""
    factor = 1.0
    while 1 / 3 < factor < 3:
        factor *= 1.005 if up else 1 / 1.005
        scales = scales_at(factor)
        for row in rows:
            if row.held_out and (not math.isfinite(sum(scales.gathers.values())) or abs(row.error_with(scales)) > BAND):
                return factor - 1, row.name
    return factor - 1, "none"


def sensitivity_table(rows: list[Row]) -> str:
    ways: list[tuple[str, str, object]] = []
    for name in COMPUTING:
        ways.append((name, "as they are", lambda factor, name=name: Scales(computing={name: factor})))
        ways.append((name, "fitted again", lambda factor, name=name: fitted(rows, {name: factor})))
    for engine in ENGINES:
        ways.append((f"gathers of {engine}", "as they are", lambda factor, engine=engine: Scales(
            gathers={engine: factor}, reduces=factor if engine == HIERARCHICAL else 1.0)))
    lines = []
    for name, rates, scales_at in ways:
        down, first = first_outside(rows, scales_at, False)
        up, last = first_outside(rows, scales_at, True)
        lines.append([name, rates, f"{down * 100:.0f} %", first, f"{up * 100:+.0f} %", last])
    return table(["constant", "the three rates", "down by", "row that leaves", "up by", "row that leaves"], lines)


def nccl_us(engine: dict, nodes: int, size: int, interfaces: float) -> float:
    """As collective_cost.cc has it: what leaves an inner node of a tree, through a pipelined library."""
    through = size * min(nodes - 1, 2)
    bandwidth = engine["all_reduce_gb_per_s"] * 1e3 * interfaces
    return (math.sqrt(engine["all_reduce_latency_us"]) + math.sqrt(through / bandwidth)) ** 2


def all_reduce_table(predictor: Predictor) -> str:
    """Each cell with its role: `rules in view` is not held out, since rules of the model were chosen with it in view."""
    engine = predictor.engine(HIERARCHICAL)
    lines = []
    for cell in predictor.all_reduces():
        nodes, size, interfaces = cell["nodes"], cell["bytes"], cell.get("interfaces", 1.0)
        published, predicted = cell["microseconds"], nccl_us(engine, nodes, size, interfaces)
        weft = predictor.weft_us(nodes, size, interfaces)
        lines.append([str(nodes), f"{size:,}", f"{interfaces * 4:g} of 4", f"{published:,}", f"{predicted:,.0f}",
                      percent(predicted / published - 1), cell["role"], f"{weft:,.0f}", f"{published / weft:.2f}"])
    return table(["nodes", "bytes", "interfaces", "NCCL, published µs", "predicted µs", "error", "", "Weft's plan, simulated µs",
                  "published NCCL over Weft"], lines)


def gain_table(predictor: Predictor) -> str:
    """How many times faster Weft's plans are than NCCL as predicted."""
    engine = predictor.engine(HIERARCHICAL)
    lines = []
    for nodes in (2, 4, 8, 16, 32):
        gains = [nccl_us(engine, nodes, size << 20, 1.0) / predictor.weft_us(nodes, size << 20, 1.0, ("all_to_all", "double_tree"))
                 for size in (1, 4, 16, 64, 256, 1024)]
        lines.append([str(nodes), *(f"{gain:.2f}" for gain in gains)])
    return table(["nodes", "1 MiB", "4 MiB", "16 MiB", "64 MiB", "256 MiB", "1 GiB"], lines)


#: What was known of the measured steps of a size when the description of their cluster was written.
SEEN = {"175": "two defaults added after these were seen"}


def steps_table(predictor: Predictor) -> str:
    steps = predictor.steps()
    lines = []
    for billions in [*dict.fromkeys(one[0] for one in steps), "all"]:
        errors = [predicted / measured - 1 for size, measured, predicted in steps if billions in (size, "all")]
        amounts = [abs(error) for error in errors]
        lines.append([billions, str(len(errors)), percent(statistics.fmean(errors)), f"{statistics.fmean(amounts) * 100:.1f} %",
                      f"{max(amounts) * 100:.0f} %", str(sum(amount <= BAND for amount in amounts)), SEEN.get(billions, "")])
    return table(["billions of parameters", "steps", "mean error", "mean of the amounts", "largest", "within 10 %", ""], lines)
