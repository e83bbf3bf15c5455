#!/usr/bin/env python3
"""Predicts the published figures of perf/seeds/ with `loom plan` and writes the tables of docs/results/seeds.md and data/seeds.md
beside it, with the chart.

  perf/seeds.py [--build build] [--docs docs] [--check]

Every row is predicted anew from perf/seeds/ and clusters/p4d.json. The text of the pages stays as it is: a table is replaced
between the lines <!-- NAME: perf/seeds.py --> and <!-- end -->. --check writes nothing; the exit code is 1 if a held-out row
is not within 10 percent, or a cell of NCCL's AllReduce not within 25.
"""
from __future__ import annotations

import argparse
import json
import pathlib
import sys

from comparison.marked import fill_in
from seed_rows.chart import chart
from seed_rows.predictions import BAND, HIERARCHICAL, Predictor
from seed_rows.tables import all_reduce_table, fit_table, gain_table, nccl_us, row_table, sensitivity_table, steps_table

ALL_REDUCE_BAND = 0.25  # of the published time
ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE, TABLES_PAGE = "seeds.md", "data/seeds.md"
ON_PAGE = ("steps", "gain")  # the tables of PAGE; TABLES_PAGE has the others


def parse_arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--docs", type=pathlib.Path, default=ROOT / "docs", help=f"where results/{PAGE} and results/{TABLES_PAGE} are")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a held-out row is not within 10 percent")
    parser.add_argument("--no-steps", action="store_true", help="leave the 109 measured steps out, which take longest")
    return parser.parse_args(words)


def far_all_reduces(predictor: Predictor) -> list[tuple[dict, float]]:
    """Cells of NCCL's AllReduce, with their errors, that are further from the published time than ALL_REDUCE_BAND."""
    engine = predictor.engine(HIERARCHICAL)
    errors = [(cell, nccl_us(engine, cell["nodes"], cell["bytes"], cell.get("interfaces", 1.0)) / cell["microseconds"] - 1)
              for cell in predictor.all_reduces()]
    return [(cell, error) for cell, error in errors if abs(error) > ALL_REDUCE_BAND]


def main(words: list[str]) -> int:
    options = parse_arguments(words)
    predictor = Predictor(options.build / "bin", ROOT)
    rows = predictor.rows()
    outside = [row for row in rows if row.held_out and abs(row.error) > BAND]
    held_out = [row for row in rows if row.held_out]
    mean = sum(abs(row.error) for row in held_out) / len(held_out)
    print(f"{len(held_out) - len(outside)} of {len(held_out)} held-out rows within {BAND:.0%}, mean error {mean:.1%}")
    for row in outside:
        print(f"outside: {row.name}: {row.predicted:.1f}, published {row.published:g}")
    far = far_all_reduces(predictor)
    for cell, error in far:
        print(f"outside: AllReduce of {cell['bytes']:,} bytes on {cell['nodes']} nodes: {error:+.0%} of the published time")
    if options.check:
        return 1 if outside or far else 0
    results = options.docs / "results"
    tables = {"rows": row_table(rows), "fit": fit_table(rows), "sensitivity": sensitivity_table(rows),
              "all-reduce": all_reduce_table(predictor),
              "gain": gain_table(predictor)}
    if not options.no_steps:
        tables["steps"] = steps_table(predictor)
    fill_in(results / PAGE, "perf/seeds.py", {name: text for name, text in tables.items() if name in ON_PAGE})
    fill_in(results / TABLES_PAGE, "perf/seeds.py", {name: text for name, text in tables.items() if name not in ON_PAGE})
    folder = results / "seeds"
    folder.mkdir(exist_ok=True)
    for name, dark in (("predicted-light.svg", False), ("predicted-dark.svg", True)):
        (folder / name).write_text(chart(rows, dark), encoding="utf-8")
    return 1 if outside or far else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
