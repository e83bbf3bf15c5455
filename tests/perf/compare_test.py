"""perf/compare.py without measuring anything: what it makes of results, what it plans, and what it says to mistakes."""
import contextlib
import io
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from xml.etree import ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "perf"))
sys.dont_write_bytecode = True

import compare  # noqa: E402
from comparison import charts, page, results, schedule, summary, systems, table  # noqa: E402
from comparison.cores import LOOKS, Cores  # noqa: E402
from comparison.measure import Run  # noqa: E402
from comparison.progress import Progress  # noqa: E402
from comparison.scenarios import (CLUSTER_SIZES, COLLECTIVES, LOCAL_SIZES, UsageError, bus_factor,  # noqa: E402
                                  exact_size, line_time_us, parse_scenario, parse_size, size_text)


def row(size, us, algorithm="", cpu_us=1.0, iterations=100):
    return {"size": size, "us": us, "cpu_us": cpu_us, "iterations": iterations, "algorithm": algorithm}


def launch(scenario, collective, system, number, *rows):
    return {"scenario": scenario, "collective": collective, "system": system, "round": number, "rows": list(rows)}


def document(launches, scenarios, notes=None, startup=()):
    return {"version": 1, "created": "2026-01-02 03:04", "command": "perf/compare.py --rounds 3",
            "machine": {"cpu": "a <fast> CPU", "cores": 2, "memory_gib": 24.0, "kernel": "6.1", "system": "Debian 12",
                        "load_at_start": 0.1},
            "versions": {"Weft": "abc", "Open MPI": "4.1.4"}, "scenarios": scenarios, "notes": notes or {},
            "launches": launches, "startup": list(startup)}


def canned():
    launches = []
    for number, factor in enumerate((1.0, 1.1, 5.0)):  # the third launch was disturbed: medians do not show it
        for collective in ("all_reduce", "all_gather"):
            launches += [launch("shm2", collective, "Weft", number, row(8, 0.4 * factor, "one_hop"),
                                row(1 << 20, 100 * factor, "ring", cpu_us=90)),
                         launch("shm2", collective, "Open MPI", number, row(8, 0.5 * factor), row(1 << 20, 80 * factor)),
                         launch("shm2", collective, "Gloo", number, row(8, 900 * factor, "ring"),
                                row(8, 600 * factor, "bcube"), row(1 << 20, 700 * factor, "ring"),
                                row(1 << 20, 900 * factor, "bcube"))]
        launches += [launch("cluster4", "all_gather", "Weft", number, row(16 << 20, 211000 * factor))]
    startup = [{"ranks": ranks, "threads": threads, "system": name, "us": us, "command_us": 2 * us}
               for ranks, threads, name, us in ((2, False, "Weft", 5000), (2, False, "Weft", 7000),
                                                (2, False, "Open MPI", 250000), (64, True, "Weft", 90000))]
    notes = {"shm2": ["MPICH, broadcast: stopped after 15 s; not tried again."], "": ["Gloo is <not> there."]}
    return results.Results(document(launches, ["shm2", "cluster4"], notes, startup))


