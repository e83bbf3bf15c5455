#!/usr/bin/env python3
"""Draws the charts and fills in the tables of docs/scale.md: collectives on 2 to 512 nodes, simulated by weft_sim.

  perf/scale.py [--build build] [--docs docs] [--cluster p4d] [--nodes 2,4,…] [--sizes 256K,…] [--json FILE]

Everything is computed anew from the cluster's description and the plans of the library. The text of the page stays as it is: a
table is replaced between the lines <!-- NAME: perf/scale.py --> and <!-- end -->. Takes a minute or two of one CPU.
"""
from __future__ import annotations

import argparse
import json
import math
import pathlib
import re
import subprocess
import sys

from comparison.charts import HEIGHT, WIDTH, Series, chart

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIB = 1 << 20
NODES = [2, 4, 8, 16, 32, 64, 128, 256, 512]
SIZES = ["256K", "1M", "4M", "16M", "64M", "256M", "1G"]
TITLES = {"allgather": "AllGather", "reducescatter": "ReduceScatter", "allreduce": "AllReduce"}
# What stands for "tree": partners at doubling distances are to gather and scatter what a tree is to reduce.
TREES = {"allgather": "recursive_doubling", "reducescatter": "recursive_halving", "allreduce": "double_tree"}
MESH = "all_to_all"
SHORT = {"ring": "r", "recursive_doubling": "d", "recursive_halving": "h", "double_tree": "t"}
GRADIENTS, BUCKETS = 400 * MIB, [6.25, 25, 100, 400]  # MiB
SLICES = ["64K", "128K", "256K", "512K", "1M", "2M", "4M"]
SICK_NODES, SICK_SIZE = 16, 64 * MIB
TROUBLES = {"a node at half its speed": ["--slow-node", "5=0.5"],
            "a rail at half its speed": ["--slow-rail", "5:1=0.5"],
            "a rail down": ["--fail-rail", "5:1"],
            "3 other streams to a node": ["--incast", "5=3"],
            "leaves of 4 nodes, oversubscribed 4 times": ["--nodes-per-leaf", "4", "--oversubscription", "4"]}


