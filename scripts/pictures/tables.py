"""What charts are drawn from: rows of a table of a page of results, and the cells of its data."""
import csv
import pathlib

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


def rows(page, first_header):
    """The cells of each row of the table whose first line contains `first_header`."""
    lines = (DOCS / page).read_text().splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith("|") and first_header in line), None)
    if start is None:
        raise SystemExit(f"docs/{page} has no table with a column {first_header}")
    found = []
    for line in lines[start + 2:]:
        if not line.startswith("|"):
            return found
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def ratios(table, *columns):
    """{values of `columns`: the speed-ups of those rows} of docs/results/data/TABLE."""
    found = {}
    with open(DOCS / "results/data" / table, newline="") as lines:
        for row in csv.DictReader(lines):
            found.setdefault(tuple(row[column] for column in columns), []).append(float(row["speed_up"]))
    return found
