#!/usr/bin/env python3
"""perf/gpu/quarter_hour.sh without a GPU and without programs: its table, how it reads what the steps print, runs that are cut
off, steps that hang, a machine of scripts on which every step is run, and the report.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPU = ROOT / "perf" / "gpu"
sys.path.insert(0, str(ROOT / "perf"))
import gpu_report  # noqa: E402
from gpu import kit, readers, results  # noqa: E402
from gpu.steps import ALL, GROUPS, SIZES, TOOLS  # noqa: E402

PERF = """# Collective test starting: AllReduce, Weft 0.1.0
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
           8             2     float     sum      -1     5.61    0.00    0.00       0      N/A     N/A     N/A     N/A
     1048576        262144     float     sum      -1    92.10   11.39   17.08       0    93.00   11.27   16.91       0
# Transports           : shared memory
# Algorithms           : one_hop (8 B), ring (1 MiB)
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 8.5
"""
NCU = """==PROF== Connected to process 7
"ID","Process ID","Kernel Name","gpu__time_duration.sum","sm__throughput.avg.pct_of_peak_sustained_elapsed","gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed","sm__warps_active.avg.pct_of_peak_sustained_active"
"","","","nsecond","%","%","%"
"0","7","loom_add(loom::cuda::AddArguments)","1,000","5.5","80","90"
"1","7","loom_attention_forward_bf16_64","1000","40","20","25"
"2","7","loom_attention_forward_bf16_64","3000","60","20","25"
"""
TESTS = """[==========] Running 4 tests from 2 test suites.
[ RUN      ] Graphs.AreLaunchedAgain
[       OK ] Graphs.AreLaunchedAgain (12 ms)
[ RUN      ] Layouts/Graph.EveryCollective/0011
graph_test.cc:42: Failure
[  FAILED  ] Layouts/Graph.EveryCollective/0011, where GetParam() = { "0", "1" } (300 ms)
[ RUN      ] TwoDevices.AreTold
device_test.cc:7: Skipped
this machine has one CUDA device
[  SKIPPED ] TwoDevices.AreTold (0 ms)
[ RUN      ] Aborts.EndAtOnce
"""


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


class Table(unittest.TestCase):
    def test_every_step_can_be_told_run_and_shown(self):
        names = [step.name for step in ALL]
        self.assertEqual(len(names), len(set(names)))
        for step in ALL:
            self.assertIn(step.group, GROUPS, step.name)
            self.assertLessEqual(step.usual_s, step.limit_s, step.name)
            self.assertTrue(step.asks, step.name)
            for program in re.findall(r"\{bin\}/(\w+)", " ".join(step.command)):
                self.assertIn(program, kit.PROGRAMS, step.name)
            for file in re.findall(r"\{root\}/(\S+)", " ".join(step.command)):
                self.assertTrue((ROOT / file).exists(), file)

    def test_one_run_holds_the_steps_of_loom_and_two_hold_those_of_weft(self):
        of_loom = [step for step in ALL if step.group in ("losses", "training", "tools")]
        self.assertEqual(of_loom[-1].name, "ncu")  # which has the second run's time where the first has none left
        self.assertLess(sum(step.usual_s for step in of_loom[:-1]), 540)
        self.assertLess(sum(step.usual_s for step in ALL if step not in of_loom), 2 * 600)

    def test_ranks_print_no_labels_before_their_tables(self):
        for step in ALL:
            if "weft_run" in step.command[0]:
                self.assertIn("--no-label", step.command, step.name)

    def test_nccl_runs_over_what_the_step_names_or_fails(self):
        for step in ALL:
            if step.name.startswith("nccl_") and step.name.endswith("_over_weft"):
                self.assertEqual((step.environment["NCCL_NET_PLUGIN"], step.environment["NCCL_NET"]), ("weft", "Weft"))
            elif "NCCL_HOSTID" in " ".join(step.command) and "NCCL" in step.needs:
                self.assertEqual((step.environment["NCCL_NET_PLUGIN"], step.environment["NCCL_NET"]), ("none", "Socket"))

    def test_no_step_gives_the_tools_own_communicators_to_nccl(self):
        for step in ALL:
            self.assertNotEqual(step.environment.get("WEFT_BACKEND"), "nccl", step.name)

    def test_every_size_has_a_small_one(self):
        for step in ALL:
            for name in re.findall(r"\{([^}]*)\}", " ".join([*step.command, *step.environment.values()])):
                self.assertIn(name, {"bin", "lib", "root", "driver", *TOOLS, *SIZES}, step.name)


class Readers(unittest.TestCase):
    """Outputs as the programs' own formats make them, since most of these steps need a GPU."""

    def test_the_formats_of_the_programs_are_those_that_are_read(self):
        for file, formats in {
            "gpu_probe.cu": [r'printf("%.1f\n"', r'printf("%s\n", without ? "yes" : "no")'],
            "gpu_waits.cu": [
                r'"| %s%s | %s | %s |\n"',
                r'"| %s, while another thread is in: %s | %s | |\n"',
                r'"| call | returns | another thread\'s copies meanwhile |\n| --- | --- | --- |\n"'.replace("\\'", "'"),
            ],
        }.items():
            text = (GPU / file).read_text()
            for one in formats:
                self.assertIn(one, text, file)

    def test_gpu_probe(self):
        self.assertEqual(readers.per_cent("%.1f\n" % 12.345)["per cent"], 12.3)
        self.assertEqual(readers.per_cent("weft WARN something 7\n%.1f\n" % -0.5)["per cent"], -0.5)
        self.assertEqual(readers.yes_or_no("no\n")["answer"], "no")
        for read in (readers.per_cent, readers.yes_or_no):
            with self.assertRaises(readers.Unreadable):
                read("gpu_probe: the kernel does not get every multiprocessor: is the GPU in use?\n")

    def test_gpu_waits(self):
        head = "| call | returns | another thread's copies meanwhile |\n| --- | --- | --- |\n"
        rows = "| %s%s | %s | %s |\n" % (
            "cudaIpcOpenMemHandle",
            ", while a kernel spins",
            "after %.2f ms" % 0.5,
            "%.2f ms at most" % 1.25,
        )
        rows += "| %s | **%s** | |\n" % ("behind", "never ended")
        self.assertEqual(len(readers.markdown_table(head + "gpu_waits: noise\n" + rows)["lines"]), 4)
        for nothing in (head, head + "gpu_waits: no driver\n| %s | not measured | |\n" % "behind"):
            with self.assertRaises(readers.Unreadable):
                readers.markdown_table(nothing)

    def test_training_steps(self):
        steps = ['{"step": 0, "loss": 10.5, "norm": 2, "ms": 900.0}', '{"step": 1, "loss": 10.25, "norm": 2, "ms": 100.0}']
        sums = '{"system": "a system", "batch": 64, "tokens": 1024, "ms": 100.0, "tokens_per_second": 655360.0, "flops_per_token": 8e8, '
        sums += '"memory_mb": 900, "planned_mb": 800}'
        row = readers.training("\n".join(["a warning", *steps, sums]))["rows"][0]
        self.assertEqual((row["system"], row["steps"], row["ms"]), ("a system", 2, 100.0))
        self.assertAlmostEqual(row["MFU, %"], 655360 * 8e8 / 989e12 * 100)
        self.assertEqual((row["memory, MiB"], row["planned, MiB"]), (900, 800))
        self.assertEqual((row["first loss"], row["last loss"]), (10.5, 10.25))
        ended = readers.training(steps[0])["rows"][0]
        self.assertEqual((ended["ms"], ended["tokens/s"], ended["system"]), (900.0, None, None))
        again = readers.training("\n".join([*steps, '{"note": "a batch of 64 does not fit"}', steps[0]]))["rows"][0]
        self.assertEqual((again["steps"], again["first loss"], again["notes"]), (1, 10.5, "a batch of 64 does not fit"))
        with self.assertRaises(readers.Unreadable):
            readers.training('{"note": "a batch of 1 does not fit"}')
        kernel = '{"instruction": "backward", "kernel": "loom_add", "calls": 24, "kernel_ms": 1.5}'
        values = readers.training("\n".join([*steps, sums, kernel]))
        self.assertEqual((values["rows"][0]["steps"], [row["kernel"] for row in values["kernels"]]), (2, ["loom_add"]))

    def test_lines_of_json_up_to_where_a_program_was_ended(self):
        text = 'weft WARN x\n{"stage": "process group"}\n{"stage": "collectives", "right": true}\n{"stage": "unsh'
        self.assertEqual([row["stage"] for row in readers.json_rows(text)["rows"]], ["process group", "collectives"])

    def test_perf_tables(self):
        values = readers.perf_table(PERF)
        self.assertEqual([row["bytes"] for row in values["rows"]], [8, 1 << 20])
        self.assertEqual(values["rows"][1], {"bytes": 1 << 20, "us": 92.1, "alg GB/s": 11.39, "bus GB/s": 17.08, "wrong": 0})
        self.assertEqual(values["algorithms"], "one_hop (8 B), ring (1 MiB)")
        with self.assertRaises(readers.Unreadable):
            readers.perf_table("nothing")

    def test_every_collective(self):
        text = f"== all_reduce, 2 ranks, 1 nodes\n{PERF}== alltoall, 2 ranks, 2 nodes\n" + PERF.split("# Transports")[0]
        runs = readers.every_collective(text)["runs"]
        self.assertEqual(
            [(run["collective"], run["nodes"], run["result"]) for run in runs],
            [("all_reduce", 1, "right"), ("alltoall", 2, "not over")],
        )
        wrong = readers.every_collective(text.replace("values : 0 OK", "values : 3 FAILED"))["runs"][0]
        self.assertEqual(wrong["result"], "wrong")
        self.assertIn('echo "== $collective, $ranks ranks, $nodes nodes"', (ROOT / "tests/gpu/every_collective.sh").read_text())

    def test_google_tests_and_the_one_that_hung(self):
        values = readers.google_tests(TESTS)
        self.assertEqual((values["passed"], values["skipped"]), (1, 1))
        self.assertEqual(values["failed"], ["Layouts/Graph.EveryCollective/0011"])
        self.assertEqual(values["not over"], ["Aborts.EndAtOnce"])

    def test_compute_sanitizer(self):
        text = TESTS + "========= Invalid __global__ read of size 4 bytes\n========= ERROR SUMMARY: 1 error\n"
        self.assertEqual(readers.sanitizer(text)["errors"], 1)
        self.assertEqual(readers.sanitizer(TESTS + "========= ERROR SUMMARY: 0 errors\n")["errors"], 0)
        with self.assertRaises(readers.Unreadable):
            readers.sanitizer(TESTS + "========= Error: Device not supported\n")


    def test_compute_sanitizer_of_programs_that_are_no_tests(self):
        race = "========= Error: Race reported between Write access and Read access\n"
        for text, count in (
            ("========= ERROR SUMMARY: 0 errors\n", 0),
            ("========= ERROR SUMMARY: 1 error\n", 1),
            ("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n", 0),
            (race + "========= RACECHECK SUMMARY: 3 hazards displayed (2 errors, 1 warning)\n", 2),
        ):
            self.assertEqual(readers.errors(text)["errors"], count, text)
        with self.assertRaises(readers.Unreadable):
            readers.errors("========= Error: Device not supported\n")

    def test_ncu(self):
        values = readers.ncu("noise\n" + NCU)
        self.assertEqual([(row["kernel"], row["launches"]) for row in values["rows"]], [("loom_attention_forward_bf16_64", 2), ("loom_add", 1)])
        slowest = values["rows"][0]
        self.assertAlmostEqual(slowest["ms"], 0.004)
        self.assertAlmostEqual(slowest["multiprocessors, %"], (1000 * 40 + 3000 * 60) / 4000)  # by time
        for text, reason in (
            ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n", "ERR_NVGPUCTRPERM"),
            ("==ERROR== Failed to initialize the profiler\n", "Failed to initialize"),
            (NCU.split('"0"')[0], "saw no launch"),
            ("", "no error"),
        ):
            with self.assertRaisesRegex(readers.Unreadable, reason):
                readers.ncu(text)


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        temporary = unittest.mock.patch.dict(os.environ, TMPDIR=folder.name)  # a run that is killed leaves its folder
        temporary.start()
        self.addCleanup(temporary.stop)
        self.out = self.folder / "out"

    def status(self):
        return {name: line["status"] for name, line in results.read([self.out / "results.jsonl"]).items()}


