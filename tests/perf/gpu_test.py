#!/usr/bin/env python3
"""perf/gpu.py, as far as it goes without a GPU: what it says then, what it would run, and how it reads the perf tools' tables."""
import argparse
import pathlib
import subprocess
import sys
import unittest

PERF = pathlib.Path(__file__).resolve().parents[2] / "perf"
sys.path.insert(0, str(PERF))
import gpu  # noqa: E402

OUTPUT = """# all_reduce
#       size         count      type   redop    root     time   algbw   busbw #wrong
           8             2     float     sum      -1     5.61    0.00    0.00      0    5.60    0.00    0.00      0
     1048576        262144     float     sum      -1    92.10   11.39   17.08      0   93.00   11.27   16.91      0
# Avg bus bandwidth    : 8.5
"""


def what_is_run(part, nccl=None):
    """The rows of a part of the measurements, as {what: (command, environment)}, with a build that has every program."""
    bench = gpu.Bench(argparse.Namespace(build="/built", nccl=nccl, ranks="2,8", quick=True))
    bench.probe = "/built/bin/gpu_probe"
    rows = {}
    bench.measure = lambda what, command, read, environment=None: rows.update({what: (command, environment or {})})
    getattr(bench, part)()
    return rows


class Gpu(unittest.TestCase):
    def test_nccl_uses_the_plugin_or_fails(self):
        rows = what_is_run("plugin", nccl="/nccl/libnccl.so.2")
        (_, over_plugin), (_, over_sockets) = rows.values()
        self.assertEqual((over_plugin["NCCL_NET_PLUGIN"], over_plugin["NCCL_NET"]), ("weft", "Weft"))
        self.assertEqual((over_sockets["NCCL_NET_PLUGIN"], over_sockets["NCCL_NET"]), ("none", "Socket"))
        for command, environment in rows.values():
            self.assertIn("NCCL_HOSTID=host$WEFT_RANK", command[-1])
            self.assertTrue(environment["LD_LIBRARY_PATH"].startswith("/built/lib"))
            self.assertEqual(environment["WEFT_NCCL_LIBRARY"], "/nccl/libnccl.so.2")

    def test_ranks_print_no_labels_before_their_tables(self):
        for part in ("bandwidths", "beside_a_product", "plugin", "round_trip", "multiprocessors", "correctness"):
            for what, (command, _) in what_is_run(part).items():
                if command[0].endswith("weft_run"):
                    self.assertIn("--no-label", command, what)

    def test_no_measurement_gives_the_tools_own_communicators_to_nccl(self):
        for part in ("bandwidths", "beside_a_product", "plugin", "round_trip", "multiprocessors", "correctness"):
            for what, (_, environment) in what_is_run(part).items():
                self.assertNotIn("WEFT_BACKEND", environment, what)

    def test_a_product_is_measured_beside_both_libraries(self):
        commands = [command[-1] for command, _ in what_is_run("beside_a_product").values()]
        self.assertEqual([line.split(" beside ")[1].split()[:2] for line in commands],
                         [[backend, collective] for collective in ("all_gather", "reduce_scatter")
                          for backend in ("weft", "nccl")])

    def test_every_bandwidth_has_nccls_beside_it(self):
        rows = what_is_run("bandwidths")
        own = [what for what in rows if what.startswith(("all_gather", "all_reduce"))]
        self.assertEqual(len(own), 4)  # two collectives, two numbers of ranks
        for what in own:
            peers = [row for name, row in rows.items() if name.startswith(f"NCCL's {what}")]
            self.assertEqual(len(peers), 2, what)
            for command, _ in peers:
                self.assertIn("--backend nccl", " ".join(command))

    def test_a_graph_is_measured_beside_ordinary_calls(self):
        commands = [command for command, _ in what_is_run("round_trip").values() if "-b" in command]
        self.assertEqual(["-G" in command for command in commands], [False, True])

    def test_a_machine_without_a_gpu_is_told_so_and_all_is_well(self):
        done = subprocess.run([sys.executable, "-B", PERF / "gpu.py"], capture_output=True, text=True, env={"PATH": ""})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("There is no GPU here", done.stdout)

    def test_numbers_of_ranks_are_checked(self):
        done = subprocess.run([sys.executable, "-B", PERF / "gpu.py", "--ranks", "two"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("must be numbers with commas between, such as 2,4,8", done.stderr)

    def test_the_largest_size_counts(self):
        self.assertEqual(gpu.bus_bandwidth(OUTPUT), 17.08)
        with self.assertRaises(gpu.CannotMeasure):
            gpu.bus_bandwidth("nothing")

    def test_a_command_that_fails_leaves_its_last_words_in_the_row(self):
        with self.assertRaisesRegex(gpu.CannotMeasure, "exit code 3: so it is"):
            gpu.run(["sh", "-c", "echo first >&2; echo so it is >&2; exit 3"])
        table = gpu.Table()
        table.add("a", "b", "c")
        table.add("d", "e")
        self.assertEqual(table.markdown().splitlines()[2:], ["| a | b | `c` |", "| d | e |  |"])


if __name__ == "__main__":
    unittest.main()
