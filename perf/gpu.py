#!/usr/bin/env python3
"""Measures Weft on a GPU and prints a table in Markdown; where there is no GPU it says so and ends well.

    perf/gpu.py --build build [--nccl /path/libnccl.so.2] [--ranks 2,4,8] [--quick]

The rows: the results of every collective with several ranks that share one GPU, bandwidths beside that of a copy inside
the device, who needs multiprocessors, what a matrix product beside a collective loses, NCCL over Weft's plugin beside
NCCL's own sockets, and the round trip between a stream and a thread. A second table tells what CUDA's driver does with
other calls while a stream waits. The pieces are the perf tools with --device cuda, gpu_probe and gpu_waits (perf/gpu),
which are built where nvcc is. A row that cannot be measured says why.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "gather", "scatter",
               "sendrecv"]
PATIENCE_S = 300
# What carries NCCL's bytes between ranks that it takes for hosts. Without NCCL_NET it would use its sockets where the
# plugin cannot be loaded, and say so only in its log.
OWN_SOCKETS = {"NCCL_NET_PLUGIN": "none", "NCCL_NET": "Socket"}
OVER_PLUGIN = {"NCCL_NET_PLUGIN": "weft", "NCCL_NET": "Weft"}
# NCCL from 2.30 on takes ranks that share a GPU for ranks of one host, if told so.
SHARING = {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}


@dataclass
class Table:
    """Rows as they come: what was measured, the result, and the command that gave it."""
    rows: list = field(default_factory=list)

    def add(self, what, result, command=""):
        self.rows.append((what, result, command))

    def markdown(self):
        lines = ["| what | result | command |", "| --- | --- | --- |"]
        lines += [f"| {what} | {result} | {f'`{command}`' if command else ''} |" for what, result, command in self.rows]
        return "\n".join(lines)


class CannotMeasure(Exception):
    """Why there is no number."""


def run(command, environment=None, patience_s=PATIENCE_S):
    """What a command prints. CannotMeasure with its last words where it fails."""
    settings = {**os.environ, **(environment or {})}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience_s, env=settings, check=False)
    except subprocess.TimeoutExpired:
        raise CannotMeasure(f"not over after {patience_s} s") from None
    except OSError as error:
        raise CannotMeasure(str(error)) from None
    if done.returncode != 0:
        words = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise CannotMeasure(f"exit code {done.returncode}: {words[-1] if words else 'nothing was said'}")
    return done.stdout


def gpu_name():
    """The first GPU's name, or None."""
    if not shutil.which("nvidia-smi"):
        return None
    try:
        names = run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], patience_s=60).splitlines()
    except CannotMeasure:
        return None
    return names[0].strip() if names else None


def bus_bandwidth(output):
    """GB/s of the out-of-place form at the largest size: the last line of numbers of a perf tool."""
    rows = [line.split() for line in output.splitlines() if re.match(r"\s*\d+\s+\d+\s+\w+", line)]
    if not rows:
        raise CannotMeasure("the tool printed no table")
    return float(rows[-1][7])