class Results(InFolder):
    def test_half_a_line_is_passed_over_and_what_follows_is_not(self):
        path = self.folder / "results.jsonl"
        path.write_text('{"step": "a", "status": "ok"}\n{"step": "b", "sta')
        results.Results(path).add(step="c", status="failed")
        self.assertEqual({name: line["status"] for name, line in results.read([path]).items()}, {"a": "ok", "c": "failed"})

    def test_what_one_run_knows_another_one_that_had_no_time_keeps(self):
        first, second = self.folder / "1", self.folder / "2"
        first.write_text('{"step": "a", "status": "ok"}\n{"step": "b", "status": "failed"}\n')
        second.write_text('{"step": "a", "status": "skipped"}\n{"step": "b", "status": "ok"}\n')
        self.assertEqual({name: line["status"] for name, line in results.read([first, second]).items()}, {"a": "ok", "b": "ok"})


class Report(InFolder):
    def test_every_kind_of_value_and_trouble_has_its_place(self):
        path = self.folder / "results.jsonl"
        written = results.Results(path)
        card = "NVIDIA H100 80GB HBM3"
        values = {
            "fsdp_over_weft": readers.json_rows(
                '{"stage": "fully_shard", "step_ms": 12.5, "largest_difference": 1e-7, "losses": [7.0, 6.5]}'
            ),
            "waits_beside_a_kernel": readers.markdown_table(
                "| call | returns | x |\n| --- | --- | --- |\n| cudaMalloc | after 0.10 ms | |\n"
            ),
            "all_reduce_2": readers.json_rows(
                '{"collective":"all_reduce","ranks":2,"bytes":64,"us":32.1,"GB/s":0.002,"algorithm":"one_hop","path":"mapped GPU memory","graph":0}'
            ),
            "collectives_2": readers.every_collective(f"== all_reduce, 2 ranks, 1 nodes\n{PERF}"),
            "eight_bytes": readers.perf_table(PERF),
            "census_all_gather": readers.yes_or_no("no\n"),
            "beside_all_gather_threads": readers.per_cent("7.5\n"),
            "weft_info": readers.lines("a driver for CUDA 13.0 with 1 device\n"),
            "loom_124M": readers.training(
                '{"step": 0, "loss": 10.5, "ms": 130}\n{"system": "Loom on a GPU", "batch": 64, "tokens": 1024, "ms": 130, '
                '"tokens_per_second": 504123, "flops_per_token": 803e6, "memory_mb": 9000, "planned_mb": 8000}\n'
                '{"instruction": "forward", "kernel": "product of m 1", "calls": 12, "kernel_ms": 60}\n'
                '{"instruction": "forward", "kernel": "loom_attention_forward_bf16_64", "calls": 12, "kernel_ms": 26}\n'
                '{"instruction": "step", "kernel": "loom_adamw_bf16", "calls": 14, "kernel_ms": 13}\n'
            ),
            "loom_124M_cudnn": readers.training(
                '{"step": 0, "loss": 10.5, "ms": 120}\n{"system": "Loom on a GPU", "batch": 64, "tokens": 1024, "ms": 120, "tokens_per_second": 546133, "flops_per_token": 803e6}\n'
                '{"instruction": "forward", "kernel": "cuDNN\'s attention", "calls": 12, "kernel_ms": 7}\n'
                '{"instruction": "backward", "kernel": "the gradient of cuDNN\'s attention", "calls": 12, "kernel_ms": 14}\n'
            ),
            "ceilings_124M": readers.json_rows(
                '{"what": "attention forward", "ms": 1}\n{"what": "all products of a step", "ms": 55}\n{"what": "all attention of a step", "ms": 20}'
            ),
            "racecheck_step": readers.errors("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"),
            "ncu": readers.ncu(NCU),
            "losses_fp32": readers.json_rows('{"family": "bloom", "precision": "fp32", "largest difference": 2e-6}'),
        }
        for name, its in values.items():
            written.add(step=name, group="-", status="ok", seconds=1.5, card=card, values=its)
        written.add(
            step="tests_graphs",
            group="correctness",
            status="timeout",
            seconds=90,
            card=card,
            reason="not over after 90 s",
            values=readers.google_tests(TESTS),
            last_lines=["[ RUN      ] Aborts.EndAtOnce"],
            command="TUNE=off build/test_cuda",
        )
        written.add(
            step="sanitizer", group="rest", status="skipped", seconds=0, card=card, reason="there is no compute-sanitizer here"
        )
        written.add(step="waits", group="rest", status="started")
        page = gpu_report.page([path])
        for part in (
            card,
            "| 64 B | 32.1 | 0.002 | one_hop | mapped GPU memory |",
            "| cudaMalloc | after 0.10 ms | |",
            "1 of 1 runs right",
            "7.5 % slower",
            "| Does all_gather end while a kernel holds every multiprocessor? | no | ok |",
            "| 1 MiB | 92.1 | 11.4 | 17.1 | 0 |",
            "a driver for CUDA 13.0",
            "| loom_124M | Loom on a GPU | 64 | 1024 | 1 | 130 | 504123 |",
            "| bloom | fp32 | 2e-06 |",
            "| products | 60 | 46.2 | 55 |",
            "| attention | 26 | 20 | 20 |",
            "| attention | 21 | 17.5 | 20 |",
            "| other kernels | 13 | 10 |  |",
            "| between kernels | 31 | 23.8 |  |",
            "| step | loom_adamw_bf16 | 14 | 13 |",
            "| Does racecheck find a race in shared memory in a step in bf16? | 0 errors | ok |",
            "| loom_attention_forward_bf16_64 | 2 | 0.004 | 55 |",
            "12.5",
            "1 passed, 1 failed, 1 skipped",
            "not over: Aborts.EndAtOnce",
            "`TUNE=off build/test_cuda`",
            "there is no compute-sanitizer here",
            "**cut off**",
            "[ RUN      ] Aborts.EndAtOnce",
        ):
            self.assertIn(part, page)

    def test_docs_are_written_and_a_missing_file_is_named(self):
        (self.folder / "results.jsonl").write_text(
            '{"step": "machine", "status": "ok", "values": {"kind": "rows", "rows": [{"nvcc": "13.0"}]}}\n'
        )
        tool = [sys.executable, "-B", ROOT / "perf" / "gpu_report.py"]
        done = subprocess.run(
            [*tool, self.folder / "results.jsonl", "--docs", self.folder / "docs" / "gpu.md"], capture_output=True, text=True
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| nvcc | 13.0 |", (self.folder / "docs" / "gpu.md").read_text())
        done = subprocess.run([*tool, self.folder / "nothing"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("nothing does not exist, must be a file of results", done.stderr)


# A run over steps that a test gives, with a machine that has a GPU and programs.
OWN_STEPS = """
import sys
sys.argv = ["quarter_hour.py", *sys.argv[1:]]
sys.path.insert(0, {perf!r})
from gpu import kit, quarter_hour, readers
from gpu.steps import Step
def find(folders):
    if {finds!r}:
        return kit.Programs(folders[0])
    raise kit.KitError("version GLIBC_2.36 not found")
kit.find = find
def literally(text):
    return text.replace("{{", "{{{{").replace("}}", "}}}}")
quarter_hour.FACTS = Step("machine", "environment", 9, 0, "?", ("echo", literally('{{"devices": ["a card"]}}')), readers.json_rows)
quarter_hour.ALL = [Step(name, "rest", limit, usual, "?", ("sh", "-c", literally(script)), readers.json_rows)
                    for name, limit, usual, script in {steps!r}]
sys.exit(quarter_hour.main())
"""


class Runs(InFolder):
    finds = True  # programs that run

    def command(self, steps, *options):
        script = OWN_STEPS.format(perf=str(ROOT / "perf"), steps=steps, finds=self.finds)
        return [sys.executable, "-B", "-c", script, "--out", str(self.out), *options]

    def run_steps(self, steps, *options, **settings):
        return subprocess.run(
            self.command(steps, *options), capture_output=True, text=True, timeout=60, env={**os.environ, **settings}
        )

    def test_where_the_kit_does_not_run_a_build_is_tried_and_its_failure_is_told(self):
        self.finds = False
        cmake = self.folder / "cmake"
        for code, status in ((1, "skipped"), (0, "ok")):
            cmake.write_text(f"#!/bin/sh\necho there is no compiler\nexit {code}\n")
            cmake.chmod(0o755)
            self.run_steps([("good", 9, 0, "echo '{}'")], PATH=f"{self.folder}:{os.environ['PATH']}")
            lines = results.read([self.out / "results.jsonl"])
            self.assertEqual(lines["good"]["status"], status)
            self.assertEqual(lines["programs"]["status"], "failed" if code else "ok")
            if code:
                self.assertEqual(lines["programs"]["last_lines"], ["there is no compiler"])
                self.assertIn("GLIBC_2.36 not found", lines["good"]["reason"])

    def test_steps_that_hang_or_fail_do_not_stop_the_others(self):
        done = self.run_steps(
            [
                ("hangs", 1, 0, "echo '{\"row\": 1}'; trap '' TERM; while :; do sleep 0.1; done"),
                ("fails", 9, 0, "echo first >&2; echo so it is >&2; exit 3"),
                ("says nothing", 9, 0, ":"),
                ("good", 9, 0, "echo '{\"us\": 2.5}'"),
            ]
        )
        self.assertEqual(done.returncode, 1, done.stderr)
        lines = results.read([self.out / "results.jsonl"])
        self.assertEqual(
            self.status(),
            {"machine": "ok", "programs": "ok", "hangs": "timeout", "fails": "failed", "says nothing": "failed", "good": "ok"},
        )
        self.assertEqual(lines["hangs"]["values"]["rows"], [{"row": 1}])  # what it had shown until then
        self.assertEqual(lines["fails"]["reason"], "exit code 3")
        self.assertEqual(lines["fails"]["last_lines"], ["first", "so it is"])
        self.assertEqual(lines["good"]["card"], "a card")
        self.assertIn("==== fails ====\nfirst\nso it is", (self.out / "output.log").read_text())

    def test_results_that_no_page_can_show_do_not_stop_the_others(self):
        earlier = self.folder / "earlier.jsonl"
        earlier.write_text('{"step": "loom_124M", "status": "ok", "values": {"kind": "training", "kernels": [{}]}}\n')
        done = self.run_steps([("good", 9, 0, "echo '{}'")], "--done", str(earlier))
        self.assertIn("the page was not written", done.stderr)
        self.assertEqual(self.status()["good"], "ok")

    def test_what_a_step_leaves_behind_is_ended(self):
        mark = self.folder / "process"
        self.run_steps(
            [("leaves", 9, 0, f"setsid sh -c 'echo $$ > {mark}; exec sleep 1000' > /dev/null & sleep 0.3; echo '{{}}'")]
        )
        self.assertEqual(self.status()["leaves"], "ok")
        self.assertFalse(pathlib.Path(f"/proc/{mark.read_text().strip()}").exists())

    def test_steps_that_do_not_fit_into_the_budget_are_skipped_and_done_later(self):
        steps = [("short", 9, 1, "echo '{}'"), ("long", 900, 500, "echo '{}'")]
        self.run_steps(steps, "--budget", "100")
        self.assertEqual(self.status()["long"], "skipped")
        self.assertRegex(
            results.read([self.out / "results.jsonl"])["long"]["reason"], r"\d+ s of the budget are left, it takes 500 s"
        )
        self.run_steps(steps, "--budget", "900")
        self.assertEqual(self.status()["long"], "ok")
        self.assertEqual(
            sum(line["step"] == "short" and line["status"] == "ok" for line in lines_of(self.out / "results.jsonl")), 1
        )

    def test_the_budget_ends_a_step_that_takes_longer_than_usual(self):
        begin = time.monotonic()
        self.run_steps([("slow", 900, 0, "sleep 100")], "--budget", "2")
        self.assertEqual(self.status()["slow"], "timeout")
        self.assertLess(time.monotonic() - begin, 20)

    def killed_in_the_middle(self, number):
        trace = self.folder / "trace"
        steps = [
            (name, 60, 0, f"echo {name} >> {trace}; echo '{{}}'{wait}")
            for name, wait in (("a", ""), ("b", f"; [ -e {trace}.again ] || sleep 50"), ("c", ""))
        ]
        process = subprocess.Popen(self.command(steps), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 30
        while not (trace.exists() and "b" in trace.read_text()) and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(number)
        process.wait(timeout=30)
        (self.folder / "trace.again").touch()
        return trace, steps

    def test_a_run_that_is_killed_goes_on_with_what_is_missing(self):
        trace, steps = self.killed_in_the_middle(signal.SIGKILL)
        self.assertEqual(self.status(), {"machine": "ok", "programs": "ok", "a": "ok", "b": "started"})
        done = self.run_steps(steps)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(trace.read_text().split(), ["a", "b", "c", "b"])  # what was cut off comes after what has not been tried
        self.assertEqual(set(self.status().values()), {"ok"})

    def test_a_run_that_is_asked_to_end_says_so_and_leaves_nothing(self):
        self.killed_in_the_middle(signal.SIGTERM)
        line = results.read([self.out / "results.jsonl"])["b"]
        self.assertEqual((line["status"], line["reason"]), ("timeout", "the run was ended by SIGTERM"))

    def test_results_of_another_folder_count(self):
        earlier = self.folder / "earlier.jsonl"
        earlier.write_text('{"step": "a", "group": "rest", "status": "ok"}\n')
        self.run_steps([("a", 9, 0, "echo '{}'"), ("b", 9, 0, "echo '{}'")], "--done", str(earlier))
        self.assertEqual(self.status(), {"machine": "ok", "programs": "ok", "b": "ok"})


# A machine with a GPU, of scripts: each program prints what its own formats print, and notes how it was called.
STUB = r"""#!/bin/sh
name=$(basename "$0")
echo "$name $* NCCL_NET=$NCCL_NET NCCL_NET_PLUGIN=$NCCL_NET_PLUGIN NCCL_HOSTID=$NCCL_HOSTID LD_PRELOAD=$LD_PRELOAD" >> {calls}
case "$name $*" in
  *facts.py*) echo '{{"devices": ["NVIDIA H100 80GB HBM3"], "cards": null, "torch": "2.11.0", "NCCL": "2.28.9", "cuDNN'"'"'s file": "/opt/libcudnn.so.9", "compute-sanitizer": "'$(dirname "$0")/compute-sanitizer'", "ncu": "'$(dirname "$0")/ncu'"}}' ;;
  *fsdp.py*) echo '{{"stage": "process group", "libraries": ["a"]}}'; echo '{{"stage": "fully_shard", "step_ms": 3.5, "largest_difference": 1e-7}}' ;;
  *loom_losses.py*) echo '{{"family": "bloom", "precision": "fp32", "largest difference": 2e-6}}' ;;
  loom_step* | *torch_gpt2.py*) echo '{{"step": 0, "loss": 10.5, "ms": 130}}'
    echo '{{"system": "'$name'", "batch": 64, "tokens": 1024, "ms": 130, "tokens_per_second": 504123, "flops_per_token": 803e6}}'
    echo '{{"instruction": "forward", "kernel": "product of m 1", "calls": 12, "kernel_ms": 60}}' ;;
  loom_probe\ gradients*) echo '{{"family": "bloom", "task": "causal", "worst relative error": 2e-5, "of": "wte"}}' ;;
  loom_probe*) echo '{{"what": "all products of a step", "ms": 55, "TFLOP/s": 700}}' ;;
  gpu_ranks\ time*) echo '{{"collective":"all_reduce","ranks":2,"bytes":64,"us":32.1,"GB/s":0.002,"algorithm":"one_hop","path":"mapped GPU memory","graph":0}}' ;;
  gpu_ranks*) echo '{{"us": 4.5}}' ;;
  gpu_probe\ census*) echo no ;;
  gpu_probe\ beside*) echo 12.5 ;;
  gpu_waits*) printf '| call | returns | others |\n| --- | --- | --- |\n| cudaMalloc | after 0.10 ms | 0.20 ms at most |\n' ;;
  compute-sanitizer*racecheck*) echo '========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)' ;;
  ncu*) cat {ncu} ;;
  compute-sanitizer*) printf '[ RUN      ] A.B\n[       OK ] A.B (1 ms)\n========= ERROR SUMMARY: 0 errors\n' ;;
  test_*) printf '[ RUN      ] A.B\n[       OK ] A.B (1 ms)\n' ;;
  weft_info*) echo 'a driver for CUDA 13.0 with 1 device' ;;
  weft_run*)
    while :; do
      case $1 in -n | --nodes | --timeout) shift 2 ;; --no-label) shift ;; *) break ;; esac
    done
    WEFT_RANK=0 exec "$@" ;;
  *_perf*) cat {table} ;;
esac
"""


class OnAMachineOfScripts(InFolder):
    def test_every_step_is_run_as_it_would_be_on_a_gpu_and_shown(self):
        calls, table, ncu = self.folder / "calls", self.folder / "table", self.folder / "ncu"
        table.write_text(PERF)
        ncu.write_text(NCU)
        folder = self.folder / "kit" / "bin"
        folder.mkdir(parents=True)
        for program in (*kit.PROGRAMS, "python3", *TOOLS):
            (folder / program).write_text(STUB.format(calls=calls, table=table, ncu=ncu))
            (folder / program).chmod(0o755)
        done = subprocess.run(
            [sys.executable, "-B", GPU / "quarter_hour.py", "--kit", folder.parent, "--out", self.out, "--budget", "9999"],
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(
            {name for name, status in self.status().items() if status == "ok"},
            {"machine", "programs", *(step.name for step in ALL)},
        )
        called = calls.read_text()
        for part in (
            "all_reduce_perf --device cuda --backend nccl -b 8 -e 256M -f 32 -n 10 -w 2 NCCL_NET=Weft NCCL_NET_PLUGIN=weft NCCL_HOSTID=host0",
            "gpu_probe beside nccl all_gather 268435456 NCCL_NET=Socket NCCL_NET_PLUGIN=none NCCL_HOSTID=host0",
            "gpu_probe beside threads all_gather 268435456 ",
            "gpu_waits spins ",
            "gpu_ranks time 4 all_gather 64 65536 1048576 16777216 268435456 ",
            "test_cuda --gtest_filter=*Graph* ",
            "compute-sanitizer --tool memcheck ",
            f"compute-sanitizer --tool racecheck --kernel-name kns=loom_ --error-exitcode 3 {folder}/loom_probe gradients --gpu 0 ",
            f"ncu --clock-control none --kernel-name regex:loom_ --launch-count 100 --csv --page raw --print-units base --metrics gpu__time_duration.sum,",
            "loom_probe gradients --gpu 0 --families gpt2,gptj,gpt_neox,gpt_neo,bloom,llama,qwen3,bert,roberta --parameters 0 ",
            "loom_probe ceilings --vocabulary 50257 --cube 8192 --copy 1073741824 --repeats 20 --tokens 1024 --layers 48 --width 1600 --heads 25 --batch 16 ",
            "loom_losses.py " + f"{folder}/loom --steps 20 --width 128 --tokens 64 --families gpt2,gptj,gpt_neox,gpt_neo,bloom,llama,qwen3,bert,roberta,gpt2_packed,llama_packed --precisions fp32 ",
            "loom_step --gpu 0 --precision bf16 --vocabulary 50257 --tokens 1024 --layers 48 --width 1600 --heads 25 --batch 16 --steps 8 --kernels ",
            "loom_step --gpu 0 --precision bf16 --attention cudnn --vocabulary 50257 --tokens 1024 --layers 12 --width 768 --heads 12 --batch 64 --steps 30 --kernels ",
            "torch_gpt2.py compiled --tokens 1024 --layers 12 --width 768 --heads 12 --batch 64 --steps 30 ",
        ):
            self.assertIn(part, called)
        over_weft, over_nccl = (line for line in called.splitlines() if "fsdp.py" in line)
        self.assertIn(f"LD_PRELOAD={folder.parent}/lib/weft-nccl/libnccl.so.2", over_weft)
        self.assertIn("--library weft-nccl", over_weft)  # it fails where the shim was not loaded
        self.assertIn("NCCL_NET=Socket NCCL_NET_PLUGIN=none NCCL_HOSTID= LD_PRELOAD=", over_nccl)
        page = (self.out / "report.md").read_text()
        for part in (
            "Measured on one NVIDIA H100 80GB HBM3",
            "12.5 % slower",
            "18 of 18 runs right",
            "1 passed, 0 failed, 0 skipped; compute-sanitizer: 0 errors",
            "| loom_124M | loom_step | 64 | 1024 | 1 | 130 | 504123 | 405 | 40.9 |",
            "| loom_124M_cudnn | loom_step | 64 | 1024 | 1 | 130 | 504123 | 405 | 40.9 |",
            "| torch_compiled_1.5B | python3 |",
            "| products | 60 | 46.2 | 55 |",
            "| Does racecheck find a race in shared memory in a step in bf16? | 0 errors | ok |",
        ):
            self.assertIn(part, page)
        self.assertEqual(len(list(self.out.iterdir())), 3)  # all that has to come back


class Command(InFolder):
    def test_arguments_are_checked(self):
        for options, sentence in (
            (["--only", "all_redcue_2"], "--only names all_redcue_2, must name steps or groups of --list"),
            (["--budget", "0"], "--budget is 0.0, must be positive"),
        ):
            done = subprocess.run([GPU / "quarter_hour.sh", *options], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2)
            self.assertIn(sentence, done.stderr)

    def test_facts_that_cannot_be_found_out_do_not_cost_the_others(self):
        done = subprocess.run(
            [sys.executable, "-B", GPU / "facts.py", "/nowhere/libcuda.so"], capture_output=True, text=True, env={"PATH": ""}
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        facts = json.loads(done.stdout)
        self.assertIn("there is no CUDA driver", facts["devices"])
        self.assertIsNone(facts["nvcc"])
        self.assertGreater(facts["CPUs"], 0)

    def test_a_machine_without_a_gpu_is_told_so_and_all_is_well(self):
        if os.path.exists("/dev/nvidia0"):
            self.skipTest("there is a GPU")
        done = subprocess.run(
            [GPU / "quarter_hour.sh", "--out", self.out, "--kit", self.folder, "--build", self.folder],
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(set(self.status().values()), {"ok", "skipped"})
        self.assertIn("CUDA driver", results.read([self.out / "results.jsonl"])["flag"]["reason"])
        self.assertIn("There was no GPU.", (self.out / "report.md").read_text())


if __name__ == "__main__":
    unittest.main()
