"""Tables of pages that are made by a tool stand between two lines: <!-- NAME: TOOL --> and <!-- end -->."""
from __future__ import annotations

import pathlib
import re

from .scenarios import UsageError


def fill_in(page: pathlib.Path, tool: str, tables: dict[str, str]) -> None:
    """Replaces each table by its name; the rest of the page stays as it is. UsageError when a place is missing."""
    try:
        text = page.read_text()
    except OSError as error:
        raise UsageError(f"{page} cannot be read: {error.strerror}") from None
    for name, table in tables.items():
        mark = f"<!-- {name}: {tool} -->"
        pattern = re.compile(re.escape(mark) + r"\n.*?<!-- end -->", re.S)
        if len(pattern.findall(text)) != 1:
            raise UsageError(f"{page}: there must be one line {mark}, closed by <!-- end -->")
        text = pattern.sub(lambda _: f"{mark}\n{table}\n<!-- end -->", text)
    page.write_text(text)