class Summary(unittest.TestCase):
    def test_a_cell_is_the_median_over_launches_and_the_best_algorithm_of_a_peer(self):
        cell = canned().sections[0].cells[0]
        self.assertEqual((cell.collective, cell.size), ("all_reduce", 8))
        self.assertAlmostEqual(cell.figures["Weft"].us, 0.44)
        self.assertAlmostEqual(cell.figures["Weft"].least_us, 0.4)
        self.assertEqual(cell.figures["Weft"].launches, 3)
        self.assertEqual(cell.figures["Gloo"].algorithm, "bcube")
        self.assertAlmostEqual(cell.figures["Gloo"].us, 660)
        self.assertEqual(cell.best_peer, "Open MPI")
        self.assertAlmostEqual(cell.speedup, 0.55 / 0.44)

    def test_weft_is_not_given_the_best_of_the_algorithms_it_chose(self):
        launches = [launch("shm2", "all_reduce", "Weft", i, row(8, us, name))
                    for i, (us, name) in enumerate(((1, "ring"), (9, "one_hop"), (9, "one_hop")))]
        cell = summary.cells_of(parse_scenario("shm2"), launches)[0]
        self.assertEqual(cell.figures["Weft"].us, 9)
        self.assertIsNone(cell.speedup)

    def test_bandwidth_and_cpu_cost_count_bus_traffic(self):
        figure = summary.figure_of([row(1 << 20, 1000.0, cpu_us=500.0)], bus_factor("all_reduce", 4), 1 << 20)
        self.assertAlmostEqual(figure.bus_gb_per_s, 1.5 * (1 << 20) / 1000e-6 / 1e9)
        self.assertAlmostEqual(figure.cpu_s_per_gb, 500e-6 / (1.5 * (1 << 20)) * 1e9)

    def test_the_verdict_is_a_geometric_mean(self):
        verdict = canned().sections[0].verdict
        self.assertAlmostEqual(verdict.mean, (1.25 * 0.8) ** 0.5)
        self.assertEqual((verdict.compared, verdict.slower), (4, 2))
        self.assertAlmostEqual(verdict.worst.speedup, 0.8)
        self.assertIsNone(summary.geometric_mean([]))
        self.assertIsNone(canned().sections[1].verdict.mean)

    def test_the_share_of_the_line_rate_counts_what_leaves_a_node(self):
        self.assertAlmostEqual(canned().sections[1].cells[0].line_share,
                               0.75 * (16 << 20) * 8 / 500e6 * 1e6 / (211000 * 1.1))
        self.assertAlmostEqual(line_time_us(parse_scenario("cluster4x2"), "alltoall", 1000), 2 * 0.75 * 16)
        self.assertAlmostEqual(line_time_us(parse_scenario("cluster4x2"), "all_reduce", 1000), 2 * 0.75 * 16)

    def test_startup_is_a_median(self):
        self.assertEqual([(s.ranks, s.threads, s.us["Weft"]) for s in canned().startup],
                         [(2, False, 6000), (64, True, 90000)])


class Showing(unittest.TestCase):
    def test_the_table(self):
        text = table.text_of(canned())
        self.assertIn("| all_reduce | 8 B | 0.44 | 0.55 | 660 | 1.25 |", text)
        self.assertIn("| all_gather | 16 MiB | 232100 | - |", text)
        self.assertIn("Geometric mean of the speed-ups: 1.00. Slower than the best peer in 2 of 4 cells", text)
        self.assertIn("* MPICH, broadcast: stopped after 15 s; not tried again.", text)
        self.assertIn("| 2 | processes | 6 | 250 |", text)
        self.assertIn("CPU seconds", text)
        columns = {line.count("|") for line in text.split("### 2 ranks")[1].split("\n\n")[2].splitlines()}
        self.assertEqual(len(columns), 1, "a row has another number of cells than the head")

    def test_the_page_is_whole_and_needs_nothing_else(self):
        text = page.page_of(canned())
        self.assertNotRegex(text, r"https?://|<link|@import|src=|url\(")
        described = [json.loads(one) for one in re.findall(r'<script type="application/json" class="chart">(.*?)</script>', text)]
        without_scripts = re.sub(r"<script.*?</script>", "", text, flags=re.S).replace("<!DOCTYPE html>\n", "")
        root = ElementTree.fromstring(re.sub(r'<(meta[^>]*)>', r"<\1/>", without_scripts))
        shown = "".join(root.itertext()) + " ".join(one["title"] for one in described)
        for part in ("perf/compare.py --rounds 3", "a <fast> CPU", "Gloo is <not> there.", "2 ranks, shared memory",
                     "4 nodes of 1 rank, 500 Mbit/s", "all_reduce: bus bandwidth", "geometric mean", "Start-up",
                     "MPICH, broadcast: stopped after 15 s"):
            self.assertIn(part, shown)
        self.assertEqual(len(described), 2 * 3 + 2)  # without a peer there is no chart of speed-ups
        for one in described:
            self.assertTrue(all(size > 0 and value > 0 for series in one["series"] for size, value in series["points"]))
        self.assertIn(pathlib.Path(page.PAGES, "charts.js").read_text(encoding="utf-8"), text)
        cells = [cell for cell in root.iter("td") if "rgba(var(--" in cell.get("style", "")]
        self.assertTrue(any("--good" in cell.get("style") for cell in cells))
        self.assertTrue(any("--bad" in cell.get("style") for cell in cells))
        self.assertTrue(any("Open MPI 0.55 µs" in cell.get("title", "") for cell in cells))

    def test_a_page_of_nothing_is_a_page(self):
        text = page.page_of(results.Results(document([], ["shm2"])))
        self.assertIn("</html>", text)
        self.assertIn("2 ranks, shared memory", text)

    def test_charts_keep_to_their_frame(self):
        text = charts.chart("t", "µs", [charts.Series("Weft", "s0", [(8, 0.3), (1024, 2.0), (1 << 28, 9e5)])])
        places = [tuple(map(float, p.split(","))) for p in re.search(r'points="([^"]*)"', text)[1].split()]
        self.assertEqual(len(places), 3)
        for x, y in places:
            self.assertTrue(charts.LEFT <= x <= charts.WIDTH and 0 <= y <= charts.HEIGHT)
        self.assertGreater(places[0][1], places[2][1])  # larger values are higher
        self.assertEqual(charts.chart("t", "µs", []), "")
        self.assertIn("<circle", charts.chart("t", "x", [charts.Series("a", "s0", [(8, 1.0)])], mark_one=True))

    def test_numbers(self):
        self.assertEqual([table.number(v) for v in (None, 0.1234, 12.34, 123456.7)], ["-", "0.123", "12.3", "123457"])
        self.assertEqual([size_text(s) for s in (8, 1024, 1536, 4 << 20)], ["8 B", "1 KiB", "1536 B", "4 MiB"])


