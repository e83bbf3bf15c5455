#!/usr/bin/env python3
"""Does the tuner pick the right algorithm? Measures every candidate, and compares picks and predictions with that.

  perf/tuner_check.py [--build build] [--scenarios shm2,shm4,shm8,nodes2x2,cluster4] [--collectives ...] [--sizes ...]
                      [--rounds 3] [--json FILE]

Scenarios: shmN is N ranks over shared memory; nodesMxG pretends M nodes of G ranks on this machine, over TCP; clusterM
is M network namespaces of one rank with 500 Mbit/s each (clusterMxG: of G ranks; needs root, see scripts/cluster.sh).
Every algorithm is pinned in turn by WEFT_ALGO, one launch for a group of sizes, launches of all algorithms alternating;
a cell's time is the median over rounds. `pick` is what the tuner uses without pins, and a pick is right when its time is
within 10 % of the best candidate's. `error` is |predicted - measured| / measured, over all candidates and for the picks
alone. Slices count as candidates with --slices: the fastest algorithms are then also measured with each of them.
Times are microseconds, means over blocking calls in one launch, the slowest rank's.
"""
import argparse, json, os, pathlib, statistics, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLLECTIVES = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter",
               "alltoall": "alltoall", "broadcast": "broadcast"}
SIZES = ["128", "1K", "8K", "64K", "512K", "4M", "32M"]
CLUSTER_SIZES = ["1K", "16K", "256K", "1M", "4M"]
# Sizes up to the first number are measured in one launch with so many iterations and warm-ups.
GROUPS = [(16 << 10, 600, 100), (1 << 20, 100, 10), (8 << 20, 15, 2), (1 << 40, 3, 1)]
CLUSTER_GROUPS = [(16 << 10, 60, 10), (1 << 20, 8, 2), (1 << 40, 3, 1)]


