#!/usr/bin/env python3
"""Measures Weft and Loom on a GPU within a quarter of an hour, on a machine without a network.

    perf/gpu/quarter_hour.sh --stage prepare [--build build] [--kit build/gpu-kit]       makes build/gpu-kit.tar.xz
    perf/gpu/quarter_hour.sh [--out DIR] [--only STEP,GROUP,...] [--budget SECONDS] [--done FILE] [--fake] [--list]

prepare builds the programs and collects them in the kit, whose archive is what the machine needs beside the sources. run does the steps of perf/gpu/steps.py in their order, each within
its own time limit, and writes DIR/results.jsonl (a line for each step, at once), DIR/output.log (what the steps printed),
DIR/running.log (what the step under way prints) and
DIR/report.md. A run goes on with what earlier ones have not done: a
step that is ok in DIR/results.jsonl or in a file of --done is left out, and one that was cut off or failed comes last. The
kit is used where it runs, else the build folder, else what a build on the machine gives. Exit code 1: a step failed.
"""
import argparse
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import gpu_report  # noqa: E402
from gpu import kit, limited, readers, results  # noqa: E402
from gpu.steps import ALL, GROUPS, SIZES, TOOLS, Step  # noqa: E402

ROOT = kit.ROOT
FACTS = Step("machine", "environment", 60, 0, "What is on the machine", ("python3", "-B", "{root}/perf/gpu/facts.py", "{driver}"),
             readers.json_rows)
BUILD_LIMIT_S = 240
LAST_LINES = 12
# Bytes of a step's output that are read, and that are kept. Results may have to be carried as small files.
MOST_OF_A_LOG, KEPT_OF_A_LOG = 8 << 20, 256 << 10


def shortened(log, most):
    """The begin and the end of a log that is longer than `most` bytes."""
    if len(log) <= most:
        return log
    return log[:most // 2] + f"\n... {len(log) - most} bytes are left out ...\n".encode() + log[-(most // 2):]


class CutOff(Exception):
    """The run was asked to end."""


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stage", choices=("run", "prepare"), default="run")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu-results")
    parser.add_argument("--only", default="", help="names of steps or groups, with commas between")
    parser.add_argument("--budget", type=float, default=540, help="seconds for all steps")
    parser.add_argument("--done", type=Path, nargs="*", default=[], help="results of earlier runs elsewhere")
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="a build folder")
    parser.add_argument("--kit", type=Path, default=ROOT / "build" / "gpu-kit")
    parser.add_argument("--no-build", action="store_true", help="prepare collects what the build folder has")
    parser.add_argument("--fake", action="store_true", help="on the tests' driver, at small sizes, from the build folder")
    parser.add_argument("--list", action="store_true", help="print the steps and end")
    options = parser.parse_args()
    options.only = [name for name in options.only.split(",") if name]
    known = {step.name for step in ALL} | set(GROUPS)
    if unknown := [name for name in options.only if name not in known]:
        parser.error(f"--only names {unknown[0]}, must name steps or groups of --list")
    if not options.budget > 0:
        parser.error(f"--budget is {options.budget}, must be positive")
    return options


def prepare(options):
    try:
        if not options.no_build:
            kit.build(options.build)
        for lack in kit.collect(options.build, options.kit):
            print(f"the kit has no {lack}")
        kit.check(options.kit)
        archive = kit.pack(options.kit)
    except kit.KitError as why:
        print(f"quarter_hour: {why}", file=sys.stderr)
        return 1
    print(f"{archive}: {archive.stat().st_size / (1 << 20):.1f} MiB, needs glibc {kit.glibc_of(options.kit)} or newer")
    return 0


