#!/usr/bin/env python3
"""Checks that no file of src/weft includes one of a layer above its own: check_layers.py [ROOT].

The layers and their order are those of the table in docs/explanation/architecture.md, "Layers". Prints each include that runs up, each
folder that the table lacks, and each layer of the table that is no folder. The exit code is 1 if there are any.
"""
import re
import sys
from pathlib import Path


def layers_of(page):
    """The layers in the table's order, lowest first."""
    section = page.split("\n## Layers\n")[1].split("\n## ")[0]
    table = section.split("\n\n")[1]
    return re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    source = root / "src" / "weft"
    layers = layers_of((root / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8"))
    folders = {folder.name for folder in source.iterdir() if folder.is_dir()}
    wrong = [f"src/weft/{name} is in no row of docs/explanation/architecture.md's table of layers" for name in sorted(folders - set(layers))]
    wrong += [f"docs/explanation/architecture.md names a layer {name} that is no folder" for name in layers if name not in folders]
    height = {name: number for number, name in enumerate(layers)}
    for path in sorted(source.rglob("*")):
        if path.suffix not in (".h", ".cc", ".cu"):
            continue
        layer = path.relative_to(source).parts[0]
        for included in re.findall(r'^#include "(\w+)/[^"]*"', path.read_text(encoding="utf-8"), re.MULTILINE):
            if included in height and height[included] > height.get(layer, -1):
                wrong.append(f"{path.relative_to(root)} includes {included}/, which is above {layer}/")
    print("\n".join(wrong) if wrong else f"{len(layers)} layers, no include runs up")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