class Bench:
    """The measurements, over one build."""

    def __init__(self, options):
        self.build = Path(options.build).resolve()
        self.nccl = options.nccl
        self.ranks = [int(r) for r in options.ranks.split(",")]
        self.largest = "64M" if options.quick else "1G"
        self.checked = "16M" if options.quick else "256M"
        self.table = Table()
        self.probe = None

    def tool(self, name):
        return str(self.build / "bin" / name)

    def launcher(self, ranks):
        """Without the ranks' labels, which would stand before the tables' numbers."""
        return [self.tool("weft_run"), "-n", str(ranks), "--timeout", str(PATIENCE_S - 20), "--no-label"]

    def launched(self, ranks, program, *arguments):
        return [*self.launcher(ranks), self.tool(program), *arguments]

    def measure(self, what, command, read, environment=None):
        """A row, from what `command` prints; its number, or None."""
        settings = "".join(f"{name}={value} " for name, value in (environment or {}).items())
        shown = settings + " ".join(word.replace(str(self.build), "build") for word in command)
        try:
            result = read(run(command, environment))
        except (CannotMeasure, ValueError, IndexError) as why:
            self.table.add(what, f"not measured: {why}", shown)
            return None
        self.table.add(what, result, shown)
        return result

    def of_nccl(self, environment):
        """`environment`, and where NCCL and the plugin are."""
        libraries = f"{self.build / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")
        which = {"WEFT_NCCL_LIBRARY": self.nccl} if self.nccl else {}
        return {**environment, "LD_LIBRARY_PATH": libraries, **which}

    def as_hosts(self, ranks, *words):
        """NCCL refuses ranks that share a GPU, unless each has a host's name of its own."""
        script = "NCCL_HOSTID=host$WEFT_RANK exec " + " ".join(words)
        return [*self.launcher(ranks), "sh", "-c", script]

    def find_probe(self):
        if Path(self.tool("gpu_probe")).exists():
            self.probe = self.tool("gpu_probe")
        else:
            self.table.add("gpu_probe", "was not built: there was no nvcc when CMake ran")

    def correctness(self):
        for ranks in self.ranks:
            for nodes in (1, 2):
                for collective in COLLECTIVES:
                    sizes = ["-b", "8", "-e", self.checked, "-f", "8", "-n", "2", "-w", "1"]
                    command = self.launched(ranks, f"{collective}_perf", "--device", "cuda", *sizes)
                    command[3:3] = ["--nodes", str(nodes)]
                    self.measure(f"{collective}, {ranks} ranks on one GPU, {nodes} node{'s' if nodes > 1 else ''}",
                                 command, lambda output: "right")

    def bandwidths(self):
        sizes = ["-b", self.largest, "-e", self.largest]
        if self.probe:
            count = {"64M": 64 << 20, "1G": 1 << 30}[self.largest]
            self.measure(f"copy of {self.largest} inside the device", [self.probe, "copy", str(count)],
                         lambda output: f"{float(output):.1f} GB/s")
        for collective in ("all_gather", "all_reduce"):
            for ranks in self.ranks:
                self.bandwidth(collective, ranks, sizes)

    def bandwidth(self, collective, ranks, sizes):
        """Weft's, and beside it NCCL's in both ways in which it takes ranks that share a GPU."""
        what = f"of {self.largest}, {ranks} ranks on one GPU, bus bandwidth"
        read = lambda output: f"{bus_bandwidth(output):.2f} GB/s"  # noqa: E731
        of_nccl = ["--backend", "nccl", "--device", "cuda", *sizes]
        self.measure(f"{collective} {what}", self.launched(ranks, f"{collective}_perf", "--device", "cuda", *sizes), read)
        self.measure(f"NCCL's {collective} {what}, as ranks of one host (NCCL 2.30)",
                     self.launched(ranks, f"{collective}_perf", *of_nccl), read, self.of_nccl(SHARING))
        self.measure(f"NCCL's {collective} {what}, as hosts over sockets",
                     self.as_hosts(ranks, self.tool(f"{collective}_perf"), *of_nccl), read, self.of_nccl(OWN_SOCKETS))

    def multiprocessors(self):
        if not self.probe:
            return
        for collective in ("all_gather", "reduce_scatter"):
            self.measure(f"{collective} ends while a kernel holds every multiprocessor",
                         [self.probe, "census", collective], lambda output: output.strip())
        for blocks in (1, 4, 16, 64):
            self.measure(f"reduce_scatter of {self.largest}, 2 ranks, at most {blocks} thread blocks, bus bandwidth",
                         self.launched(2, "reduce_scatter_perf", "--device", "cuda", "-b", self.largest, "-e",
                                       self.largest),
                         lambda output: f"{bus_bandwidth(output):.2f} GB/s", {"WEFT_CUDA_BLOCKS": str(blocks)})

    def beside_a_product(self):
        if not self.probe:
            return
        for collective in ("all_gather", "reduce_scatter"):
            for backend in ("weft", "nccl"):
                self.measure(f"loss of a matrix product beside {collective} of 256M, 2 ranks, {backend}",
                             self.as_hosts(2, self.probe, "beside", backend, collective, str(256 << 20)),
                             lambda output: f"{float(output):.1f} %",
                             self.of_nccl(OWN_SOCKETS) if backend == "nccl" else None)

    def plugin(self):
        """NCCL between ranks that it takes for different hosts, over Weft's plugin and over its own sockets."""
        arguments = ["--backend", "nccl", "--device", "cuda", "-b", "8", "-e", self.largest, "-f", "8"]
        for name, environment in (("over Weft's plugin", OVER_PLUGIN), ("over its own sockets", OWN_SOCKETS)):
            self.measure(f"NCCL's all_reduce of {self.largest}, 2 ranks, {name}, bus bandwidth",
                         self.as_hosts(2, self.tool("all_reduce_perf"), *arguments),
                         lambda output: f"{bus_bandwidth(output):.2f} GB/s", self.of_nccl(environment))

    def round_trip(self):
        def of_8_bytes(output):
            return re.findall(r"\n\s*8\s.*", output)[-1].split()[5] + " µs"

        if self.probe:
            self.measure("round trip between a stream and a CPU thread, by flags", [self.probe, "flag"],
                         lambda output: f"{float(output):.2f} µs")
            for size in (64, 1 << 20, 256 << 20):
                for collective in ("all_reduce", "all_gather", "reduce_scatter"):
                    self.measure(f"{collective} of {size} bytes, 2 ranks that are threads of one process",
                                 [self.probe, "threads", "2", collective, str(size)],
                                 lambda output: f"{float(output):.1f} µs")
        self.measure("all_reduce of 8 bytes on a stream, 2 ranks on one GPU",
                     self.launched(2, "all_reduce_perf", "--device", "cuda", "-b", "8", "-e", "8", "-n", "200"),
                     of_8_bytes)
        self.measure("the same in a CUDA graph of 20, launched 10 times",
                     self.launched(2, "all_reduce_perf", "--device", "cuda", "-b", "8", "-e", "8", "-n", "20", "-G", "10"),
                     of_8_bytes)

    def while_a_stream_waits(self):
        """gpu_waits' own table, in Markdown."""
        try:
            return run([self.tool("gpu_waits")])
        except CannotMeasure as why:
            return f"What calls do while a stream waits was not measured: {why}"

    def all(self):
        self.find_probe()
        for part in (self.correctness, self.bandwidths, self.multiprocessors, self.beside_a_product, self.plugin,
                     self.round_trip):
            part()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="the build folder, with the perf tools")
    parser.add_argument("--nccl", default="", help="NCCL's library; without it as the linker finds it")
    parser.add_argument("--ranks", default="2,4,8", help="numbers of ranks that share the GPU")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, some minutes in all")
    options = parser.parse_args()
    if not re.fullmatch(r"\d+(,\d+)*", options.ranks):
        parser.error(f"--ranks is '{options.ranks}', must be numbers with commas between, such as 2,4,8")
    name = gpu_name()
    if not name:
        print("There is no GPU here (nvidia-smi lists none): nothing was measured.")
        return 0
    missing = [tool for tool in ["weft_run", *(f"{c}_perf" for c in COLLECTIVES)]
               if not (Path(options.build) / "bin" / tool).exists()]
    if missing:
        print(f"{options.build}/bin has no {', '.join(missing)}: build them first, or name the folder with --build.",
              file=sys.stderr)
        return 2
    bench = Bench(options)
    bench.all()
    print(f"Weft on one {name}, the ranks of a row sharing it.\n")
    print(bench.table.markdown())
    print(f"\nCalls while a stream waits:\n\n{bench.while_a_stream_waits()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
