#!/usr/bin/env python3
"""perf/validate.py on measurements that are made up: that it asks weft_sim the right things, and writes where it belongs.

  validate_test.py BUILD
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PERF = pathlib.Path(__file__).resolve().parents[2] / "perf"
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else PERF.parent / "build").resolve()
sys.path.insert(0, str(PERF))
sys.dont_write_bytecode = True
import validate  # noqa: E402
from comparison.scenarios import COLLECTIVES  # noqa: E402


def run(*arguments):
    done = subprocess.run([sys.executable, "-B", PERF / "validate.py", "--build", BUILD, *map(str, arguments)],
                          capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


class Validate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.predictor = validate.Predictor(BUILD)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def rows(self, factor, scenario="shm4", slice_bytes=None):
        """Made-up measurements: what weft_sim predicts for the default machine, times `factor`."""
        points = [validate.Point(scenario, "allreduce", size, name, 1.0)
                  for size in (4096, 1 << 20) for name in ("recursive_doubling", "ring")]
        self.predictor.predict(scenario, [{}], points, slice_bytes)
        by_size = {}
        for point in points:
            by_size.setdefault(point.size, {})[point.algorithm] = point.predicted_us * factor
        return [{"collective": "allreduce", "bytes": size, "us": us} for size, us in by_size.items()]

    def file(self, factor, scenario="shm4", machine=None, name="measured.json", slice_bytes=None):
        path = self.folder / name
        machines = {} if machine is None else {"machines": [machine]}
        found = {"rows": [row | machines for row in self.rows(factor, scenario, slice_bytes)]}
        path.write_text(json.dumps({"when": "today", "scenarios": {scenario: found}} |
                                   ({"slice_bytes": slice_bytes} if slice_bytes else {})))
        return path

    def test_what_was_predicted_is_right(self):
        page = self.folder / "page.md"
        page.write_text("Before.\n<!-- validation: perf/validate.py -->\nold\n<!-- end -->\nAfter.\n")
        code, output = run("--measured", self.file(1, machine={}), "--every", "--docs", page)
        self.assertEqual(code, 0, output)
        self.assertIn("| all | all | 4 | 0 % | 0 % | +0 % |", output)
        self.assertIn("| all | all | 4 | 0 % | 0 % | +0 % |", page.read_text())
        self.assertIn("* shm4: measured today.", page.read_text())
        self.assertNotIn("old", page.read_text())

    def test_what_takes_twice_as_long_is_half_off(self):
        code, output = run("--measured", self.file(2, machine={}))
        self.assertEqual(code, 1, output)
        self.assertIn("the median error is 50 %, must be at most 15 %", output)

    def test_files_of_single_scenarios_make_one_table(self):
        files = [self.file(1, name, {}, f"{name}.json") for name in ("tcp2", "tcp4", "cluster8-1ms", "cluster4x2")]
        code, output = run("--measured", *files)
        self.assertEqual(code, 0, output)
        for name in ("tcp2", "tcp4", "cluster8-1ms", "cluster4x2"):
            self.assertIn(f"| {name} | allreduce | 4 | 0 % |", output)
        code, output = run("--measured", files[0], files[0])
        self.assertEqual(code, 2)
        self.assertIn("two files have allreduce of 4 KiB in tcp2", output)

    def test_ranks_without_shared_memory_are_nodes(self):
        cluster = self.predictor.cluster("tcp4", {"rails": 2})
        self.assertEqual((cluster["nodes"], cluster["ranks_per_node"]), (4, 1))
        self.assertAlmostEqual(cluster["machine"]["cores"], self.predictor.cores / 4)
        self.assertEqual(cluster["machine"]["rails"], 2)

    def test_slices_are_the_files_or_the_tuners(self):
        def us(slice_bytes):
            return {(row["bytes"], name): us for row in self.rows(1, "cluster8", slice_bytes)
                    for name, us in row["us"].items()}
        usual, tuned = us(512 << 10), us(None)
        self.assertTrue(all(tuned[key] <= usual[key] for key in usual))
        self.assertNotEqual(usual, us(64 << 10), "other slices take another time")
        code, output = run("--measured", self.file(1, "cluster8", {}, slice_bytes=64 << 10))
        self.assertEqual(code, 0, output)
        self.assertIn("| all | all | 4 | 0 % | 0 % | +0 % |", output)

    def test_predicts_what_is_measured(self):
        """Back-to-back calls, of which a Broadcast's root does not wait for the others, and AlltoAll out of place."""
        points = [validate.Point("tcp4", "broadcast", 8192, "one_hop", 1.0), validate.Point("tcp4", "alltoall", 8192, "all_to_all", 1.0)]
        self.predictor.predict("tcp4", [{}], points)
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(self.predictor.cluster("tcp4", {}), file)
            file.flush()
            def us(point, *options):
                answer = self.predictor.ask("weft_sim", file.name, "--json", "-c", point.collective, "-s", "8192", "-a",
                                            point.algorithm, *options)
                return answer["rows"][0]["us"]
            self.assertEqual(points[0].predicted_us, us(points[0], "--streak", "--in-place"))
            self.assertLess(points[0].predicted_us, us(points[0]))
            self.assertEqual(points[1].predicted_us, us(points[1], "--streak", "--out-of-place"))
            self.assertLess(points[1].predicted_us, us(points[1], "--streak"))

    def test_a_point_is_predicted_by_the_median_of_its_machines(self):
        def predicted(*calls_us):
            points = [validate.Point("shm4", "allreduce", 4096, "ring", 1.0)]
            self.predictor.predict("shm4", [{"call_us": us} for us in calls_us], points)
            return points[0].predicted_us
        self.assertEqual(predicted(1, 50, 2), predicted(2))
        self.assertGreater(predicted(50), predicted(2))

    def test_results_without_a_machine_need_one(self):
        measured = self.file(1)
        code, output = run("--measured", measured)
        self.assertEqual(code, 2)
        self.assertIn("--machine is missing: the file with shm4 does not hold", output)
        machine = self.folder / "machine.json"
        machine.write_text("{}")
        code, output = run("--measured", measured, "--machine", machine)
        self.assertEqual(code, 0, output)

    def test_reads_results_of_the_comparison(self):
        cell = {"collective": "all_reduce", "bytes": 4096, "systems": {"Weft": {"us": 3.0, "algorithm": "direct"},
                                                                       "Gloo": {"us": 9.0, "algorithm": ""}}}
        document = validate.from_comparison({"created": "today", "cells": {"shm4": [cell]}})
        self.assertEqual(validate.points_of("shm4", document["scenarios"]["shm4"]["rows"]),
                         [validate.Point("shm4", "allreduce", 4096, "direct", 3.0)])

    def test_all_five_collectives_are_measured_unless_told_otherwise(self):
        self.assertEqual(validate.parse_arguments([]).collectives, ",".join(COLLECTIVES))

    def test_broken_files_are_named(self):
        broken = self.folder / "broken.json"
        for text, sentence in (('{"scen', f"{broken} is not JSON"), ("{}", "is no result of"), ("[1]", "is no JSON object"),
                               ('{"scenarios": {"moon": {"rows": []}}}', "'moon' is none")):
            broken.write_text(text)
            code, output = run("--measured", broken)
            self.assertEqual(code, 2, output)
            self.assertIn(sentence, output)
            self.assertNotIn("Traceback", output)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
