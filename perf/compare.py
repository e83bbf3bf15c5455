#!/usr/bin/env python3
"""Weft beside its peers, in alternation, in one run; prints a table in Markdown and writes JSON.

  perf/compare.py [--build build] [--scenarios shm2,shm4,cluster4,cluster8] [--rounds 3] [--json FILE]

Scenarios: shmN is N ranks on this machine over shared memory; clusterN is N nodes of one rank as network namespaces with
500 Mbit/s each (needs root, see scripts/cluster.sh). Peers: every one of Open MPI and MPICH that is installed (Open MPI
alone on clusters). A cell is the median over rounds of the mean time of back-to-back blocking calls; every launch checks
its results. Times are microseconds; the ratio is Weft's time over the best peer's, so below 1 Weft is faster.
"""
import argparse, json, os, pathlib, shutil, statistics, subprocess, sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter"]
SHM_SIZES = [8, 128, 1 << 10, 16 << 10, 256 << 10, 4 << 20, 64 << 20, 256 << 20]
CLUSTER_SIZES = [1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20]
RATE_BITS = 500e6


def iterations(size, cluster):
    if cluster:
        return 50 if size <= 16 << 10 else 10 if size <= 1 << 20 else 3
    return 1000 if size <= 1 << 10 else 200 if size <= 256 << 10 else 20 if size <= 4 << 20 else 3


def run(command, environment=None, timeout=120):
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env={**os.environ, **(environment or {})})
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout[-800:]}{done.stderr[-800:]}")
    return done.stdout


class Weft:
    name = "Weft"

    def __init__(self, build):
        self.bin = build / "bin"

    def launch(self, ranks, cluster, collective, size):
        size = max(size, 4 * ranks)
        perf = [self.bin / f"{collective}_perf", "-b", size, "-e", size, "-n", iterations(size, cluster), "-w", 3, "-c", 1]
        if cluster:
            command = [ROOT / "scripts/cluster.sh", "run", ranks] + perf
        else:
            command = [self.bin / "weft_run", "-n", ranks, "--no-label"] + perf
        for line in run([str(word) for word in command]).splitlines():
            words = line.split()
            if len(words) >= 9 and words[0].isdigit():
                return float(words[5])
        raise RuntimeError("no result line")


class Mpi:
    def __init__(self, build, name, wrapper, launcher):
        self.name, self.launcher = name, launcher
        self.program = build / f"mpi_perf.{wrapper.split('.')[-1]}"
        run([wrapper, "-O2", "-std=c++17", str(ROOT / "perf/peers/mpi_perf.cc"), "-o", str(self.program)])

    def launch(self, ranks, cluster, collective, size):
        size = max(size, 4 * ranks)
        command = self.launcher(ranks, cluster) + [self.program, collective, size, iterations(size, cluster), 3]
        return float(run([str(word) for word in command]).split()[1])


def open_mpi(ranks, cluster):
    command = ["mpirun.openmpi", "--allow-run-as-root", "-np", ranks, "--mca", "btl_base_warn_component_unused", "0"]
    if cluster:
        addresses = run([str(ROOT / "scripts/cluster.sh"), "exec", "0", "ip", "-4", "-o", "address", "show", "eth0"]).split()[3]
        subnet = addresses.rsplit(".", 1)[0]
        hosts = ",".join(f"{subnet}.{node + 1}:1" for node in range(ranks))
        return command + ["--host", hosts, "--bind-to", "none", "--mca", "pml", "ob1", "--mca", "btl", "tcp,self",
                          "--mca", "plm_rsh_agent", ROOT / "perf/peers/namespace_agent.sh",
                          "--mca", "oob_tcp_if_include", f"{subnet}.0/24", "--mca", "btl_tcp_if_include", f"{subnet}.0/24",
                          "--mca", "mpi_yield_when_idle", "1", "-x", "CLUSTER"]
    if ranks <= os.cpu_count():
        return command + ["--bind-to", "core"]
    return command + ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]


def mpich(ranks, cluster):
    return ["mpiexec.hydra", "-n", ranks] + (["-bind-to", "core"] if ranks <= os.cpu_count() else [])


def peers_for(build, cluster):
    peers = []
    if shutil.which("mpirun.openmpi") and shutil.which("mpicxx.openmpi"):
        peers.append(Mpi(build, "Open MPI", "mpicxx.openmpi", open_mpi))
    if not cluster and shutil.which("mpiexec.hydra") and shutil.which("mpicxx.mpich"):
        peers.append(Mpi(build, "MPICH", "mpicxx.mpich", mpich))
    return peers


def line_time_us(collective, nodes, size):
    """What the bytes that each node must send or receive take at the line rate."""
    hops = 2 if collective == "all_reduce" else 1
    return hops * (nodes - 1) / nodes * size * 8 / RATE_BITS * 1e6


def text_of(size):
    for unit, letter in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {letter}"
    return f"{size} B"


def measure(scenario, systems, rounds):
    cluster = scenario.startswith("cluster")
    ranks = int(scenario.removeprefix("cluster").removeprefix("shm"))
    sizes = CLUSTER_SIZES if cluster else SHM_SIZES
    rows = []
    for collective in COLLECTIVES:
        for size in sizes:
            times = {system.name: [] for system in systems}
            for _ in range(rounds):
                for system in systems:
                    try:
                        times[system.name].append(system.launch(ranks, cluster, collective, size))
                    except subprocess.TimeoutExpired:
                        pass
            medians = {name: statistics.median(values) for name, values in times.items() if values}
            best = min((value for name, value in medians.items() if name != "Weft"), default=None)
            row = {"collective": collective, "bytes": size, "us": medians,
                   "ratio": medians["Weft"] / best if best and "Weft" in medians else None}
            if cluster:
                row["share_of_line_rate"] = {n: line_time_us(collective, ranks, size) / t for n, t in medians.items()}
            rows.append(row)
            print(f"\r{scenario}: {collective} {text_of(size)}   ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return rows


def table(scenario, rows, names):
    cluster = scenario.startswith("cluster")
    head = ["collective", "size"] + names + ["Weft / best peer"] + (["Weft's share of line rate"] if cluster else [])
    lines = [f"### {scenario}", "", "| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for row in rows:
        cells = [row["collective"], text_of(row["bytes"])]
        cells += [f"{row['us'][n]:.4g}" if n in row["us"] else "-" for n in names]
        cells.append(f"{row['ratio']:.2f}" if row["ratio"] else "-")
        if cluster:
            cells.append(f"{100 * row['share_of_line_rate'].get('Weft', 0):.0f} %")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--scenarios", default="shm2,shm4,cluster4,cluster8")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    os.environ.setdefault("WEFT_RECORDER_DIR", "none")
    results = {}
    for scenario in arguments.scenarios.split(","):
        cluster = scenario.startswith("cluster")
        systems = [Weft(arguments.build.resolve())] + peers_for(arguments.build.resolve(), cluster)
        if cluster:
            run([str(ROOT / "scripts/cluster.sh"), "down"])
            run([str(ROOT / "scripts/cluster.sh"), "up", scenario.removeprefix("cluster"), "500mbit"])
        try:
            results[scenario] = measure(scenario, systems, arguments.rounds)
        finally:
            if cluster:
                run([str(ROOT / "scripts/cluster.sh"), "down"])
        print(table(scenario, results[scenario], [system.name for system in systems]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
