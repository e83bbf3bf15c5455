#!/usr/bin/env python3
"""Loom's training steps beside PyTorch's, and llm.c's, in alternation, in one run: a table with medians and ratios.

  perf/train_compare.py                                     GPT-2 124M, B=4, T=64, fp32, one thread, three rounds
  perf/train_compare.py --model llama                       a Llama with the sizes of SmolLM 135M
  perf/train_compare.py --tokens 64,512 --precision fp32,bf16 --rounds 5
  perf/train_compare.py --python ~/venv/bin/python          the interpreter that has torch and transformers
  perf/train_compare.py --llmc ~/llm.c                      llm.c's steps, too: the folder of its clone (fp32 alone)
  perf/train_compare.py --only loom,eager                   of loom, eager, compiled, llmc

A round starts each system once, one after the other, on random tokens; a step is forward, loss, backward,
clipping of the gradients' norm and AdamW (PyTorch's fused one), without dropout; llm.c has no clipping. It is compiled here: its
train_gpt2.c with its Makefile's options, and perf/peers/llmc_step.c in place of its main(). The first --warmup steps of a launch
are left out. Steps are told in wall time and in the processor time of the whole process, which other work on the machine inflates
less. The table has medians over all steps of all rounds; the ratio is PyTorch's, or llm.c's, time over Loom's, so above 1
Loom is faster.

Of bf16 there are two PyTorchs: "amp" (autocast; parameters, moments and sums in fp32, as Loom has them) and "pure" (all of
it in bf16).
Without torch and transformers Loom is measured alone. torch.compile needs a C++ compiler and about a minute for its first step.
Exit code: 0; 1 when a launch of Loom failed, or llm.c cannot be compiled; 2 when the command line is wrong.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SYSTEMS = ("loom", "eager", "compiled", "llmc")
LOOM_SIZES = {"gpt2": [], "llama": ["--family", "llama", "--vocabulary", "49152", "--width", "576", "--layers", "30", "--heads", "9",
                                    "--key-value-heads", "3"]}

# What runs in the other interpreter: prints a line of JSON a step.
TORCH_STEPS = r"""
import json, sys, time, torch
import transformers as hf
options = json.loads(sys.argv[1])
torch.set_num_threads(options["threads"])
torch.manual_seed(1)
batch, tokens = options["batch"], options["tokens"]
if options["model"] == "llama":
    model = hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=49152, hidden_size=576, num_hidden_layers=30, num_attention_heads=9,
                                               num_key_value_heads=3, intermediate_size=1536, max_position_embeddings=max(2048, tokens),
                                               tie_word_embeddings=True))
else:
    model = hf.GPT2LMHeadModel(hf.GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, n_positions=max(1024, tokens)))
model.train()
if options["precision"] == "bf16 pure":
    model = model.to(torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)

def loss_of(x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options["precision"] == "bf16 amp"):
        logits = model(input_ids=x).logits
    return torch.nn.functional.cross_entropy(logits.float().view(-1, logits.size(-1)), y.view(-1))

