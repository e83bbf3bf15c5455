"""perf/tuner_check.py without measuring anything: what is measured when, what it makes of that, what it says to mistakes."""
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "perf"))
sys.dont_write_bytecode = True

import tuner_check  # noqa: E402
from comparison import candidates, measured, systems  # noqa: E402
from comparison.progress import Progress  # noqa: E402
from comparison.scenarios import DEFAULT, STARTUP, UsageError, parse_scenario  # noqa: E402


def row(size, us, pick, predicted=None, collective="allreduce"):
    return candidates.row_of(collective, size, us, predicted or {}, [(pick, us[pick])], [])


class FakeWeft:
    """Its algorithms take a fixed time for each size; `unfit` ones fall back on the pick."""

    def __init__(self, us, pick, unfit=(), broken=()):
        self.us, self.pick, self.unfit, self.broken = us, pick, unfit, broken
        self.launches = []  # (candidate or None, sizes)
        self.bin = pathlib.Path("bin")
        self.measured = 0  # times the machine
        self.names = {}  # of plans, where they are not the algorithms'

    def measure_machine(self, scenario):
        self.measured += 1

    def machine_measured(self, scenario):
        return {"call_us": self.measured}

    def plans(self, scenario, collective, size, settings):
        name = settings["WEFT_ALGO"].split("=")[1]
        return [self.names.get(name, name)] * scenario.ranks

    def sweep(self, work, settings):
        name = settings.get("WEFT_ALGO", "=").split("=")[1] or None
        self.launches.append((name, work.sizes))
        if name in self.broken:
            raise systems.LaunchError("stopped after 60 s")
        used = self.pick if name is None or name in self.unfit else name
        return [systems.Row(size, self.us[used](size), 0, 3, used, 0.5 * self.us[used](size)) for size in work.sizes]


class LuckyWeft(FakeWeft):
    """Equal algorithms, of which "tree" is lucky in its first launches."""
    LUCK = 3

    def sweep(self, work, settings):
        rows = super().sweep(work, settings)
        launches = sum(name == self.launches[-1][0] for name, _ in self.launches)
        lucky = self.launches[-1][0] == "tree" and launches <= self.LUCK
        return [systems.Row(row.size, row.us / 2 if lucky else row.us, 0, 3, row.algorithm, row.predicted_us) for row in rows]


