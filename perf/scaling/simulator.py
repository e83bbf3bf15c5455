"""weft_sim asked from Python, and what stands for ring, tree and all-to-all in each collective."""
from __future__ import annotations

import copy
import json
import pathlib
import subprocess
import tempfile

from comparison.document import read
from comparison.scenarios import KIB, MIB, UsageError
from comparison.systems import ROOT

GIB = 1 << 30
TITLES = {"allgather": "AllGather", "reducescatter": "ReduceScatter", "allreduce": "AllReduce"}
# What stands for "tree": partners at doubling distances are to gather and scatter what a tree is to reduce.
TREES = {"allgather": "recursive_doubling", "reducescatter": "recursive_halving", "allreduce": "double_tree"}
MESH = "all_to_all"


def size_text(size: float) -> str:
    for unit, letters in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:.3g} {letters}"
    return f"{size:.3g} B"


def contestants(collective: str) -> list[str]:
    return [MESH, "ring", TREES[collective]]


def line_us(machine: dict, row: dict) -> float:
    """What the bytes that must enter each node take at the rate of its interfaces."""
    times = 2 if row["collective"].lower() == "allreduce" else 1
    rate = machine["nic_bytes_per_us"] * machine["rails"]
    return times * row["bytes"] * (row["nodes"] - 1) / row["nodes"] / rate


class Simulator:
    """Answers of one cluster: one that weft_sim knows by name, or a file. `runs` keeps all of them."""

    def __init__(self, build: pathlib.Path, cluster: str) -> None:
        self.program, self.cluster, self.runs = build / "bin/weft_sim", cluster, []

    def rows(self, collective: str, sizes: list[str], nodes: list[int], algorithms: list[str] | None = None,
             *more: str) -> list[dict]:
        """A row for each size, number of nodes and algorithm (None: every one), as weft_sim --json writes it, with
        "line_us" besides. Sizes that cannot be shared out among the ranks have none."""
        command = [str(self.program), self.cluster, "--json", "-c", collective, "-s", ",".join(sizes),
                   "--nodes", ",".join(map(str, nodes)), *more]
        if algorithms:
            command += ["-a", ",".join(algorithms)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise UsageError(f"{' '.join(command)}: {done.stderr.strip()}")
        document = json.loads(done.stdout)
        for row in document["rows"]:
            row["line_us"] = line_us(document["machine"], row)
        self.runs.append({"command": command[1:], **document})
        return document["rows"]

    def description(self) -> dict:
        """The cluster's file as it stands."""
        shipped = ROOT / "clusters" / f"{self.cluster}.json"
        path = shipped if shipped.exists() else pathlib.Path(self.cluster)
        return read(path)

    def changed(self, key: str, factor: float) -> Changed:
        """The same cluster with one number of its machine ("inter.alpha_us") times `factor`."""
        return Changed(self, key, factor)


class Changed:
    """A simulator of another description, for as long as it is entered."""

    def __init__(self, base: Simulator, key: str, factor: float) -> None:
        self.base = base
        self.document = copy.deepcopy(base.description())
        *sections, name = key.split(".")
        parent = self.document.setdefault("machine", {})
        for section in sections:
            parent = parent.setdefault(section, {})
        if name not in parent:
            raise UsageError(f"{base.cluster}: machine.{key} is missing; state it to see how much it matters")
        stated = parent[name]
        parent[name] = factor * (stated["value"] if isinstance(stated, dict) else stated)

    def __enter__(self) -> Simulator:
        self.file = tempfile.NamedTemporaryFile("w", suffix=".json")
        json.dump(self.document, self.file)
        self.file.flush()
        simulator = Simulator(self.base.program.parent.parent, self.file.name)
        simulator.runs = self.base.runs
        return simulator

    def __exit__(self, *error: object) -> None:
        self.file.close()
