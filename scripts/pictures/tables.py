"""Rows of a table of the docs, for charts that are drawn from what a page of results states."""
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