forward = torch.compile(loss_of) if options["compiled"] else loss_of
x, y = (torch.randint(0, model.config.vocab_size, (batch, tokens)) for _ in range(2))
for _ in range(options["steps"]):
    wall, processor = time.perf_counter(), time.process_time()
    loss = forward(x, y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    print(json.dumps({"loss": loss.item(), "ms": 1e3 * (time.perf_counter() - wall),
                      "processor_ms": 1e3 * (time.process_time() - processor)}), flush=True)
"""


def parse_arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--build", type=pathlib.Path, default=ROOT / "build", help="build folder (build)")
    add("--loom-step", type=pathlib.Path, help="another bin/loom_step than the build folder's")
    add("--model", choices=("gpt2", "llama"), default="gpt2", help="GPT-2 124M, or a Llama of 135M (gpt2)")
    add("--tokens", default="64", help="tokens of a sequence, with commas (64)")
    add("--batch", type=int, default=4, help="sequences of a step (4)")
    add("--precision", default="fp32", help="fp32, bf16, with commas (fp32)")
    add("--threads", type=int, default=1, help="of each system (1)")
    add("--rounds", type=int, default=3, help="launches of each system (3)")
    add("--steps", type=int, default=4, help="of a launch (4)")
    add("--warmup", type=int, default=1, help="steps of a launch that are left out (1)")
    add("--only", default=",".join(SYSTEMS), help="systems, with commas (all that are there)")
    add("--python", default=sys.executable, help="an interpreter that has torch and transformers (this one)")
    add("--llmc", type=pathlib.Path, help="the folder of llm.c, with its train_gpt2.c")
    add("--json", type=pathlib.Path, help="write every step to this file")
    options = parser.parse_args(words)
    options.systems = options.only.split(",")
    try:
        options.lengths = [int(word) for word in options.tokens.split(",")]
    except ValueError:
        parser.error(f"--tokens is {options.tokens}, must be numbers with commas, such as 64,512")
    options.precisions = options.precision.split(",")
    for names, allowed, flag in ((options.systems, SYSTEMS, "--only"), (options.precisions, ("fp32", "bf16"), "--precision")):
        for name in names:
            if name not in allowed:
                parser.error(f"{flag}: {name} is unknown, must be of {', '.join(allowed)}")
    for flag, value in (("--batch", options.batch), ("--threads", options.threads), ("--rounds", options.rounds)):
        if value < 1:
            parser.error(f"{flag} is {value}, must be at least 1")
    if not 0 <= options.warmup < options.steps:
        parser.error(f"--warmup is {options.warmup}, must be below the {options.steps} steps of a launch")
    return options


def environment(threads: int) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), "WEFT_TUNE": "off",
            "WEFT_RECORDER_DIR": "none"}


def lines_of(command: list[str], threads: int) -> list[str] | None:
    """What a program prints, or None when it fails; then why is told."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment(threads))
    except OSError as error:
        print(f"train_compare: {command[0]} cannot be started: {error.strerror}", file=sys.stderr)
        return None
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        print(f"train_compare: {command[0]} failed: {''.join(last)}", file=sys.stderr)
        return None
    return done.stdout.splitlines()


def loom_steps(options: argparse.Namespace, tokens: int, precision: str) -> tuple[list[dict], dict] | None:
    """Steps, and what the launch says of all of them."""
    program = options.loom_step or options.build / "bin" / "loom_step"
    lines = lines_of([str(program), "--tokens", str(tokens), "--batch", str(options.batch), "--threads", str(options.threads),
                      "--precision", precision, "--steps", str(options.steps), *LOOM_SIZES[options.model]], options.threads)
    if lines is None:
        return None
    *steps, summary = (json.loads(line) for line in lines)
    return steps, summary


def torch_steps(options: argparse.Namespace, tokens: int, precision: str, compiled: bool) -> list[dict] | None:
    asked = {"model": options.model, "tokens": tokens, "batch": options.batch, "threads": options.threads, "precision": precision,
             "steps": options.steps, "compiled": compiled}
    lines = lines_of([options.python, "-c", TORCH_STEPS, json.dumps(asked)], options.threads)
    return None if lines is None else [json.loads(line) for line in lines if line.startswith("{")]


def compile_llmc(source: pathlib.Path, folder: str) -> pathlib.Path | None:
    """A program of its steps in `folder`, or None when there is none; then why is told."""
    program = pathlib.Path(folder) / "llmc_step"
    # As its Makefile has them.
    flags = ["-Ofast", "-march=native", "-fopenmp", "-DOMP", "-Wno-unused-result", "-Wno-ignored-pragmas",
             "-Wno-unknown-attributes"]
    command = [os.environ.get("CC", "cc"), *flags, f"-I{source.resolve()}", str(ROOT / "perf/peers/llmc_step.c"), "-o",
               str(program), "-lm"]
    return None if lines_of(command, 1) is None else program


def llmc_steps(options: argparse.Namespace, tokens: int) -> list[dict] | None:
    lines = lines_of([str(options.llmc_step), str(options.batch), str(tokens), str(options.steps)], options.threads)
    return None if lines is None else [json.loads(line) for line in lines if line.startswith("{")]


def find_torch(options: argparse.Namespace) -> bool:
    if not {"eager", "compiled"} & set(options.systems):
        return False
    check = subprocess.run([options.python, "-c", "import torch, transformers; print(torch.__version__)"], capture_output=True,
                           text=True) if os.access(options.python, os.X_OK) else None
    if check is not None and check.returncode == 0:
        print(f"PyTorch {check.stdout.strip()}, {options.python}")
        return True
    print(f"train_compare: {options.python} has no torch and transformers, so Loom is measured without PyTorch; "
          "--python names an interpreter that has them", file=sys.stderr)
    return False


def launches_of(options: argparse.Namespace, tokens: int, precision: str, has_torch: bool) -> dict:
    """By name: what measures a launch."""
    launches = {}
    if "loom" in options.systems:
        launches["Loom"] = lambda: loom_steps(options, tokens, precision)
    kinds = ["fp32"] if precision == "fp32" else ["bf16 amp", "bf16 pure"]
    for compiled in (False, True):
        if not has_torch or ("compiled" if compiled else "eager") not in options.systems:
            continue
        for kind in kinds:
            name = f"PyTorch, {'compiled' if compiled else 'eager'}" + kind.removeprefix(precision).replace(" ", ", ")
            launches[name] = lambda kind=kind, compiled=compiled: torch_steps(options, tokens, kind, compiled)
    if options.llmc_step is not None and precision == "fp32" and options.model == "gpt2":
        launches["llm.c"] = lambda: llmc_steps(options, tokens)
    return launches


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text:78}\r{text}", end="", file=sys.stderr, flush=True)


