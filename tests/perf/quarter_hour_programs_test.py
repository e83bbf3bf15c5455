#!/usr/bin/env python3
"""perf/gpu/quarter_hour.sh with the programs of a build: its steps on the tests' driver, also killed in the middle, what nvcc's
programs make of the steps' arguments, and the kit in a bare environment.

    quarter_hour_programs_test.py BUILD
"""

import pathlib
import shutil
import subprocess
import sys
import time
import unittest

import quarter_hour_test as without_programs
from quarter_hour_test import GPU, lines_of
import gpu_report
from gpu import kit, readers, results
from gpu.steps import ALL, SIZES

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()


class OnTheTestsDriver(without_programs.InFolder):
    STEPS = (
        "all_reduce_2",
        "flag",
        "graph_2",
        "abort",
        "deadline",
        "small_operations",
        "collectives_2",
        "eight_bytes",
        "eight_bytes_in_a_graph",
        "weft_info",
        "waits",
        "fsdp_over_weft",
        "nccl_all_reduce",
        "gradients",
        "losses_fp32",
        "loom_124M",
        "loom_124M_cudnn",
        "torch_eager_124M",
        "ceilings_124M",
        "racecheck_step",
        "ncu",
    )

    def command(self, *options):
        return [
            GPU / "quarter_hour.sh",
            "--fake",
            "--build",
            BUILD,
            "--out",
            self.out,
            "--budget",
            "150",
            "--only",
            ",".join(self.STEPS),
            *options,
        ]

    def test_steps_run_and_fill_the_report(self):
        done = subprocess.run(self.command(), capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = results.read([self.out / "results.jsonl"])
        for name in self.STEPS:
            needs = next(step for step in ALL if step.name == name).needs
            if (BUILD / "bin" / "gpu_probe").exists():
                needs = tuple(need for need in needs if need not in ("Loom's kernels", "cuDNN"))
            self.assertEqual(lines[name]["status"], "skipped" if needs else "ok", lines[name])
            if needs and "Loom's kernels" not in needs:
                self.assertEqual(lines[name]["reason"], f"the tests' driver is not enough for {needs[0]}")
        self.assertEqual([row["bytes"] for row in lines["all_reduce_2"]["values"]["rows"]], [64, 65536, 262144, 524288, 1048576])
        self.assertEqual(lines["small_operations"]["values"]["rows"][0]["wrong"], 0)
        self.assertIn("rank 1 has not arrived", lines["deadline"]["values"]["rows"][0]["error"])
        self.assertLess(lines["abort"]["values"]["rows"][0]["stream goes on, ms"], 5000)
        page = (self.out / "report.md").read_text()
        if (BUILD / "bin" / "gpu_probe").exists():
            self.see_loom(lines, page)
        for part in (
            "times say nothing",
            "| all_reduce | 2 | 64 B |",
            "2 of 2 runs right",
            "stream memory operations",
            "rank 1 has not arrived",
        ):
            self.assertIn(part, page)

    def see_loom(self, lines, page):
        families = lines["losses_fp32"]["values"]["rows"]
        self.assertEqual([row["family"] for row in families], ["gpt2", "llama", "bert"])
        for row in families:
            self.assertGreater(row["first loss"], 1)
            self.assertLess(row["largest difference"], 1e-4)
            self.assertIn(f"| {row['family']} | fp32 | 2 |", page)
        (steps,) = lines["loom_124M"]["values"]["rows"]
        self.assertEqual((steps["steps"], steps["batch"]), (2, 2))
        self.assertGreater(steps["tokens/s"], 0)
        self.assertGreater(steps["planned, MiB"], 0)
        self.assertIn("| loom_124M |", page)
        kernels = lines["loom_124M"]["values"]["kernels"]
        for kernel in ("loom_attention_forward_bf16_64", "loom_adamw_bf16"):
            self.assertIn(kernel, [row["kernel"] for row in kernels])
        by_cudnn = [row["kernel"] for row in lines["loom_124M_cudnn"]["values"]["kernels"]]
        self.assertIn("cuDNN's attention", by_cudnn)
        self.assertNotIn("loom_attention_forward_bf16_64", by_cudnn)
        self.assertIn("| loom_124M_cudnn |", page)
        self.assertEqual({row["instruction"] for row in kernels}, {"forward", "loss", "backward", "squares", "step"})
        self.assertIn("| products |", page)
        gradients = lines["gradients"]["values"]["rows"]
        tasks = [(row["family"], row["task"], row["device"]) for row in gradients]
        self.assertEqual(tasks, [("gpt2", "causal", "GPU"), ("llama", "causal", "GPU"), ("llama", "classification", "GPU")])
        for row in gradients:
            self.assertLess(row["worst relative error"], 1e-3)
        ceilings = {row["what"]: row for row in lines["ceilings_124M"]["values"]["rows"]}
        self.assertGreater(ceilings["all products of a step"]["ms"], 0)
        self.assertGreater(ceilings["all attention of a step"]["ms"], 0)

    def test_a_run_that_is_killed_in_a_step_goes_on(self):
        self.STEPS = ("flag", "deadline", "small_operations")
        process = subprocess.Popen(self.command(), stdout=subprocess.DEVNULL)
        until = time.monotonic() + 30
        path = self.out / "results.jsonl"
        while "deadline" not in (self.status() if path.exists() else {}) and time.monotonic() < until:
            time.sleep(0.02)
        process.kill()
        process.wait()
        self.assertEqual(
            {name: self.status().get(name) for name in self.STEPS},
            {"flag": "ok", "deadline": "started", "small_operations": None},
        )
        self.assertIn("**cut off**", gpu_report.page([path]))
        done = subprocess.run(self.command(), capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(
            [line["step"] for line in lines_of(path) if line["status"] == "ok" and line["step"] in self.STEPS],
            ["flag", "small_operations", "deadline"],
        )


@unittest.skipIf(not (BUILD / "bin" / "gpu_probe").exists(), "there was no nvcc")
class ProgramsOfNvcc(unittest.TestCase):
    def test_they_know_what_the_steps_ask_of_them(self):
        """Without a GPU they fail, but not for their arguments."""
        for step in ALL:
            words = " ".join(step.command).split()
            at = next((i for i, word in enumerate(words) if word in ("{bin}/gpu_probe", "{bin}/gpu_waits")), None)
            if at is None or words[at:] == ["{bin}/gpu_waits"]:
                continue
            command = [word.format(bin=BUILD / "bin", **{name: its[0] for name, its in SIZES.items()}) for word in words[at:]]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            self.assertNotRegex(done.stdout + done.stderr, "usage|there is no row", step.name)


class Kit(without_programs.InFolder):
    def test_it_needs_nothing_but_glibc_and_runs_in_a_bare_environment(self):
        done = subprocess.run(
            [GPU / "quarter_hour.sh", "--stage", "prepare", "--no-build", "--build", BUILD, "--kit", self.folder / "kit"],
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        # What is carried is the archive.
        shutil.rmtree(self.folder / "kit")
        self.assertLess((self.folder / "kit.tar.xz").stat().st_size, kit.LARGEST_BYTES)
        kit.unpack(self.folder / "kit")
        programs = kit.Programs(self.folder / "kit", own_gcc=True)
        for name in kit.PROGRAMS:
            if programs.has(name):
                linked = kit.needed_by(
                    programs.folder / "bin" / name, {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": programs.library_path()}
                )
                self.assertEqual([path for path in linked.values() if not str(path).startswith(str(self.folder))], [], name)
        settings = {
            "LD_LIBRARY_PATH": programs.library_path(),
            "WEFT_CUDA_LIBRARY": str(BUILD / "lib" / "libfake_cuda.so"),
            "WEFT_TUNE": "off",
        }
        done = subprocess.run(
            [programs.folder / "bin" / "gpu_ranks", "time", "2", "all_reduce", "64"], env=settings, capture_output=True, text=True
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(readers.json_rows(done.stdout)["rows"][0]["collective"], "all_reduce")

    def test_folders_that_do_not_run_are_named_with_their_reasons(self):
        (self.folder / "bin").mkdir()
        (self.folder / "bin" / "weft_info").write_text("#!/bin/sh\necho 'version GLIBC_2.99 not found' >&2; exit 1\n")
        (self.folder / "bin" / "weft_info").chmod(0o755)
        with self.assertRaisesRegex(kit.KitError, "GLIBC_2.99 not found.*has no bin/weft_info"):
            kit.find([self.folder, self.folder / "other"])


if __name__ == "__main__":
    unittest.main()