def size_text(size: float) -> str:
    for unit, letters in ((1 << 30, "GiB"), (MIB, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.3g} {letters}"
    return f"{size:.3g} B"


class Simulator:
    def __init__(self, build: pathlib.Path, cluster: str) -> None:
        self.program, self.cluster, self.runs = build / "bin/weft_sim", cluster, []

    def rows(self, collective: str, sizes: list[str], nodes: list[int], algorithms: list[str], *more: str) -> list[dict]:
        command = [str(self.program), self.cluster, "--json", "-c", collective, "-s", ",".join(sizes),
                   "--nodes", ",".join(map(str, nodes)), "-a", ",".join(algorithms), *more]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
        document = json.loads(done.stdout)
        for row in document["rows"]:
            row["line_us"] = line_us(document["machine"], row)
        self.runs.append({"command": command[1:], **document})
        return document["rows"]


def line_us(machine: dict, row: dict) -> float:
    """What the bytes that must enter each node take at the rate of its interfaces."""
    times = 2 if row["collective"].lower() == "allreduce" else 1
    rate = machine["nic_bytes_per_us"] * machine["rails"]
    return times * row["bytes"] * (row["nodes"] - 1) / row["nodes"] / rate


class Field:
    """Times of one collective: us[(nodes, bytes)][algorithm]."""

    def __init__(self, collective: str, rows: list[dict]) -> None:
        self.collective = collective
        self.us: dict[tuple[int, int], dict[str, float]] = {}
        self.line: dict[tuple[int, int], float] = {}
        for row in rows:
            key = (row["nodes"], row["bytes"])
            self.line[key] = row["line_us"]
            if "us" in row:
                self.us.setdefault(key, {})[row["algorithm"]] = row["us"]
        self.nodes = sorted({nodes for nodes, _ in self.us})
        self.sizes = sorted({size for _, size in self.us})

    def rival(self, nodes: int, size: int) -> str:
        times = self.us[nodes, size]
        return min((name for name in times if name != MESH), key=times.get)

    def gain(self, nodes: int, size: int) -> float:
        """How many times faster all-to-all is than the best of the others."""
        times = self.us[nodes, size]
        return times[self.rival(nodes, size)] / times[MESH]

    def line_share(self, nodes: int, size: int) -> float:
        return self.line[nodes, size] / self.us[nodes, size][MESH]

    def smallest(self, nodes: int, wanted: float, value) -> float | None:
        """Where value(nodes, size) first reaches `wanted`, between sizes by their logarithms. 0: at the first of all."""
        for size, following in zip([None, *self.sizes], self.sizes):
            high = value(nodes, following)
            if high < wanted:
                continue
            if size is None:
                return 0.0
            low = value(nodes, size)
            return math.exp(math.log(size) + (wanted - low) / (high - low) * math.log(following / size))
        return None


def markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def gain_table(field: Field) -> str:
    def cell(nodes: int, size: int) -> str:
        gain = field.gain(nodes, size)
        text = f"{gain:.2f} {SHORT[field.rival(nodes, size)]}"
        return f"**{text}**" if gain >= 1.2 else f"_{text}_" if gain < 0.995 else text
    return markdown(["nodes"] + [size_text(size) for size in field.sizes],
                    [[str(nodes)] + [cell(nodes, size) for size in field.sizes] for nodes in field.nodes])


def size_or(value: float | None, fields_first: int) -> str:
    if value is None:
        return "none of these"
    return f"{size_text(fields_first)} or less" if value == 0 else size_text(value)


def least_size_table(fields: dict[str, Field]) -> str:
    rows = []
    for nodes in next(iter(fields.values())).nodes:
        row = [str(nodes)]
        row += [size_or(field.smallest(nodes, 0.8, field.line_share), field.sizes[0]) for field in fields.values()]
        row += [size_or(field.smallest(nodes, 1, field.gain), field.sizes[0]) for field in fields.values()]
        rows.append(row)
    return markdown(["nodes"] + [f"{TITLES[name]}: 80 %" for name in fields] +
                    [f"{TITLES[name]}: fastest" for name in fields], rows)


def bucket_table(simulator: Simulator, nodes: list[int]) -> tuple[str, list[Series]]:
    names = [MESH, "ring", TREES["allreduce"]]
    rows = simulator.rows("allreduce", [f"{round(bucket * 1024)}K" for bucket in BUCKETS], nodes, names)
    us = {(row["nodes"], row["bytes"], row["algorithm"]): row["us"] * GRADIENTS / row["bytes"] for row in rows}
    sizes = sorted({size for _, size, _ in us})
    lines = [[str(count)] + [" / ".join(f"{us[count, size, name] / 1e3:.1f}" for name in names) for size in sizes]
             for count in nodes]
    series = [Series(f"{count} nodes", f"s{i}", [(size, us[count, size, MESH] / 1e3) for size in sizes])
              for i, count in enumerate(nodes)]
    return markdown(["nodes"] + [f"{GRADIENTS // size} of {size_text(size)}" for size in sizes], lines), series


def slice_table(simulator: Simulator, nodes: list[int]) -> str:
    lines = []
    for count in nodes:
        for size in ("64M", "1G"):
            times = [simulator.rows("allreduce", [size], [count], [MESH], "--slice", text)[0]["us"] for text in SLICES]
            best = min(times)
            lines.append([str(count), f"{size}iB"] +
                         [f"**{us / 1e3:.2f}**" if us == best else f"{us / 1e3:.2f}" for us in times])
    return markdown(["nodes", "size"] + [f"{text}iB" for text in SLICES], lines)


def trouble_table(simulator: Simulator) -> str:
    lines = []
    for collective, title in TITLES.items():
        names = [MESH, "ring", TREES[collective]]
        healthy = {row["algorithm"]: row["us"] for row in simulator.rows(collective, [str(SICK_SIZE)], [SICK_NODES], names)}
        lines.append([title, "nothing (ms)"] + [f"{healthy[name] / 1e3:.2f}" for name in names])
        for trouble, options in TROUBLES.items():
            rows = simulator.rows(collective, [str(SICK_SIZE)], [SICK_NODES], names, *options)
            us = {row["algorithm"]: row["us"] for row in rows}
            lines.append([title, trouble] + [f"{us[name] / healthy[name]:.2f} ×" for name in names])
    return markdown(["collective", "what is wrong", "all-to-all", "ring", "tree"], lines)


COLOURS = ["#1769aa", "#c2410c", "#2e7d32", "#8e24aa", "#b8860b", "#00838f"]
STYLE = ("text{font:10.5px system-ui,sans-serif;fill:#5b6670}.title{font-size:12px;font-weight:600;fill:#1d2329}"
         ".unit{font-weight:400;fill:#5b6670}.grid{stroke:#dde2e7}.one{stroke:#5b6670;stroke-dasharray:4 3}"
         ".line{fill:none;stroke-width:2}" +
         "".join(f".line.s{i},.key.s{i}{{stroke:{c}}}.dot.s{i}{{fill:{c}}}" for i, c in enumerate(COLOURS)))


def svg(title: str, unit: str, series: list[Series], mark_one: bool = False) -> str:
    """A chart that stands alone, with its key below."""
    inner = chart(title, unit, series, mark_one).replace("<svg ", f'<svg width="{WIDTH}" height="{HEIGHT}" ', 1)
    step = (WIDTH - 52) / max(len(series), 1)
    key = "".join(f'<line class="key {one.colour}" stroke-width="3" x1="{40 + i * step:.0f}" x2="{54 + i * step:.0f}" '
                  f'y1="{HEIGHT + 8}" y2="{HEIGHT + 8}"/><text x="{58 + i * step:.0f}" y="{HEIGHT + 12}">{one.name}</text>'
                  for i, one in enumerate(series))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT + 24}" width="{WIDTH * 3 // 2}">'
            f'<style>{STYLE}</style><rect width="100%" height="100%" fill="#fff"/>{inner}{key}</svg>\n')


