#!/usr/bin/env python3
"""Draws the pictures of the docs into docs/pictures: scripts/draw_pictures.py. Each module of scripts/pictures that has a
function draw() makes the SVG of its name. With --check it writes nothing and says by its exit code whether they are up to date."""
import importlib
import pathlib
import pkgutil
import sys

import pictures

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "docs/pictures"


def main():
    stale = []
    for module in pkgutil.iter_modules(pictures.__path__):
        draw = getattr(importlib.import_module(f"pictures.{module.name}"), "draw", None)
        if draw is None:
            continue
        path, right = FOLDER / f"{module.name.replace('_', '-')}.svg", str(draw())
        if path.exists() and path.read_text() == right:
            continue
        if "--check" in sys.argv[1:]:
            stale.append(path.name)
        else:
            path.write_text(right)
    if stale:
        sys.exit(f"draw_pictures: {', '.join(stale)}: not what the data and the scripts say; run scripts/draw_pictures.py")


if __name__ == "__main__":
    main()