def measure(options: argparse.Namespace, tokens: int, precision: str, has_torch: bool) -> tuple[dict, list[dict], bool]:
    """Steps by name, the summaries of Loom's launches, and whether all of those came through."""
    launches = launches_of(options, tokens, precision, has_torch)
    steps: dict[str, list[dict]] = {name: [] for name in launches}
    summaries: list[dict] = []
    for number in range(options.rounds):
        for name in list(launches):
            progress(f"T={tokens} {precision}, round {number + 1} of {options.rounds}: {name}")
            found = launches[name]()
            if found is None and name == "Loom":
                return steps, summaries, False
            if found is None:
                del launches[name]  # it was told why; once is enough
                continue
            if name == "Loom":
                found, summary = found
                summaries.append(summary)
            steps[name] += found[options.warmup:]
    progress("")
    return {name: found for name, found in steps.items() if found}, summaries, True


def show(options: argparse.Namespace, tokens: int, precision: str, steps: dict, summaries: list[dict]) -> None:
    median = lambda found, key: statistics.median(step[key] for step in found) if key in found[0] else None
    print(f"\nT = {tokens}, B = {options.batch}, {precision}, {options.threads} thread(s); {options.rounds} launches of "
          f"{options.steps} steps, medians without the first {options.warmup} of each\n")
    print("| | wall, ms a step | processor, ms a step | over Loom, wall | over Loom, processor |")
    print("| --- | --- | --- | --- | --- |")
    of_loom = steps.get("Loom")
    for name, found in steps.items():
        cells = []
        for key in ("ms", "processor_ms"):
            value = median(found, key)
            cells.append("" if value is None else f"{value:.0f}")
        for key in ("ms", "processor_ms"):
            value, loom = median(found, key), median(of_loom, key) if of_loom else None
            cells.append(f"{value / loom:.2f}" if value and loom else "")
        print(f"| {name} | " + " | ".join(cells) + " |")
    if summaries:
        peak = max(summary["peak_gflops"] for summary in summaries)
        rate = summaries[0]["step_gflop"] / min(step["processor_ms"] for step in of_loom) * 1e3 * options.threads
        print(f"\nLoom's products are {summaries[0]['step_gflop']:.0f} GFLOP a step. By processor time its best step reached "
              f"{rate:.0f} GFLOP/s,\n{100 * rate / peak:.0f} % of {peak:.0f}, the best product that these launches measured "
              "at their start.")


def main() -> int:
    options = parse_arguments(sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        options.llmc_step = None
        if options.llmc is not None and "llmc" in options.systems:
            options.llmc_step = compile_llmc(options.llmc, folder)
            if options.llmc_step is None:
                return 1
        return compare(options)


def compare(options: argparse.Namespace) -> int:
    has_torch = find_torch(options)
    results, good = [], True
    for tokens in options.lengths:
        for precision in options.precisions:
            steps, summaries, came_through = measure(options, tokens, precision, has_torch)
            good = good and came_through
            if steps and came_through:
                show(options, tokens, precision, steps, summaries)
            results.append({"tokens": tokens, "precision": precision, "steps": steps, "summaries": summaries})
            if options.json:
                options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