def gain_chart(field: Field) -> str:
    shown = [nodes for nodes in (2, 8, 32, 128, 512) if nodes in field.nodes]
    return svg(f"{TITLES[field.collective]}: all-to-all against the best of ring and tree", "times faster",
               [Series(f"{nodes} nodes", f"s{i}", [(size, field.gain(nodes, size)) for size in field.sizes])
                for i, nodes in enumerate(shown)], mark_one=True)


def rate_chart(field: Field, size: int) -> str:
    names = {MESH: "all-to-all", "ring": "ring", TREES[field.collective]: TREES[field.collective].replace("_", " ")}
    return svg(f"{TITLES[field.collective]} of {size_text(size)}: share of the line rate, over nodes", "%",
               [Series(title, f"s{i}", [(nodes, 100 * field.line[nodes, size] / field.us[nodes, size][name])
                                        for nodes in field.nodes if name in field.us[nodes, size]])
                for i, (name, title) in enumerate(names.items())])


def fill_in(page: pathlib.Path, tables: dict[str, str]) -> None:
    text = page.read_text()
    for name, table in tables.items():
        mark = f"<!-- {name}: perf/scale.py -->"
        pattern = re.compile(re.escape(mark) + r"\n.*?<!-- end -->", re.S)
        if len(pattern.findall(text)) != 1:
            sys.exit(f"{page}: there must be one {mark}, closed by <!-- end -->")
        text = pattern.sub(lambda _: f"{mark}\n{table}\n<!-- end -->", text)
    page.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--docs", type=pathlib.Path, default=ROOT / "docs", help="where scale.md is")
    parser.add_argument("--cluster", default="p4d", help="a description that weft_sim knows, or a file")
    parser.add_argument("--nodes", default=",".join(map(str, NODES)))
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--json", type=pathlib.Path, help="write everything that was simulated to this file")
    arguments = parser.parse_args()
    nodes, sizes = [int(text) for text in arguments.nodes.split(",")], arguments.sizes.split(",")
    simulator = Simulator(arguments.build.resolve(), arguments.cluster)
    if not simulator.program.exists():
        parser.error(f"there is no {simulator.program}; make builds it")
    tables, charts, fields = {}, {}, {}
    for collective in TITLES:
        print(f"scale: {TITLES[collective]} on {nodes[0]} to {nodes[-1]} nodes", file=sys.stderr, flush=True)
        field = Field(collective, simulator.rows(collective, sizes, nodes, [MESH, "ring", TREES[collective]]))
        fields[collective] = field
        tables[collective] = gain_table(field)
        charts[f"{collective}-gain"] = gain_chart(field)
        middle = field.sizes[len(field.sizes) // 2 + 1] if len(field.sizes) > 2 else field.sizes[-1]
        charts[f"{collective}-nodes"] = rate_chart(field, middle)
    some = [count for count in (8, 32, 128, 512) if count in nodes] or nodes[-1:]
    print("scale: buckets, slices and troubles", file=sys.stderr, flush=True)
    tables["least sizes"] = least_size_table(fields)
    tables["buckets"], series = bucket_table(simulator, some)
    charts["buckets"] = svg(f"All-to-all AllReduce of {size_text(GRADIENTS)}, cut into buckets of …", "ms", series)
    tables["slices"] = slice_table(simulator, some)
    tables["troubles"] = trouble_table(simulator)
    fill_in(arguments.docs / "scale.md", tables)
    folder = arguments.docs / "scale"
    folder.mkdir(exist_ok=True)
    for name, text in charts.items():
        (folder / f"{name}.svg").write_text(text)
    if arguments.json:
        arguments.json.write_text(json.dumps(simulator.runs, indent=1))


if __name__ == "__main__":
    main()
