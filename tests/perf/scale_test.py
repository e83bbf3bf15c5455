#!/usr/bin/env python3
"""perf/scale.py: that it asks weft_sim the right things, and writes what it says where it belongs.

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
sys.dont_write_bytecode = True
from comparison.marked import fill_in  # noqa: E402
from comparison.scenarios import UsageError  # noqa: E402
from scale import ON_PAGE, PAGE, TABLES_PAGE  # noqa: E402
from scaling import field as fields  # noqa: E402
from scaling import studies  # noqa: E402
from scaling.simulator import MESH, Simulator, line_us  # noqa: E402

TABLES = ["allgather", "reducescatter", "allreduce", "least sizes", "buckets", "slices", "troubles", "queues",
          "assumptions"]


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
            for name, start in ((MESH, 10), ("ring", 40)):
                rows.append({"nodes": 2, "bytes": size, "algorithm": name, "us": start + size / 100, "line_us": size / 100})
            rows.append({"nodes": 2, "bytes": size, "algorithm": "one_hop", "unfit": "too long", "line_us": size / 100})
        self.field = fields.Field("allgather", rows)

    def test_gain_is_over_the_best_of_the_others(self):
        self.assertEqual(self.field.rival(2, 1000), "ring")
        self.assertAlmostEqual(self.field.gain(2, 1000), 50 / 20)
        self.assertIn("**2.50 r**", fields.gain_table(self.field))
        self.assertIn("1.03 r", fields.gain_table(self.field))

    def test_the_least_size_lies_between_two_that_were_simulated(self):
        size = self.field.smallest(2, 0.8, self.field.line_share)  # half at 1000, 10/11 at 10000
        self.assertTrue(1000 < size < 10000, size)
        self.assertEqual(self.field.smallest(2, 0.4, self.field.line_share), 0.0)
        self.assertIsNone(self.field.smallest(2, 0.999, self.field.line_share))

    def test_a_size_that_some_nodes_cannot_share_is_left_empty(self):
        rows = [{"nodes": nodes, "bytes": size, "algorithm": name, "us": 10.0, "line_us": 1.0}
                for nodes, size in ((2, 1000), (2, 10000), (4, 10000)) for name in (MESH, "ring")]
        field = fields.Field("allgather", rows)
        self.assertIn("| 4 | - | 1.00 r |", fields.gain_table(field))
        self.assertEqual(field.sizes_of(4), [10000])

    def test_what_an_assumption_turns_is_told_cell_by_cell(self):
        def field(ring_us):
            return fields.Field("allgather", [{"nodes": 2, "bytes": size, "algorithm": name, "us": us, "line_us": 1.0}
                                              for size, ring in ring_us.items() for name, us in ((MESH, 10.0), ("ring", ring))])
        told = studies.verdicts(field({1024: 12.0, 2048: 8.0}), field({1024: 9.0, 2048: 8.0}))
        self.assertEqual(told, ["2", "1", "12 %, 25 %", "2, 1 KiB: **1.20 r** → _0.90 r_"])

    def test_line_time_is_that_of_the_bytes_that_enter_a_node(self):
        row = {"collective": "AllReduce", "nodes": 4, "bytes": 4000}
        self.assertAlmostEqual(line_us({"nic_bytes_per_us": 50, "rails": 2}, row), 2 * 3000 / 100)


class Scale(unittest.TestCase):
    def test_fills_in_the_page_and_draws(self):
        with tempfile.TemporaryDirectory() as folder:
            pages = {pathlib.Path(folder) / PAGE: ON_PAGE,
                     pathlib.Path(folder) / TABLES_PAGE: [name for name in TABLES if name not in ON_PAGE]}
            for page, tables in pages.items():
                page.parent.mkdir(exist_ok=True)
                page.write_text(page_of("perf/scale.py", tables))
            code, output = run("scale.py", "--docs", folder, "--nodes", "2,4", "--sizes", "256K,1M,4M")
            self.assertEqual(code, 0, output)
            text = "".join(page.read_text() for page in pages)
            self.assertNotIn("old", text)
            self.assertEqual(text.count("Before."), 2)
            self.assertTrue(text.startswith("Before.") and text.endswith("After.\n"))
            self.assertIn("| healthy, ms | slow node | slow rail | failed rail | incast | leaves |", text)
            for plan in ("| AllReduce | double_tree |", "| AlltoAll | all_to_all |", "| AllGather | ring |"):
                self.assertEqual(text.count(plan), 2, "once what it costs, once what waits")
            self.assertIn("| ReduceScatter | alpha between nodes: half |", text)
            charts = sorted(pathlib.Path(folder).glob("scale/*.svg"))
            self.assertEqual(len(charts), 10, charts)
            for chart in charts:
                xml.dom.minidom.parseString(chart.read_text())

    def test_a_page_without_the_place_for_a_table_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "scale.md"
            page.write_text(page_of("perf/scale.py", TABLES[1:]))
            with self.assertRaisesRegex(UsageError, "<!-- allgather: perf/scale.py -->"):
                fill_in(page, "perf/scale.py", {"allgather": "x"})

    def test_a_wrong_cluster_is_refused_in_weft_sims_words(self):
        code, output = run("scale.py", "--cluster", "no-such-cluster", "--docs", "/tmp")
        self.assertEqual(code, 2)
        self.assertIn("known are", output)

    def test_a_changed_number_is_all_that_changes(self):
        simulator = Simulator(BUILD, "p4d")
        usual = simulator.rows("allgather", ["16M"], [4], ["ring"])[0]["us"]
        with simulator.changed("inter.alpha_us", 1) as same, simulator.changed("inter.alpha_us", 2) as slower:
            self.assertEqual(same.rows("allgather", ["16M"], [4], ["ring"])[0]["us"], usual)
            self.assertGreater(slower.rows("allgather", ["16M"], [4], ["ring"])[0]["us"], usual + 19)
        self.assertEqual(len(simulator.runs), 3, "everything that was simulated is kept")
        with self.assertRaisesRegex(UsageError, "machine.inter.colour is missing"):
            simulator.changed("inter.colour", 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
