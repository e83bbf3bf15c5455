#!/usr/bin/env python3
"""The parts of the sanitizers that .ci/run takes turns with: together they cover every layer that has tests."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Programs that judge what users get, on its whole, or run the programs of other layers over a network of their own.
WHOLE = {"perf", "loom_interop", "fabric"}


def layers():
    tests = ROOT / "tests"
    found = {folder.parent.name for folder in tests.glob("*/*_test.cc")}
    return found | {"fuzz"} | {f"loom_{folder.parent.name}" for folder in (tests / "loom").glob("*/*_test.cc")}


class Parts(unittest.TestCase):
    def setUp(self):
        text = (ROOT / ".ci/run").read_text()
        self.parts = re.findall(r'^  "\d+ test-(asan|tsan) ([\w ]+)"$', text, re.M)

    def test_every_layer_is_in_a_part_of_the_address_sanitizer(self):
        covered = [layer for tool, names in self.parts if tool == "asan" for layer in names.split()]
        self.assertEqual(sorted(covered), sorted(layers() - WHOLE))

    def test_every_layer_of_threads_is_in_a_part_of_the_thread_sanitizer(self):
        script = (ROOT / "scripts/test_sanitized.sh").read_text()
        threads = re.search(r"layers=\$\{layers:-([\w ]+)\}", script)[1].split()
        covered = [layer for tool, names in self.parts if tool == "tsan" for layer in names.split()]
        self.assertEqual(sorted(covered), sorted(threads))

    def test_ten_runs_take_all_parts(self):
        self.assertEqual(len(self.parts), 10)


if __name__ == "__main__":
    unittest.main()
