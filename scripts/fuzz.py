#!/usr/bin/env python3
"""Runs the fuzzers of a build directory, one after the other: fuzz.py BUILD [--seconds S] [TARGET...].

BUILD is configured with -DWEFT_FUZZ=ON (`make fuzz` does it). The time is shared equally. A target begins with
tests/fuzz/corpus/TARGET and with what earlier runs have kept in BUILD/corpus/TARGET. Inputs that are findings lie in
BUILD/findings; after a finding the target goes on with the rest of its time. A line tells the progress every ten seconds. Ends
with a table. The exit code is 1 if there are findings, and 77 without fuzzers.
"""
import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONGEST_INPUT, LEAST_SECONDS = 8192, 2
ENVIRONMENT = {
    "WEFT_LOG": "none", "WEFT_TUNE": "off", "WEFT_RECORDER_DIR": "none",
    "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1:intercept_tls_get_addr=0",  # see test_sanitized.sh
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


class Target:
    """One fuzzer, and what its runs have said."""

    def __init__(self, build, program):
        self.name = program.name.removeprefix("fuzz_")
        self.program, self.build = program, build
        self.executions = self.edges = 0
        self.seconds = 0.0
        self.findings, self.reasons = [], []

    def run(self, seconds, tell):
        """Runs until the time is over, through findings."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) >= LEAST_SECONDS:
            begin = time.monotonic()
            finding = self.run_once(left, tell)
            self.seconds += time.monotonic() - begin
            if not finding:
                return

    def run_once(self, seconds, tell):
        kept, found = self.build / "corpus" / self.name, self.build / "findings"
        for folder in (kept, found):
            folder.mkdir(parents=True, exist_ok=True)
        command = [self.program, kept, ROOT / "tests/fuzz/corpus" / self.name, f"-max_total_time={int(seconds)}",
                   f"-max_len={LONGEST_INPUT}", "-timeout=20", "-rss_limit_mb=2048", "-malloc_limit_mb=512",
                   f"-artifact_prefix={found}/{self.name}-"]
        before, reason = self.executions, ""
        with subprocess.Popen([str(word) for word in command], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
                              errors="replace", env={**os.environ, **ENVIRONMENT}) as process:
            for line in process.stderr:
                if status := re.match(r"#(\d+)\s.*cov: (\d+)", line):
                    self.executions, self.edges = before + int(status[1]), max(self.edges, int(status[2]))
                    tell(self)
                if not reason and re.search(r"ERROR: |runtime error: |does not hold: ", line):
                    reason = line.strip()
                if written := re.search(r"Test unit written to (\S+)", line):
                    self.findings.append(written[1])
                    self.reasons.append(reason)
                    reason = ""
        if process.returncode != 0 and not self.findings:
            self.findings.append("-")
            self.reasons.append(reason or f"exit code {process.returncode}")
        return process.returncode != 0


def main():
    parser = argparse.ArgumentParser(description="Runs the fuzzers of a build directory.")
    parser.add_argument("build", type=Path)
    parser.add_argument("--seconds", type=float, default=600, help="for all together (600)")
    parser.add_argument("targets", nargs="*", help="only these")
    arguments = parser.parse_intermixed_args()
    programs = sorted((arguments.build / "bin").glob("fuzz_*"))
    targets = [Target(arguments.build, program) for program in programs]
    if arguments.targets:
        targets = [target for target in targets if target.name in arguments.targets]
    if not targets:
        print("fuzz: there are no such fuzzers")
        return 77
    share = max(arguments.seconds / len(targets), LEAST_SECONDS)
    begin = told = time.monotonic()

    def tell(target):
        nonlocal told
        if time.monotonic() - told < 10:
            return
        told = time.monotonic()
        print(f"fuzz: {told - begin:.0f} of {arguments.seconds:.0f} s, {target.name}: {target.executions} executions, "
              f"{target.edges} edges, {len(target.findings)} findings", flush=True)

    for target in targets:
        target.run(share, tell)
    print(f"{'target':<18}{'executions':>12}{'a second':>10}{'edges':>8}{'findings':>10}")
    for target in targets:
        rate = target.executions / target.seconds if target.seconds else 0
        print(f"{target.name:<18}{target.executions:>12}{rate:>10.0f}{target.edges:>8}{len(target.findings):>10}")
    for target in targets:
        for file, reason in zip(target.findings, target.reasons):
            print(f"{target.name}: {file}: {reason}")
    return 1 if any(target.findings for target in targets) else 0


if __name__ == "__main__":
    sys.exit(main())
