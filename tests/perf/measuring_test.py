#!/usr/bin/env python3
"""The measuring tools launched for real, on the least that they can measure: that all of their parts fit together.

  measuring_test.py BUILD
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PERF = pathlib.Path(__file__).resolve().parents[2] / "perf"
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else PERF.parent / "build").resolve()


class Measuring(unittest.TestCase):
    def run_tool(self, tool, *words):
        """The JSON that it writes, what it prints, and its exit code."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "result.json"
            done = subprocess.run([sys.executable, "-B", PERF / tool, "--build", BUILD, "--json", path, *words],
                                  capture_output=True, text=True, timeout=120)
            self.assertTrue(path.exists(), done.stdout + done.stderr)
            return json.loads(path.read_text()), done.stdout + done.stderr, done.returncode

    def test_the_comparison(self):
        document, output, code = self.run_tool("compare.py", "--scenarios", "shm2", "--collectives", "all_reduce", "--sizes",
                                               "8", "--rounds", "1", "--peers", "none", "--time-ms", "1")
        self.assertEqual(code, 0, output)
        self.assertEqual((document["version"], document["scenarios"]), (1, ["shm2"]))
        self.assertGreaterEqual(document["machine"]["cores"], 1)
        launch, = document["launches"]
        self.assertEqual((launch["scenario"], launch["collective"], launch["system"]), ("shm2", "all_reduce", "Weft"))
        row, = launch["rows"]
        self.assertEqual(row["size"], 8)
        self.assertGreater(row["us"], 0)
        self.assertGreater(row["iterations"], 2)
        self.assertIn(row["algorithm"], output_of("weft_info", "--algorithms"))
        cell, = document["cells"]["shm2"]
        self.assertEqual((cell["bytes"], cell["best_peer"], cell["speedup"]), (8, None, None))
        self.assertAlmostEqual(cell["systems"]["Weft"]["us"], row["us"])
        self.assertIn("| all_reduce | 8 B |", output)

    def test_the_tuners_check(self):
        document, output, code = self.run_tool("tuner_check.py", "--scenarios", "tcp2", "--collectives", "alltoall",
                                               "--sizes", "8", "--rounds", "1", "--time-ms", "1")
        self.assertIn(code, (0, 1), output)  # on such a short look the pick may be wrong
        row, = document["scenarios"]["tcp2"]["rows"]
        self.assertEqual((row["collective"], row["bytes"]), ("alltoall", 8))
        self.assertIn(row["pick"], row["us"])
        self.assertGreater(len(row["us"]), 1, "more than one algorithm fits")
        self.assertTrue(all(us > 0 for us in row["us"].values()))
        self.assertGreaterEqual(row["ratio"], 1)
        self.assertIn("| tcp2 | alltoall | 1 |", output)
        self.assertNotIn("Traceback", output)


def output_of(program, *words):
    return subprocess.run([BUILD / "bin" / program, *words], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