class Planning(unittest.TestCase):
    def plan(self, budget_s, name="shm4", rounds=3):
        scenario = parse_scenario(name)
        return schedule.plan(scenario, 4, COLLECTIVES, scenario.sizes(), rounds, 50, budget_s)

    def test_without_a_budget_everything_is_measured(self):
        plan = self.plan(None)
        self.assertEqual((list(plan.sizes), plan.rounds, plan.note), (LOCAL_SIZES, 3, ""))

    def test_less_time_means_fewer_rounds_then_fewer_sizes(self):
        previous = self.plan(10000)
        self.assertEqual((list(previous.sizes), previous.rounds), (LOCAL_SIZES, 3))
        for budget_s in (600, 300, 150, 75, 30, 5):
            plan = self.plan(budget_s)
            self.assertLessEqual(len(plan.sizes), len(previous.sizes))
            self.assertGreaterEqual(plan.rounds, 1)
            self.assertGreaterEqual(plan.sizes[-1], 256 << 10)
            if plan.rounds < 2:
                self.assertLessEqual(plan.sizes[-1], 1 << 20)
            previous = plan
        self.assertIn("Left out for want of time: sizes above", previous.note)

    def test_plans_fit_into_their_budget(self):
        for name in ("shm2", "shm8", "tcp4", "cluster4", "cluster8x2"):
            plan = self.plan(120, name)
            seconds = plan.rounds * schedule.round_seconds(plan.scenario, 4, COLLECTIVES, plan.sizes, 50)
            self.assertTrue(seconds <= 120 or plan.rounds == 1, name)

    def test_scenarios_and_sizes(self):
        self.assertEqual(parse_scenario("cluster8-1ms").latency_ms, 1)
        self.assertEqual((parse_scenario("cluster4x2").ranks, parse_scenario("cluster4x2").nodes), (8, 4))
        self.assertEqual(parse_scenario("cluster8").sizes(), CLUSTER_SIZES)
        self.assertEqual(parse_size("--max", "4M"), 4 << 20)
        self.assertEqual((exact_size("all_reduce", 8, 8), exact_size("all_gather", 8, 8)), (8, 32))
        for name in ("shm1", "shm", "cluster", "cluster4x", "tcp2-1ms", "cluster300"):
            self.assertRaises(UsageError, parse_scenario, name)


