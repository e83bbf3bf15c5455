#!/usr/bin/env python3
"""Checks that no file of src/weft or src/loom includes one of a layer above its own: check_layers.py [ROOT].

The layers and their order are those of the tables in docs/explanation/architecture.md, "Layers", and docs/explanation/loom.md, "Units".
Layers in one row may include each other. Prints each include that runs up, each folder that a table lacks, and each layer of a table that
is no folder. The exit code is 1 if there are any.
"""
import re
import sys
from pathlib import Path

# Library, page, section of its table.
TABLES = [("weft", "architecture.md", "Layers"), ("loom", "loom.md", "Units")]


def heights_of(page, section):
    """The layers of the section's first table, each with its row, the lowest first."""
    text = page.read_text(encoding="utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE).group()
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", table, re.MULTILINE)
    return {layer: height for height, row in enumerate(rows) for layer in re.findall(r"`(\w+)`", row)}


def check(root, library, page, section):
    source = root / "src" / library
    heights = heights_of(root / "docs" / "explanation" / page, section)
    folders = {folder.name for folder in source.iterdir() if folder.is_dir()}
    wrong = [f"src/{library}/{name} is in no row of docs/explanation/{page}'s table of layers" for name in sorted(folders - set(heights))]
    wrong += [f"docs/explanation/{page} names a layer {name} that is no folder" for name in heights if name not in folders]
    for path in sorted(source.rglob("*")):
        if path.suffix not in (".h", ".cc", ".cu"):
            continue
        layer = path.relative_to(source).parts[0]
        for included in re.findall(r'^#include "(\w+)/[^"]*"', path.read_text(encoding="utf-8"), re.MULTILINE):
            if included in heights and heights[included] > heights.get(layer, -1):
                wrong.append(f"{path.relative_to(root)} includes {included}/, which is above {layer}/")
    return wrong, len(heights)


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    checked = [check(root, *table) for table in TABLES]
    wrong = [line for lines, _ in checked for line in lines]
    layers = sum(count for _, count in checked)
    print("\n".join(wrong) if wrong else f"{layers} layers, no include runs up")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