class Measuring(unittest.TestCase):
    def rows(self, weft, sizes, rounds=3, slices=(), again=0):
        progress = Progress(1, io.StringIO())
        check = candidates.Check(weft, rounds, 50, progress, slices=list(slices), algorithms=lambda c: sorted(weft.us),
                                 again=again)
        progress.total = check.launches(parse_scenario("shm2"), ["allreduce"], sizes)
        found = check.rows(parse_scenario("shm2"), "allreduce", sizes)
        self.assertEqual(progress.done, progress.total)
        return found, check

    def test_who_was_the_best_by_luck_is_measured_again_beside_the_pick(self):
        us = {"ring": lambda b: 10, "star": lambda b: 14, "tree": lambda b: 10}
        for again, best, ratio in [(0, "tree", 2), (5, "ring", 1)]:
            weft = LuckyWeft(us, pick="ring")
            found, _ = self.rows(weft, [8, 1024], again=again)
            self.assertEqual([(r["pick"], r["best"], r["ratio"]) for r in found], [("ring", best, ratio)] * 2)
            self.assertEqual(found[0]["again"], {"ring": 10, "tree": 10} if again else {})
            self.assertEqual(len(weft.launches), 4 * 3 + 2 * again)
        certain = FakeWeft(us, pick="ring")
        self.rows(certain, [8], again=5)
        self.assertEqual(len(certain.launches), 4 * 3)

    def test_who_has_the_picks_plans_is_the_pick(self):
        us = {"ring": lambda b: 10, "star": lambda b: 8, "tree": lambda b: 5}
        for names, best, again in [({}, "tree", {"ring": 10, "star": 8, "tree": 5}),
                                   ({"tree": "ring"}, "star", {"ring": 10, "star": 8}),
                                   ({"tree": "ring", "star": "ring"}, "ring", {})]:
            weft = FakeWeft(us, pick="ring")
            weft.names = names
            found, _ = self.rows(weft, [8], again=5)
            self.assertEqual([(r["best"], r["ratio"], r["again"]) for r in found], [(best, 10 / us[best](8), again)])
            self.assertEqual(found[0]["alike"], sorted(names))
        weft.names = {"tree": "ring"}
        found, _ = self.rows(weft, [1 << 20], again=5)
        self.assertEqual([(r["best"], r["alike"]) for r in found], [("tree", [])], "slices are not known")

    def test_luck_does_not_hide_a_third_that_is_better(self):
        weft = LuckyWeft({"ring": lambda b: 10, "star": lambda b: 7, "tree": lambda b: 10}, pick="ring")
        found, _ = self.rows(weft, [8], again=5)
        self.assertEqual([(r["pick"], r["best"], r["ratio"]) for r in found], [("ring", "star", 10 / 7)])
        self.assertEqual(found[0]["again"], {"ring": 10, "star": 7, "tree": 10})

    def test_a_pick_is_never_quicker_than_the_best(self):
        weft = LuckyWeft({"ring": lambda b: 10, "tree": lambda b: 14}, pick="ring")  # tree: 7, and then 14
        found, _ = self.rows(weft, [8], again=5)
        self.assertEqual([(r["best"], r["ratio"]) for r in found], [("ring", 1)])

    def test_every_candidate_and_the_pick_take_turns(self):
        weft = FakeWeft({"ring": lambda b: 10 + b, "tree": lambda b: 12 + b}, pick="ring")
        found, check = self.rows(weft, [8, 1024])
        self.assertEqual(sorted(str(name) for name, _ in weft.launches), sorted(["None", "ring", "tree"] * 3))
        self.assertNotEqual([name for name, _ in weft.launches[:3]], [name for name, _ in weft.launches[3:6]])
        self.assertEqual([(r["bytes"], r["pick"], r["best"], r["ratio"]) for r in found],
                         [(8, "ring", "ring", 1.0), (1024, "ring", "ring", 1.0)])
        self.assertEqual(found[0]["us"], {"ring": 18, "tree": 20})
        self.assertEqual(found[0]["predicted_us"], {"ring": 9, "tree": 10})
        self.assertEqual(found[0]["machines"], [{"call_us": 1}, {"call_us": 2}, {"call_us": 3}], "one a round")
        self.assertEqual(check.failures, [])

    def test_a_hopeless_candidate_is_measured_once_and_not_at_long_messages(self):
        weft = FakeWeft({"ring": lambda b: 10, "slow": lambda b: 31}, pick="ring")
        found, _ = self.rows(weft, [8, 4 << 20, 64 << 20])
        self.assertEqual([sizes for name, sizes in weft.launches if name == "slow"], [(8, 4 << 20)])
        self.assertEqual(len([sizes for name, sizes in weft.launches if name == "ring"]), 6)
        self.assertEqual(found[0]["us"]["slow"], 31)
        self.assertEqual((found[2]["us"], found[2]["left_out"]), ({"ring": 10}, ["slow"]))

    def test_a_hopeless_pick_counts_all_the_same(self):
        weft = FakeWeft({"ring": lambda b: 10, "slow": lambda b: 40}, pick="slow")
        found, _ = self.rows(weft, [4 << 20, 64 << 20])
        self.assertEqual([r["ratio"] for r in found], [4, 4])

    def test_what_does_not_fit_is_no_candidate_and_is_not_tried_again(self):
        weft = FakeWeft({"ring": lambda b: 10, "one_hop": lambda b: 1}, pick="ring", unfit=("one_hop",))
        found, _ = self.rows(weft, [8])
        self.assertEqual(found[0]["us"], {"ring": 10})
        self.assertEqual(len([name for name, _ in weft.launches if name == "one_hop"]), 1)

    def test_a_broken_candidate_is_told_and_left_alone(self):
        weft = FakeWeft({"ring": lambda b: 10, "bad": lambda b: 1}, pick="ring", broken=("bad",))
        found, check = self.rows(weft, [8])
        self.assertEqual(check.failures, ["shm2, allreduce, bad: stopped after 60 s"])
        self.assertEqual(found[0]["us"], {"ring": 10})

    def test_slices_are_candidates_where_messages_are_cut(self):
        weft = FakeWeft({"ring": lambda b: 10}, pick="ring")
        found, _ = self.rows(weft, [8, 1 << 20], slices=["128K"])
        self.assertEqual([sorted(r["us"]) for r in found], [["ring"], ["ring", "ring/128K"]])

    def test_sizes_are_whole_elements_of_every_rank(self):
        self.assertEqual(candidates.Cells("allgather", 8, [8, 16, 1024]).sizes, [32, 1024])
        self.assertEqual(candidates.Cells("allreduce", 8, [8, 16]).sizes, [8, 16])


