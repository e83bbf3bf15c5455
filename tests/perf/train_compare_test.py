#!/usr/bin/env python3
"""perf/train_compare.py, with programs that print made-up steps in place of Loom and PyTorch; and loom_step on a small model.

  train_compare_test.py LOOM_STEP
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "perf" / "train_compare.py"
LOOM_STEP = sys.argv[1]

# The first step is slow, which is left out. Its rate by processor time is 100 GFLOP/s of 125.
LOOM = """#!/bin/sh
echo '{"step": 0, "ms": 9000, "processor_ms": 9000}'
echo '{"step": 1, "ms": 2000, "processor_ms": 1000}'
echo '{"step": 2, "ms": 4000, "processor_ms": 1000}'
echo '{"peak_gflops": 125, "step_gflop": 100}'
"""
# Asked for its version, and then for steps of which those that are compiled take half the time.
PYTHON = """#!/bin/sh
case "$2" in *__version__*) echo 9.9; exit 0;; esac
case "$3" in *'"compiled": true'*) ms=3000;; *) ms=6000;; esac
echo a warning
for i in 1 2 3; do echo "{\\"ms\\": $ms, \\"processor_ms\\": $ms}"; done
"""
# What perf/peers/llmc_step.c uses of llm.c. Its loss tells the size of the batch, its steps and the threads that were asked for.
LLMC = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#ifndef TESTING
#error "the main() of llm.c is left out by this"
#endif
#define NUM_PARAMETER_TENSORS 16
#define mallocCheck malloc
typedef struct { int max_seq_len, vocab_size, padded_vocab_size, num_layers, num_heads, channels; } GPT2Config;
typedef struct { float* wte; } ParameterTensors;
typedef struct {
  GPT2Config config;
  ParameterTensors params;
  size_t param_sizes[NUM_PARAMETER_TENSORS], num_parameters;
  float *params_memory, mean_loss;
} GPT2;
static void fill_in_parameter_sizes(size_t* sizes, GPT2Config config) {
  (void)config;
  for (int i = 0; i < NUM_PARAMETER_TENSORS; ++i) sizes[i] = 1;
}
static float* malloc_and_point_parameters(ParameterTensors* params, size_t* sizes) {
  (void)sizes;
  return params->wte = malloc(NUM_PARAMETER_TENSORS * sizeof(float));
}
static void gpt2_forward(GPT2* model, int* inputs, int* targets, size_t B, size_t T) {
  for (size_t i = 0; i + 1 < B * T; ++i)
    if (inputs[i + 1] != targets[i]) exit(1);
  model->mean_loss = 10000 * B + T;
}
static void gpt2_zero_grad(GPT2* model) { (void)model; }
static void gpt2_backward(GPT2* model) { (void)model; }
static void gpt2_update(GPT2* model, float rate, float beta1, float beta2, float epsilon, float decay, int step) {
  (void)rate, (void)beta1, (void)beta2, (void)epsilon, (void)decay;
  model->mean_loss += (float)step / 8 + atoi(getenv("OMP_NUM_THREADS")) * 1000;
}
static void gpt2_free(GPT2* model) { free(model->params_memory); }
"""