class Run:
    """One run over the steps. `facts` and `programs` are what was found on the machine."""

    def __init__(self, options):
        self.options = options
        self.until = time.monotonic() + options.budget
        options.out.mkdir(parents=True, exist_ok=True)
        self.scratch = Path(tempfile.mkdtemp(prefix="quarter_hour."))
        path = options.out / "results.jsonl"
        self.results = results.Results(path)
        self.before = results.read([*options.done, path])
        self.driver = str(options.build.resolve() / "lib" / "libfake_cuda.so") if options.fake else "libcuda.so.1"
        self.facts, self.programs, self.no_programs = {}, None, "nothing was looked for"
        self.any_failed = False

    # ---- what a step is run with ----

    def names(self):
        folder = self.programs.folder if self.programs else Path("/nowhere")
        sizes = {name: of_both[1 if self.options.fake else 0] for name, of_both in SIZES.items()}
        tools = {name: self.facts.get(name) or name for name in TOOLS}
        return {"bin": folder / "bin", "lib": folder / "lib", "root": ROOT, "driver": self.driver, **tools, **sizes}

    def words(self, step):
        """A step's command; a word that stands for nothing here is left out."""
        filled = [word.format(**self.names()) for word in step.command]
        return [word for asked, word in zip(step.command, filled) if word or not asked]

    def environment(self, step):
        ours = {"WEFT_RECORDER_DIR": "none", "WEFT_TUNE_CACHE": str(self.scratch / "tuning"), "WEFT_CUDA_LIBRARY": self.driver,
                "XDG_CACHE_HOME": str(self.scratch / "cache"), "PYTHONUNBUFFERED": "1"}
        if self.options.fake:
            library = self.options.build.resolve() / "lib"
            ours.update(FAKE_CUDA_DEVICES="1", FAKE_CUDA_DELAY_US="0", LOOM_CUBLASLT_LIBRARY=str(library / "libfake_cublaslt.so"),
                        LOOM_CUDNN_LIBRARY=str(library / "libfake_cudnn.so"),
                        FAKE_CUDA_KERNEL_LIBRARY=str(library / "libloom_emulated.so"))
        if self.programs:
            ours.update(self.programs.environment())
        for library in ("cuBLASLt", "cuDNN"):
            if self.facts.get(f"{library}'s file") and not self.options.fake:
                ours[f"LOOM_{library.upper()}_LIBRARY"] = self.facts[f"{library}'s file"]
        if self.facts.get("NCCL's file"):
            ours["WEFT_NCCL_LIBRARY"] = self.facts["NCCL's file"]
        return {**os.environ, **ours, **{name: value.format(**self.names()) for name, value in step.environment.items()}}

    # ---- which steps are run ----

    def missing(self, step):
        """Why a step cannot be run on this machine, or None."""
        if not isinstance(self.facts.get("devices"), list):
            return self.facts.get("devices") or "the machine's facts do not say whether there is a GPU"
        for need in step.needs:
            if need == "Loom's kernels":
                if self.programs and not self.programs.has("gpu_probe"):
                    return "these programs were built without nvcc"
                continue
            if need == "cuDNN":
                if not self.options.fake and not self.facts.get("cuDNN's file"):
                    return "there is no cuDNN here"
                continue
            if self.options.fake:
                return f"the tests' driver is not enough for {need}"
            if need == "NCCL" and not self.facts.get("NCCL"):
                return "there is no NCCL here"
            if need == "torch" and not self.facts.get("torch"):
                return "there is no PyTorch here"
            if need in TOOLS and not self.facts.get(need):
                return f"there is no {need} here"
        if not self.programs:
            return self.no_programs
        lacks = [name for name in re.findall(r"\{bin\}/(\w+)", " ".join(step.command)) if not self.programs.has(name)]
        return f"{self.programs.folder} has no {lacks[0]}" if lacks else None

    def in_order(self):
        """Steps that have not been tried come first."""
        asked = [step for step in ALL if not self.options.only or step.name in self.options.only or step.group in self.options.only]
        tried = ("failed", "timeout", "started")
        status = {name: line["status"] for name, line in self.before.items()}
        left = [step for step in asked if status.get(step.name) != "ok"]
        return sorted(left, key=lambda step: status.get(step.name) in tried)

    def all(self):
        self.machine()
        for step in self.in_order():
            left = self.until - time.monotonic()
            usual = min(step.usual_s, 2) if self.options.fake else step.usual_s
            if why := self.missing(step):
                self.skip(step, why)
            elif left < usual:
                self.skip(step, f"{max(0, left):.0f} s of the budget are left, it takes {usual} s")
            else:
                self.one(step, min(step.limit_s, left))

    def machine(self):
        """The machine's facts, and where the programs are."""
        line = self.one(FACTS, FACTS.limit_s)
        # Without facts, the steps show whether there is a GPU.
        self.facts = line["values"]["rows"][-1] if line["status"] == "ok" else {"devices": ["a card that is not known"]}
        if not isinstance(self.facts.get("devices"), list):
            return
        folders = [self.options.build] if self.options.fake else [self.options.kit, self.options.build]
        try:
            kit.unpack(self.options.kit)
            self.programs = kit.find(folders)
        except kit.KitError as why:
            self.no_programs = f"no programs run here: {why}"
            self.build_here(str(why))
        else:
            self.results.add(step="programs", group="environment", status="ok", seconds=0,
                             values={"kind": "rows", "rows": [{"folder": str(self.programs.folder),
                                                               "own C++ runtime": self.programs.own_gcc}]})

    def build_here(self, why):
        """Builds on the machine if the kit does not run; the libraries of scripts/deps.sh must be there."""
        folder = ROOT / "build" / "gpu-build"
        targets = " ".join((*kit.TARGETS, *kit.OF_NVCC))
        script = f"cmake -S {ROOT} -B {folder} -G Ninja && cmake --build {folder} --target {targets}"
        step = Step("programs", "environment", BUILD_LIMIT_S, 0, f"A build on the machine, because {why}", ("sh", "-c", script),
                    readers.lines)
        if self.one(step, min(step.limit_s, self.options.budget / 2))["status"] == "ok":
            self.programs = kit.Programs(folder)

    # ---- a step ----

    def skip(self, step, why):
        self.record(step, status="skipped", seconds=0, reason=why)

    def record(self, step, **line):
        devices = self.facts.get("devices")
        self.results.add(step=step.name, group=step.group, card=devices[0] if isinstance(devices, list) else None, **line)
        print(f"{line['status']:8} {step.name} {line.get('reason', '')}".rstrip(), flush=True)
        try:
            gpu_report.write(self.options.out / "report.md", [*self.options.done, self.options.out / "results.jsonl"])
        except Exception as why:  # noqa: BLE001  the page can be written later, from the results; the steps cannot
            print(f"quarter_hour: the page was not written: {why!r}", file=sys.stderr, flush=True)

    def one(self, step, limit_s):
        """Runs a step and records it. Returns its line."""
        self.results.add(step=step.name, group=step.group, status="started")
        log = self.options.out / "running.log"
        words = self.words(step)
        settings = " ".join(f"{name}={value.format(**self.names())}" for name, value in step.environment.items())
        line = {"command": f"{settings} {' '.join(words)}".strip().replace(str(ROOT) + "/", "")}
        ended, cut_off = None, None
        try:
            with open(log, "wb") as output:
                ended = limited.run(words, self.environment(step), limit_s, output, self.scratch)
        except OSError as why:
            line.update(status="failed", seconds=0, reason=str(why))
        except CutOff as why:
            cut_off = why
            line.update(status="timeout", seconds=0, reason=str(why))
        text = shortened(log.read_bytes(), MOST_OF_A_LOG).decode(errors="replace")
        log.unlink()
        self.keep(step, text)
        if ended:
            line.update(self.judge(step, ended, text))
        if line["status"] != "ok":
            self.any_failed = True
            line["last_lines"] = text.splitlines()[-LAST_LINES:]
        self.record(step, **line)
        if cut_off:
            raise cut_off
        return line

    def judge(self, step, ended, text):
        """A step's status and values. Values are read of a step that failed, too: part of its work may be done."""
        line = {"status": "ok", "seconds": round(ended.seconds, 2)}
        if ended.timed_out:
            line.update(status="timeout", reason=f"not over after {ended.seconds:.0f} s")
            if ended.code is None:
                line["reason"] += ", and could not be ended"
        elif ended.code != 0:
            line.update(status="failed", reason=f"exit code {ended.code}")
        try:
            line["values"] = step.read(text)
        except readers.Unreadable as why:
            if line["status"] == "ok":
                line.update(status="failed", reason=str(why))
        return line

    def keep(self, step, text):
        """Adds a step's output to the log of all."""
        with open(self.options.out / "output.log", "ab") as kept:
            kept.write(f"==== {step.name} ====\n".encode() + shortened(text.encode(), KEPT_OF_A_LOG) + b"\n")


def run(options):
    def cut_off(number, _):
        raise CutOff(f"the run was ended by {signal.Signals(number).name}")

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, cut_off)
    limited.adopt_orphans()
    this = Run(options)
    try:
        this.all()
    except CutOff as why:
        print(f"quarter_hour: {why}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(this.scratch, ignore_errors=True)
    print(f"{options.out}/report.md has the tables")
    return int(this.any_failed)


def main():
    options = parse_arguments()
    if options.list:
        for step in ALL:
            print(f"{step.name:32} {step.group:16} {step.limit_s:4} s  {step.asks}")
        return 0
    return prepare(options) if options.stage == "prepare" else run(options)


if __name__ == "__main__":
    sys.exit(main())
