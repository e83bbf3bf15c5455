#!/usr/bin/env python3
"""Losses of tiny models on a GPU beside those on CPUs: every family, the same data, weights and dropout.

    perf/gpu/loom_losses.py LOOM [--steps 20] [--width 128] [--tokens 64] [--families gpt2,bert] [--precisions fp32,bf16]

LOOM is the command. Prints a line of JSON for each family and precision, at once. Exit code 1: a run failed, or a loss of fp32
differs by more than TOLERANCE. With "_packed" behind its name a family learns completions, several in a sequence.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MASKED = ("bert", "roberta")  # their datasets need a token that hides others
PACKED = "_packed"
FAMILIES = ("gpt2", "gptj", "gpt_neox", "gpt_neo", "bloom", "llama", "qwen3", *MASKED, "gpt2" + PACKED, "llama" + PACKED)
TOLERANCE = 1e-4  # nats
LIMIT_S = 60      # of one run


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loom", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--width", type=int, default=128, help="of the models")
    parser.add_argument("--tokens", type=int, default=64, help="of a sequence")
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--precisions", default="fp32,bf16")
    options = parser.parse_args()
    options.families, options.precisions = options.families.split(","), options.precisions.split(",")
    if unknown := [family for family in options.families if family not in FAMILIES]:
        parser.error(f"--families names {unknown[0]}, must be of {', '.join(FAMILIES)}")
    return options


def run(words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise RuntimeError(f"{' '.join(map(str, words[1:3]))}: {''.join(last) or f'exit code {done.returncode}'}")


class Losses:
    def __init__(self, options, folder):
        self.loom, self.options, self.folder = options.loom, options, folder
        text = folder / "text.txt"
        text.write_text("".join(f"{i % 13} times {i % 7} is {i % 13 * (i % 7)}.\n" for i in range(1000)))
        pieces = ROOT / "tests" / "loom" / "fixtures" / "wordpiece.json"
        for name, tokenizer in (("bytes", "bytes"), ("pieces", pieces)):
            run([self.loom, "tokenize", text, "--out", folder / name, "--tokenizer", tokenizer])
        pairs = folder / "pairs.jsonl"
        pairs.write_text("".join(json.dumps({"prompt": f"{i % 13} times {i % 7} is ", "completion": str(i % 13 * (i % 7))}) + "\n"
                                 for i in range(1000)))
        run([self.loom, "tokenize", pairs, "--completions", "--out", folder / "pairs"])

    def config(self, name, precision, device):
        packed, family = name.endswith(PACKED), name.removesuffix(PACKED)
        data = "pairs" if packed else "pieces" if family in MASKED else "bytes"
        return {
            "model": {"family": family, "width": self.options.width, "layers": 2, "heads": 2, "dropout": 0.1,
                      "key_value_heads": 1 if family in ("llama", "qwen3") else 0},
            "data": {"folder": str(self.folder / data), "packing": packed,
                     "sequence_length": self.options.tokens, "global_batch": 8, "microbatch": 4},
            "parallel": {"device": device, "precision": precision},
            "optimizer": {"learning_rate": 2e-3, "warmup_steps": 2, "schedule": "constant"},
            "run": {"out": str(self.folder / f"{name}-{precision}-{device}"), "steps": self.options.steps, "evaluation_steps": 1},
        }

    def of(self, family, precision, device):
        """The run's losses and norms, a pair for each step."""
        config = self.config(family, precision, device)
        path = self.folder / "config.json"
        path.write_text(json.dumps(config))
        run([self.loom, "train", path])
        lines = [json.loads(line) for line in (pathlib.Path(config["run"]["out"]) / "log.jsonl").read_text().splitlines()]
        return [(line["loss"], line["gradient_norm"]) for line in lines if "step" in line]

    def row(self, family, precision):
        cpu, gpu = (self.of(family, precision, device) for device in ("cpu", "cuda"))
        return {
            "family": family, "precision": precision, "steps": len(gpu), "first loss": gpu[0][0], "last loss": gpu[-1][0],
            "the CPU's last": cpu[-1][0],
            "largest difference": max(abs(one[0] - other[0]) for one, other in zip(cpu, gpu, strict=True)),
            "largest part of a norm": max(abs(one[1] - other[1]) / one[1] for one, other in zip(cpu, gpu, strict=True)),
        }


def main():
    options = parse_arguments()
    wrong = False
    with tempfile.TemporaryDirectory() as folder:
        losses = Losses(options, pathlib.Path(folder))
        for precision in options.precisions:
            for family in options.families:
                try:
                    row = losses.row(family, precision)
                except (RuntimeError, subprocess.TimeoutExpired) as why:
                    row = {"family": family, "precision": precision, "error": str(why)}
                wrong |= "error" in row or (precision == "fp32" and not row["largest difference"] <= TOLERANCE)
                print(json.dumps(row), flush=True)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