class FakeSystem:
    threads = False

    def __init__(self, name, order, fails=False, machine_fails=False):
        self.name, self.order, self.fails, self.machine_fails = name, order, fails, machine_fails

    def measure_machine(self, scenario):
        if self.machine_fails:
            raise systems.LaunchError("exit code 1: broken")

    def sweep(self, work):
        self.order.append(self.name)
        if self.fails:
            raise systems.LaunchError("exit code 1: broken")
        return [systems.Row(size, 1.0, 1.0, 10) for size in work.sizes[:2]]


class Measuring(unittest.TestCase):
    def run_fakes(self, weft_fails=False, machine_fails=False):
        order = []
        fakes = [FakeSystem("Weft", order, weft_fails, machine_fails), FakeSystem("A", order), FakeSystem("B", order, fails=True)]
        run = Run(fakes, 50, Progress(1, io.StringIO()))
        plan = schedule.Plan(parse_scenario("shm2"), (8, 1024, 4096), 3, None)
        run.scenario(plan, ["all_reduce"])
        return run, order

    def test_systems_take_turns_and_a_broken_peer_is_left_alone(self):
        run, order = self.run_fakes()
        self.assertEqual(order, ["Weft", "A", "B", "A", "Weft", "Weft", "A"])
        self.assertFalse(run.weft_failed)
        self.assertIn("B, all_reduce: exit code 1: broken; not tried again.", run.notes["shm2"])
        self.assertIn("A, all_reduce: no time for 4 KiB and above in 60 s.", run.notes["shm2"])
        self.assertEqual([one["system"] for one in run.launches].count("Weft"), 3)

    def test_launches_wait_for_the_cores_and_are_repeated_where_these_moved(self):
        looks = iter([25] * LOOKS +      # usual
                      [160, 160, 26] +   # waits
                      [155] +            # moved during the launch
                      [25, 27])          # again, and well
        seen = []
        found = Cores(lambda: next(looks), pause_s=0)
        self.assertEqual(found.usual, [25])
        self.assertEqual(found.steadily(lambda: seen.append(1) or len(seen)), 2)
        self.assertEqual((found.launches, found.repeated, found.restless), (1, 1, 0))
        self.assertRaises(StopIteration, next, looks)

    def test_cores_that_stay_elsewhere_become_usual_unless_the_user_has_said_where(self):
        for given, usual in ((None, [25, 160]), (25, [25])):
            looks = iter([25] * LOOKS if given is None else [25])
            found = Cores(lambda: next(looks, 160), given, pause_s=0, patience_s=0)
            found.steadily(lambda: None)
            self.assertEqual(found.usual, usual)
            self.assertEqual(found.restless, 0 if given is None else 1)
        self.assertIn("about 25 ns", found.sentence())

    def test_a_look_that_fails_is_the_last_one_and_no_launchs_fault(self):
        def fail():
            raise systems.LaunchError("stopped after 5 s")
        looks = iter([lambda: 25] * LOOKS + [lambda: 25, fail])
        found = Cores(lambda: next(looks)(), pause_s=0)
        self.assertEqual(found.steadily(lambda: "rows"), "rows")
        self.assertEqual(found.steadily(lambda: "more"), "more")
        self.assertIn("not known: stopped after 5 s", found.sentence())

    def test_a_machine_that_is_not_measured_is_wefts_failure_alone(self):
        run, order = self.run_fakes(machine_fails=True)
        self.assertTrue(run.weft_failed)
        self.assertIn("Weft did not measure the machine: exit code 1: broken.", run.notes["shm2"])
        self.assertEqual(order, ["Weft", "A", "B", "A", "Weft", "Weft", "A"])

    def test_a_failure_of_weft_is_told(self):
        self.assertTrue(self.run_fakes(weft_fails=True)[0].weft_failed)

    def test_what_a_stopped_launch_printed_is_kept(self):
        with self.assertRaises(systems.LaunchError) as caught:
            systems.execute(["sh", "-c", "echo '{\"bytes\": 8}'; sleep 30"], timeout_s=0.5)
        self.assertEqual(systems.lines_of(caught.exception.output), [{"bytes": 8}])

    def test_what_a_peer_measured_before_it_failed_counts_unless_it_is_wrong(self):
        line = '{"bytes": 8, "us": 1, "cpu_us": 1, "iterations": 3, "algorithm": "", "wrong": %d}'
        work = systems.Work(parse_scenario("shm2"), "all_reduce", (8, 1024), 1, 10)

        def sweep(script):
            peer = systems.Peer(pathlib.Path("program"))
            peer.command = lambda scenario: (["sh", "-c", script], {})
            return peer.sweep(work)

        self.assertEqual([r.size for r in sweep(f"echo '{line % 0}'; echo late trouble >&2; exit 255")], [8])
        with self.assertRaisesRegex(systems.LaunchError, "2 wrong elements at 8 bytes"):
            sweep(f"echo '{line % 2}'; exit 1")
        with self.assertRaisesRegex(systems.LaunchError, "exit code 3: no way"):
            sweep("printf 'no\nway' >&2; exit 3")

    def test_the_bar(self):
        stream = io.StringIO()
        progress = Progress(4, stream)
        progress.step()
        progress.show("shm2")
        self.assertRegex(stream.getvalue(), r"^\[#######\.+\]  25 %  shm2  \(0:0\d, about 0:0\d left\)\n$")
        self.assertIn("100 %", Progress(0, stream).line("x", 0) if progress.step(9) else progress.line("x", 1))