class Names(unittest.TestCase):
    def test_every_scenario_of_the_comparison_has_a_layout(self):
        layouts = {name: parse_scenario(name).layout for name in DEFAULT if name != STARTUP}
        self.assertEqual(layouts, {"shm2": (1, 2), "shm4": (1, 4), "shm8": (1, 8), "tcp2": (2, 1), "tcp4": (4, 1),
                                   "cluster4": (4, 1), "cluster4x2": (4, 2), "cluster8": (8, 1), "cluster8x2": (8, 2),
                                   "cluster8-1ms": (8, 1)})

    def test_collectives_are_written_either_way(self):
        self.assertEqual(candidates.collectives_of("all_reduce,allgather,AllReduce"), ["allreduce", "allgather"])
        with self.assertRaisesRegex(UsageError, "'gather' is none of allreduce"):
            candidates.collectives_of("alltoall,gather")


class Summary(unittest.TestCase):
    rows = [row(8, {"ring": 10.0, "tree": 11.0}, "tree", {"ring": 5.0, "tree": 22.0}),
            row(1024, {"ring": 10.0, "tree": 11.1}, "tree", {"ring": 20.0}),
            row(1 << 20, {"ring": 10.0}, "ring", {"ring": 10.0}, collective="allgather")]

    def test_counts_picks_and_errors(self):
        result = tuner_check.summary(self.rows)
        self.assertEqual((result["cells"], result["right"]), (3, 2))
        self.assertAlmostEqual(result["error_median"], 1.0)   # of 0, 0.5, 1, 1
        self.assertAlmostEqual(result["pick_error_median"], 1.0)  # of 0 and 1
        self.assertAlmostEqual(result["error_90"], 1.0)

    def test_nothing_measured_is_no_error(self):
        result = tuner_check.summary([])
        self.assertEqual((result["cells"], result["right"], result["error_median"]), (0, 0, None))
        self.assertIn("0 of 0 picks", tuner_check.sentence("all", result))

    def test_the_table_of_picks(self):
        text = tuner_check.picks_text({"shm2": self.rows})
        self.assertIn("| shm2 | allreduce | 2 | 1 | 1 KiB: tree for ring, 11 % longer |", text)
        self.assertIn("| shm2 | allgather | 1 | 1 | - |", text)
        self.assertIn("| all | all | 3 | 2 | allreduce of 1 KiB: tree for ring, 11 % longer |", text)

    def test_the_table_of_cells(self):
        text = tuner_check.cells_text(self.rows)
        self.assertIn("| allreduce | 1 KiB | tree | ring | 1.11 | ring 10 (20), tree 11.1 |", text)


