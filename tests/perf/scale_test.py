#!/usr/bin/env python3
"""perf/scale.py and perf/validate.py: that they ask weft_sim the right things, and write what it says where it belongs.

  scale_test.py BUILD
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom

PERF = pathlib.Path(__file__).resolve().parents[2] / "perf"
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else PERF.parent / "build").resolve()
sys.path.insert(0, str(PERF))
import scale  # noqa: E402
import validate  # noqa: E402

TABLES = ["allgather", "reducescatter", "allreduce", "least sizes", "buckets", "slices", "troubles"]


def page_of(tool, names):
    return "Before.\n\n" + "\n\n".join(f"<!-- {name}: {tool} -->\nold\n<!-- end -->" for name in names) + "\n\nAfter.\n"


def run(tool, *arguments):
    done = subprocess.run([sys.executable, "-B", PERF / tool, "--build", BUILD, *map(str, arguments)], capture_output=True,
                          text=True)
    return done.returncode, done.stdout + done.stderr


class Field(unittest.TestCase):
    """Two algorithms on 2 nodes: all-to-all takes 10 µs and the bytes' time, a ring 40 µs and the bytes' time."""

    def setUp(self):
        rows = []
        for size in (1000, 10000, 100000):
            for name, start in ((scale.MESH, 10), ("ring", 40)):
                rows.append({"nodes": 2, "bytes": size, "algorithm": name, "us": start + size / 100, "line_us": size / 100})
            rows.append({"nodes": 2, "bytes": size, "algorithm": "one_hop", "unfit": "too long", "line_us": size / 100})
        self.field = scale.Field("allgather", rows)

    def test_gain_is_over_the_best_of_the_others(self):
        self.assertEqual(self.field.rival(2, 1000), "ring")
        self.assertAlmostEqual(self.field.gain(2, 1000), 50 / 20)
        self.assertIn("**2.50 r**", scale.gain_table(self.field))
        self.assertIn("1.03 r", scale.gain_table(self.field))

    def test_the_least_size_lies_between_two_that_were_simulated(self):
        size = self.field.smallest(2, 0.8, self.field.line_share)  # half at 1000, 10/11 at 10000
        self.assertTrue(1000 < size < 10000, size)
        self.assertEqual(self.field.smallest(2, 0.4, self.field.line_share), 0.0)
        self.assertIsNone(self.field.smallest(2, 0.999, self.field.line_share))

    def test_line_time_is_that_of_the_bytes_that_enter_a_node(self):
        row = {"collective": "AllReduce", "nodes": 4, "bytes": 4000}
        self.assertAlmostEqual(scale.line_us({"nic_bytes_per_us": 50, "rails": 2}, row), 2 * 3000 / 100)


class Scale(unittest.TestCase):
    def test_fills_in_the_page_and_draws(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "scale.md"
            page.write_text(page_of("perf/scale.py", TABLES))
            code, output = run("scale.py", "--docs", folder, "--nodes", "2,4", "--sizes", "256K,1M,4M")
            self.assertEqual(code, 0, output)
            text = page.read_text()
            self.assertNotIn("old", text)
            self.assertTrue(text.startswith("Before.") and text.endswith("After.\n"))
            self.assertIn(" a rail down |", text)
            charts = sorted(pathlib.Path(folder).glob("scale/*.svg"))
            self.assertEqual(len(charts), 7, charts)
            for chart in charts:
                xml.dom.minidom.parseString(chart.read_text())

    def test_a_page_without_the_place_for_a_table_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "scale.md"
            page.write_text(page_of("perf/scale.py", TABLES[1:]))
            with self.assertRaises(SystemExit) as stopped:
                scale.fill_in(page, {"allgather": "x"})
            self.assertIn("<!-- allgather: perf/scale.py -->", str(stopped.exception))

    def test_a_wrong_cluster_is_refused_in_weft_sims_words(self):
        code, output = run("scale.py", "--cluster", "no-such-cluster", "--docs", "/tmp")
        self.assertNotEqual(code, 0)
        self.assertIn("known are", output)


class Validate(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.measured = pathlib.Path(self.folder.name) / "measured.json"
        self.predictor = validate.Predictor(BUILD, "512K")

    def points(self, factor):
        """Made-up measurements: what weft_sim predicts for the default machine, times `factor`."""
        points = [validate.Point("shm4", "allreduce", size, name, 1.0) for size in (4096, 1 << 20) for name in ("direct", "ring")]
        self.predictor.predict("shm4", {}, points)
        return [{"collective": p.collective, "bytes": p.size, "us": {p.algorithm: p.predicted_us * factor}} for p in points]

    def write(self, factor, machine):
        self.measured.write_text(json.dumps({"when": "today", "scenarios": {"shm4": {"rows": self.points(factor), **machine}}}))

    def test_what_was_predicted_is_right(self):
        self.write(1, {"machine": {}})
        page = pathlib.Path(self.folder.name) / "page.md"
        page.write_text(page_of("perf/validate.py", ["validation"]))
        code, output = run("validate.py", "--measured", self.measured, "--every", "--docs", page)
        self.assertEqual(code, 0, output)
        self.assertIn("| all | all | 4 | 0 % | 0 % | +0 % |", output)
        self.assertIn("| all | all | 4 | 0 % | 0 % | +0 % |", page.read_text())

    def test_what_takes_twice_as_long_is_half_off(self):
        self.write(2, {"machine": {}})
        code, output = run("validate.py", "--measured", self.measured)
        self.assertEqual(code, 1, output)
        self.assertIn("the median error is 50 %, must be at most 15 %", output)

    def test_results_without_a_machine_need_one(self):
        self.write(1, {})
        code, output = run("validate.py", "--measured", self.measured)
        self.assertNotEqual(code, 0)
        self.assertIn("--machine is missing", output)
        machine = pathlib.Path(self.folder.name) / "machine.json"
        machine.write_text("{}")
        code, output = run("validate.py", "--measured", self.measured, "--machine", machine)
        self.assertEqual(code, 0, output)

    def test_reads_results_of_the_comparison(self):
        cell = {"collective": "all_reduce", "bytes": 4096, "systems": {"Weft": {"us": 3.0, "algorithm": "direct"},
                                                                       "Gloo": {"us": 9.0, "algorithm": ""}}}
        points = validate.measured_points({"cells": {"shm4": [cell]}}, self.measured)
        self.assertEqual(points, [validate.Point("shm4", "allreduce", 4096, "direct", 3.0)])

    def test_broken_files_are_named(self):
        self.measured.write_text('{"scen')
        code, output = run("validate.py", "--measured", self.measured)
        self.assertNotEqual(code, 0)
        self.assertIn(f"{self.measured} is not JSON", output)
        self.measured.write_text("{}")
        self.assertIn("is no result of", run("validate.py", "--measured", self.measured)[1])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