class Command(unittest.TestCase):
    def call(self, *words):
        done = subprocess.run([sys.executable, "-B", str(ROOT / "perf/compare.py"), *words], capture_output=True, text=True,
                              timeout=60)
        return done.returncode, done.stdout, done.stderr

    def test_mistakes_are_explained(self):
        for words, sentence in ((("--scenarios", "shm1"), "--scenarios: 'shm1' is none"),
                                (("--collectives", "all_redcue"), "--collectives: 'all_redcue' is none of"),
                                (("--peers", "nccl"), "--peers: 'nccl' is none of"),
                                (("--sizes", "8,x"), "--sizes: 'x' is not a size"),
                                (("--max", "4"), "--max: 4 leaves no size"),
                                (("--rounds", "0"), "--rounds: is 0"),
                                (("--minutes", "-1"), "--minutes: is -1"),
                                (("--time-ms", "0"), "--time-ms: is 0"),
                                (("--json", "/nowhere/x.json"), "--json: there is no folder /nowhere"),
                                (("--build", "/nowhere"), "--build: there is no bin/weft_run in /nowhere"),
                                (("--replot", "/nowhere.json"), "--replot: /nowhere.json cannot be read")):
            code, _, errors = self.call(*words)
            self.assertEqual(code, 2, words)
            self.assertIn(sentence, errors)
            self.assertNotIn("Traceback", errors)

    def test_results_can_be_shown_again(self):
        with tempfile.TemporaryDirectory() as folder:
            saved, html = pathlib.Path(folder) / "a.json", pathlib.Path(folder) / "a.html"
            canned().save(saved)
            self.assertEqual(json.loads(saved.read_text())["cells"]["shm2"][0]["best_peer"], "Open MPI")
            code, output, errors = self.call("--replot", str(saved), "--html", str(html))
            self.assertEqual((code, errors), (0, ""))
            self.assertEqual(output.strip(), table.text_of(canned()).strip())
            self.assertEqual(html.read_text(), page.page_of(canned()))
            whole = json.loads(saved.read_text())
            for damage in ("{", "[]", '{"version": 9}', '{"version": 1}', "\udcff\udcfe", json.dumps({**whole, "notes": []})):
                saved.write_text(damage, errors="surrogateescape")
                code, _, errors = self.call("--replot", str(saved))
                self.assertEqual(code, 2, damage)
                self.assertIn("--replot: ", errors)
                self.assertNotIn("Traceback", errors)

    def test_help(self):
        with contextlib.redirect_stdout(io.StringIO()) as output, self.assertRaises(SystemExit):
            compare.parse_arguments(["--help"])
        for option in ("--minutes", "--replot", "--scenarios", "cluster8-1ms"):
            self.assertIn(option, output.getvalue())


if __name__ == "__main__":
    unittest.main()