class Command(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def call(self, *words):
        done = subprocess.run([sys.executable, "-B", str(ROOT / "perf/tuner_check.py"), *map(str, words)],
                              capture_output=True, text=True, timeout=60)
        self.assertNotIn("Traceback", done.stderr)
        return done.returncode, done.stdout, done.stderr

    def file(self, name, scenario, *rows):
        path = pathlib.Path(self.folder.name) / name
        measured.save(path, {"when": "2026-01-02 03:04", "scenarios": {scenario: {"rows": list(rows)}}})
        return path

    def test_files_of_single_scenarios_make_one_table(self):
        good = row(8, {"ring": 10.0, "tree": 10.5}, "tree")
        one, two = self.file("1.json", "shm2", good), self.file("2.json", "cluster8-1ms", good)
        page = pathlib.Path(self.folder.name) / "page.md"
        page.write_text("Before.\n<!-- picks: perf/tuner_check.py -->\nold\n<!-- end -->\nAfter.\n")
        code, output, errors = self.call("--measured", one, two, "--docs", page)
        self.assertEqual((code, errors), (0, ""))
        for text in (output, page.read_text()):
            self.assertIn("| cluster8-1ms | allreduce | 1 | 1 | 8 B: tree for ring, 5 % longer |", text)
            self.assertIn("| all | all | 2 | 2 |", text)
        self.assertIn("* cluster8-1ms: measured 2026-01-02 03:04.", page.read_text())
        self.assertNotIn("old", page.read_text())

    def test_a_missed_goal_is_an_exit_code(self):
        code, output, _ = self.call("--measured", self.file("1.json", "tcp4", row(8, {"ring": 10.0, "tree": 20.0}, "tree")))
        self.assertEqual(code, 1)
        self.assertIn("NOT good", output)

    def test_mistakes_are_explained(self):
        twice = self.file("1.json", "shm2", row(8, {"ring": 1.0}, "ring"))
        broken = pathlib.Path(self.folder.name) / "broken.json"
        broken.write_text('{"scen')
        other = pathlib.Path(self.folder.name) / "other.json"
        other.write_text(json.dumps({"scenarios": ["shm2"]}))
        page = pathlib.Path(self.folder.name) / "page.md"
        page.write_text("no place\n")
        for words, sentence in ((("--scenarios", "shm1"), "'shm1' is none"),
                                (("--scenarios", "startup"), "startup has no sizes"),
                                (("--scenarios", "shm2", "--collectives", "gather"), "--collectives: 'gather' is none of"),
                                (("--scenarios", "shm2", "--sizes", "8,x"), "--sizes: 'x' is not a size"),
                                (("--rounds", "0"), "--rounds: is 0"),
                                (("--time-ms", "0"), "--time-ms: is 0"),
                                (("--json", "/nowhere/x.json"), "--json: there is no folder /nowhere"),
                                (("--build", "/nowhere"), "--build: there is no bin/weft_run in /nowhere"),
                                (("--measured", "/nowhere.json"), "/nowhere.json cannot be read"),
                                (("--measured", broken), f"{broken} is not JSON"),
                                (("--measured", other), f"{other} is no whole result of perf/tuner_check.py"),
                                (("--measured", twice, twice), "two files have allreduce of 8 B in shm2"),
                                (("--measured", twice, "--docs", page), "<!-- picks: perf/tuner_check.py -->")):
            if not any(str(word).startswith("--measured") or str(word) == "--build" for word in words):
                words = ("--build", self.build(), *words)
            code, _, errors = self.call(*words)
            self.assertEqual(code, 2, words)
            self.assertIn(sentence, errors)

    def build(self):
        """A build folder as far as the command line is checked."""
        folder = pathlib.Path(self.folder.name) / "build/bin"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "weft_run").touch()
        return folder.parent


if __name__ == "__main__":
    unittest.main()