def bytes_of(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def text_of(size):
    for unit, letter in ((1 << 20, "M"), (1 << 10, "K")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{letter}"
    return str(size)


class Scenario:
    def __init__(self, name, build):
        self.name, self.bin = name, build / "bin"
        self.cluster = name.startswith("cluster")
        shape = name.removeprefix("cluster").removeprefix("nodes").removeprefix("shm").split("x")
        if name.startswith("shm"):
            self.nodes, self.ranks = 1, int(shape[0])
        else:
            self.nodes = int(shape[0])
            self.ranks = self.nodes * (int(shape[1]) if len(shape) > 1 else 1)
        self.groups = CLUSTER_GROUPS if self.cluster else GROUPS

    def up(self):
        if self.cluster:
            subprocess.run([ROOT / "scripts/cluster.sh", "up", str(self.nodes), "500mbit"], check=True)

    def down(self):
        if self.cluster:
            subprocess.run([ROOT / "scripts/cluster.sh", "down"], check=False)

    def launch(self, collective, sizes, iterations, warmup, environment):
        """{size: (µs, algorithm, predicted µs)}; sizes that are not powers of a factor apart are launched one by one."""
        if len(sizes) > 1:
            factor = sizes[1] // sizes[0]
            if any(b != a * factor for a, b in zip(sizes, sizes[1:])) or factor < 2:
                results = {}
                for size in sizes:
                    results.update(self.launch(collective, [size], iterations, warmup, environment))
                return results
        with tempfile.TemporaryDirectory() as folder:
            output = pathlib.Path(folder) / "result.json"
            perf = [self.bin / f"{COLLECTIVES[collective]}_perf", "-b", sizes[0], "-e", sizes[-1], "-n", iterations,
                    "-w", warmup, "-c", 0, "-a", 3, "-J", output]
            if len(sizes) > 1:
                perf += ["-f", sizes[1] // sizes[0]]
            if self.cluster:
                command = [ROOT / "scripts/cluster.sh", "run", self.ranks] + perf
            else:
                command = [self.bin / "weft_run", "-n", self.ranks, "--nodes", self.nodes, "--no-label"] + perf
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300,
                                  env={**os.environ, "WEFT_RECORDER_DIR": "none", **environment})
            if done.returncode != 0:
                raise RuntimeError(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stderr[-800:]}")
            rows = json.loads(output.read_text())["results"]
        return dict(zip(sizes, ((row["out_of_place"]["time"], row["algorithm"], row.get("predicted_us")) for row in rows)))


def algorithms(build, collective):
    listed = json.loads(subprocess.run([build / "bin/weft_info", "--algorithms", "--json"], capture_output=True, text=True,
                                       check=True).stdout)["algorithms"]
    return next(list(found) for name, found in listed.items() if name.lower() == collective)


def check(scenario, collective, sizes, rounds, slices, build):
    sizes = sorted({max(size, 4 * scenario.ranks) for size in sizes})
    times = {size: {} for size in sizes}        # size → candidate → [µs]
    predicted = {size: {} for size in sizes}    # size → candidate → µs
    picks = {}
    names = algorithms(build, collective)
    settings = [(name, {"WEFT_ALGO": f"{collective}={name}"}) for name in names]
    settings += [(f"{name}/{slice_}", {"WEFT_ALGO": f"{collective}={name}", "WEFT_SLICE_BYTES": slice_})
                 for name in names for slice_ in slices]
    settings.append((None, {}))
    lowest = 0
    groups = []
    for highest, iterations, warmup in scenario.groups:
        group = [size for size in sizes if lowest < size <= highest]
        if group:
            groups.append((group, iterations, warmup))
        lowest = highest
    for turn in range(rounds):
        for group, iterations, warmup in groups:
            for name, environment in settings[turn % len(settings):] + settings[:turn % len(settings)]:
                if name is not None and "/" in name:
                    if group[-1] < 256 << 10:
                        continue
                try:
                    results = scenario.launch(collective, group, iterations, warmup, environment)
                except (subprocess.TimeoutExpired, RuntimeError) as failure:
                    print(f"\n{scenario.name} {collective} {name}: {failure}", file=sys.stderr)
                    continue
                for size, (us, used, prediction) in results.items():
                    if name is None:
                        picks.setdefault(size, []).append(used)
                        continue
                    if used != name.split("/")[0]:
                        continue  # it does not fit this size
                    times[size].setdefault(name, []).append(us)
                    if prediction:
                        predicted[size][name] = prediction
                print(f"\r{scenario.name} {collective} round {turn + 1}: {name}          ", end="", file=sys.stderr, flush=True)
    rows = []
    for size in sizes:
        medians = {name: statistics.median(values) for name, values in times[size].items()}
        if not medians or size not in picks:
            continue
        pick = statistics.mode(picks[size])
        best = min(medians, key=medians.get)
        rows.append({"collective": collective, "bytes": size, "us": medians, "predicted_us": predicted[size], "pick": pick,
                     "best": best, "ratio": medians[pick] / medians[best] if pick in medians else None})
    return rows


def percentile(values, share):
    return sorted(values)[min(int(share * len(values)), len(values) - 1)] if values else float("nan")


def summary(rows):
    ratios = [row["ratio"] for row in rows if row["ratio"]]
    errors, pick_errors = [], []
    for row in rows:
        for name, prediction in row["predicted_us"].items():
            error = abs(prediction - row["us"][name]) / row["us"][name]
            errors.append(error)
            if name == row["pick"]:
                pick_errors.append(error)
    return {"cells": len(ratios), "right": sum(ratio <= 1.1 for ratio in ratios),
            "error_median": percentile(errors, 0.5), "error_90": percentile(errors, 0.9),
            "pick_error_median": percentile(pick_errors, 0.5), "pick_error_90": percentile(pick_errors, 0.9)}


def table(rows):
    lines = ["| collective | size | pick | best | pick / best | every candidate: measured (predicted) |", "|" + " --- |" * 6]
    for row in rows:
        candidates = ", ".join(
            f"{name} {us:.4g}" + (f" ({row['predicted_us'][name]:.4g})" if name in row["predicted_us"] else "")
            for name, us in sorted(row["us"].items(), key=lambda item: item[1]))
        ratio = f"{row['ratio']:.2f}" if row["ratio"] else "-"
        lines.append(f"| {row['collective']} | {text_of(row['bytes'])} | {row['pick']} | {row['best']} | {ratio} | {candidates} |")
    return "\n".join(lines)


def sentence(name, result):
    return (f"{name}: {result['right']} of {result['cells']} picks within 10 % of the best; error of predictions "
            f"{100 * result['error_median']:.0f} % (median), {100 * result['error_90']:.0f} % (90th percentile); of the picks' "
            f"{100 * result['pick_error_median']:.0f} %, {100 * result['pick_error_90']:.0f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--scenarios", default="shm2,shm4,shm8")
    parser.add_argument("--collectives", default=",".join(COLLECTIVES))
    parser.add_argument("--sizes", help="such as 128,8K,4M; the default depends on the scenario")
    parser.add_argument("--slices", default="", help="values of WEFT_SLICE_BYTES to try as well, such as 128K,2M")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    slices = [text for text in arguments.slices.split(",") if text]
    results = {}
    for name in arguments.scenarios.split(","):
        scenario = Scenario(name, build)
        default = CLUSTER_SIZES if scenario.cluster else SIZES
        sizes = [bytes_of(text) for text in (arguments.sizes.split(",") if arguments.sizes else default)]
        rows = []
        scenario.up()
        try:
            for collective in arguments.collectives.split(","):
                rows += check(scenario, collective, sizes, arguments.rounds, slices, build)
        finally:
            scenario.down()
        print(file=sys.stderr)
        results[name] = {"rows": rows, "summary": summary(rows)}
        print(f"### {name}\n\n{table(rows)}\n\n{sentence(name, results[name]['summary'])}\n", flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps({"when": time.strftime("%F %T"), "scenarios": results}, indent=1))
    every = [row for result in results.values() for row in result["rows"]]
    print(sentence("all", summary(every)))


if __name__ == "__main__":
    main()