def run(*arguments):
    done = subprocess.run([sys.executable, "-B", TOOL, *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


class Comparison(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def program(self, name, text):
        path = pathlib.Path(self.folder.name) / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def test_ratios_are_of_medians_without_the_first_step(self):
        loom, python = self.program("loom", LOOM), self.program("python", PYTHON)
        results = pathlib.Path(self.folder.name) / "steps.json"
        code, out, error = run("--loom-step", loom, "--python", python, "--steps", 3, "--rounds", 2, "--precision", "fp32,bf16",
                               "--json", results)
        self.assertEqual((code, error), (0, ""))
        self.assertIn("PyTorch 9.9", out)
        self.assertIn("| Loom | 3000 | 1000 | 1.00 | 1.00 |", out)
        self.assertIn("| PyTorch, eager | 6000 | 6000 | 2.00 | 6.00 |", out)
        self.assertIn("| PyTorch, compiled | 3000 | 3000 | 1.00 | 3.00 |", out)
        self.assertIn("| PyTorch, eager, amp | 6000 |", out)
        self.assertIn("| PyTorch, compiled, pure | 3000 |", out)
        self.assertIn("100 GFLOP/s,\n80 % of 125", out)
        fp32, bf16 = json.loads(results.read_text())
        self.assertEqual((len(fp32["steps"]["Loom"]), bf16["precision"]), (4, "bf16"))

    def test_llmc_is_measured_at_every_length(self):
        loom, source, results = self.program("loom", LOOM), self.program("train_gpt2.c", LLMC), self.program("steps.json", "")
        arguments = ("--loom-step", loom, "--only", "loom,llmc", "--steps", 3, "--rounds", 2, "--json", results)
        code, out, error = run(*arguments, "--llmc", source.parent, "--tokens", "64,512", "--threads", 2, "--precision", "fp32,bf16")
        self.assertEqual((code, error), (0, ""))
        self.assertEqual(out.count("| llm.c | "), 2)  # it has no bf16
        of_llmc = [[step["loss"] for step in result["steps"].get("llm.c", [])] for result in json.loads(results.read_text())]
        self.assertEqual(of_llmc, [[42064.25, 42064.375] * 2, [], [42512.25, 42512.375] * 2, []])
        source.unlink()
        code, _, error = run(*arguments, "--llmc", source.parent)
        self.assertEqual(code, 1)
        self.assertIn("cc failed: ", error)

    def test_without_torch_loom_is_measured_alone(self):
        loom, python = self.program("loom", LOOM), self.program("python", "#!/bin/sh\nexit 1\n")
        code, out, error = run("--loom-step", loom, "--python", python, "--steps", 3)
        self.assertEqual(code, 0)
        self.assertIn("has no torch and transformers, so Loom is measured without PyTorch; --python names", error)
        self.assertIn("| Loom | 3000 |", out)
        self.assertNotIn("PyTorch", out)

    def test_a_launch_that_fails_is_told(self):
        loom = self.program("loom", "#!/bin/sh\necho no memory >&2\nexit 1\n")
        code, _, error = run("--loom-step", loom, "--only", "loom")
        self.assertEqual(code, 1)
        self.assertIn("failed: no memory", error)
        code, _, error = run("--loom-step", loom.parent / "none", "--only", "loom")
        self.assertEqual(code, 1)
        self.assertIn("none cannot be started: No such file", error)

    def test_what_it_cannot_do_is_refused(self):
        for arguments, words in ((("--tokens", "64,x"), "must be numbers with commas, such as 64,512"),
                                 (("--precision", "fp8"), "fp8 is unknown, must be of fp32, bf16"),
                                 (("--only", "jax"), "jax is unknown, must be of loom, eager, compiled, llmc"),
                                 (("--steps", "1"), "--warmup is 1, must be below the 1 steps of a launch"),
                                 (("--rounds", "0"), "--rounds is 0, must be at least 1")):
            code, _, error = run(*arguments)
            self.assertEqual(code, 2)
            self.assertIn(words, error)


class Step(unittest.TestCase):
    SMALL = ["--tokens", "8", "--batch", "2", "--layers", "1", "--width", "32", "--vocabulary", "64"]

    def run_step(self, *arguments):
        return subprocess.run([LOOM_STEP, *self.SMALL, *arguments], capture_output=True, text=True)

    def test_steps_lower_the_loss_and_are_timed(self):
        for precision in ("fp32", "bf16"):
            done = self.run_step("--heads", "2", "--steps", "12", "--precision", precision)
            *steps, summary = map(json.loads, done.stdout.splitlines())
            self.assertEqual([step["step"] for step in steps], list(range(12)))
            self.assertLess(steps[-1]["loss"], steps[0]["loss"])
            self.assertGreater(summary["peak_gflops"], 0)
            self.assertIn("backward_ms", summary)

    def test_a_model_that_cannot_be_is_refused(self):
        done = self.run_step("--heads", "5")
        self.assertEqual(done.returncode, 1)
        self.assertIn("must be a multiple of model.heads, 5", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
