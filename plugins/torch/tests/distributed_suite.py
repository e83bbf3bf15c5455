"""Runs torch's own tests of its backends, those of the wheel, and writes what became of each as JSON.

    python distributed_suite.py {gloo,weft,replaced} [--ranks 4] [--seconds 60] [--json FILE] [NAME ...]

"weft" is backend weft by its own name. "replaced" is Weft where the tests say gloo, so tests that torch keeps for gloo
run, too. The tests are torch.testing._internal.distributed.distributed_test. torch starts new Pythons for each test;
here ranks are forks of one process that has imported torch, which takes a tenth of the time. An outcome is "passed",
"skipped: reason" or "failed: last line of the traceback".
"""
import argparse
import json
import os
import sys
import tempfile
import time
import unittest


# Reasons for which torch skips tests of CPU tensors that other backends than the named ones pass, too.
RUN_ANYWAY = {"Only MPI supports CPU all_to_all_single", "Only MPI supports all_to_all",
              "Only gloo backend supports timeouts", "GLOO Batch Send Recv CPU"}


def adapt(backend):
    """Lets torch's tests take `backend` for one of those they know. Before they are imported."""
    from torch.testing._internal import common_distributed, common_utils
    common_distributed.TIMEOUT_OVERRIDE.clear()
    common_distributed.skip_if_small_worldsize = lambda test: test  # asks for 8 ranks; groups of ranks 1 and 2 need 3
    skip_if = common_utils.skip_but_pass_in_sandcastle_if
    common_utils.skip_but_pass_in_sandcastle_if = lambda condition, reason: skip_if(
        condition and reason not in RUN_ANYWAY, reason)
    if backend == "weft":
        for feature in ("plugin", "ddp", "subgroup"):
            common_distributed.DistTestCases.backend_feature[feature].add("weft")
        common_distributed.DistTestCases.skip_collective["sendrecv anysource"].add("weft")


def load(backend, ranks, seconds):
    """The class of torch's tests, for `ranks` ranks. The environment has to be set before torch is imported."""
    os.environ.update(BACKEND="weft" if backend == "weft" else "gloo", WORLD_SIZE=str(ranks), OMP_NUM_THREADS="1",
                      TEMP_DIR=tempfile.gettempdir(), DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(seconds))
    os.environ.pop("TORCH_WEFT_REPLACE", None)
    if backend == "replaced":
        os.environ["TORCH_WEFT_REPLACE"] = "gloo"
    import torch
    torch.set_num_threads(1)
    adapt(backend)
    from torch.testing._internal.distributed import distributed_test
    if backend == "weft":
        distributed_test.PROFILING_SUPPORTED_BACKENDS.append("weft")
        distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.append("weft")
    if backend == "replaced":  # the profiler's titles say who did it
        find = distributed_test.get_profiling_event
        distributed_test.get_profiling_event = lambda name, *rest, **named: find(
            name.replace("gloo:", "weft:"), *rest, **named)

    class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return Suite


class Outcomes(unittest.TestResult):
    """Keeps {test: outcome}, and prints each as it comes."""

    def __init__(self):
        super().__init__()
        self.of = {}

    def startTest(self, test):
        super().startTest(test)
        self.begin = time.monotonic()

    def note(self, test, outcome):
        name = test.id().split(".")[-1]
        self.of[name] = outcome
        print(f"{name} [{time.monotonic() - self.begin:.1f} s]: {outcome}", flush=True)

    def addSuccess(self, test):
        self.note(test, "passed")

    def addSkip(self, test, reason):
        self.note(test, f"skipped: {reason}")

    def addFailure(self, test, error):
        lines = [line.strip() for line in str(error[1]).splitlines()]
        # A rank's traceback ends with "Type: sentence"; behind it there are frames of C++.
        told = [line for line in lines if "Error: " in line or "Error:" in line.split(" ")[0] or "exit code" in line]
        self.note(test, "failed: " + (told[-1] if told else lines[-1] if lines else repr(error[1]))[:400])

    addError = addFailure


def run(backend, ranks, seconds, names):
    """{test: outcome} of the tests named, or of all."""
    suite = load(backend, ranks, seconds)
    outcomes = Outcomes()
    for name in names or unittest.TestLoader().getTestCaseNames(suite):
        suite(name).run(outcomes)
    return outcomes.of


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backend", choices=["gloo", "weft", "replaced"])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=60, help="limit of one test")
    parser.add_argument("--json", help="also write the outcomes to this file")
    parser.add_argument("names", nargs="*", help="tests; all without")
    arguments = parser.parse_intermixed_args()
    outcomes = run(arguments.backend, arguments.ranks, arguments.seconds, arguments.names)
    kinds = [outcome.split(":")[0] for outcome in outcomes.values()]
    print(f"{arguments.backend}: " + ", ".join(f"{kinds.count(kind)} {kind}" for kind in ("passed", "skipped", "failed")))
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(outcomes, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
