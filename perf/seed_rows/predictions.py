"""Rows of perf/seeds/rows.json, predicted by `loom plan`, and their steps with other constants."""
from __future__ import annotations

import csv
import dataclasses
import json
import math
import pathlib
import subprocess
import tempfile

BAND = 0.10
HIERARCHICAL, FLAT, SMDDP = "nccl-hierarchical", "nccl-flat", "smddp"
ENGINES = (HIERARCHICAL, FLAT, SMDDP)
#: Constants of computing, and the part of a step that each divides.
COMPUTING = ("gemm_efficiency", "memory_efficiency", "flash_efficiency", "product_efficiency")


@dataclasses.dataclass
class Scales:
    """Factors of constants: 1 is as clusters/p4d.json has them."""
    computing: dict[str, float] = dataclasses.field(default_factory=dict)
    gathers: dict[str, float] = dataclasses.field(default_factory=dict)
    reduces: float = 1.0


@dataclasses.dataclass
class Row:
    """A published figure and its prediction, in TFLOP/s a GPU."""
    name: str
    published: float
    role: str
    engine: str
    attention: str
    nodes: int
    source: str
    assumed: list[str]
    plan: dict

    @property
    def held_out(self) -> bool:
        return self.role == "held out"

    @property
    def predicted(self) -> float:
        return self.plan["tflops"]

    @property
    def error(self) -> float:
        return self.predicted / self.published - 1

    @property
    def at_peak(self) -> float:
        """With nothing but the floating-point operations, at the data sheet's peak."""
        return self.plan["tflops"] / self.plan["hfu"]

    def parts(self) -> dict[str, float]:
        """Seconds of the step by the constant that divides them; `rest` is what none does."""
        computing, exposed = self.plan["computing"], self.plan["exposed"]
        attention = "flash_efficiency" if self.attention == "flash" else "product_efficiency"
        parts = {"gemm_efficiency": computing["products_seconds"],
                 "memory_efficiency": computing["passes_seconds"] + computing["optimizer_seconds"],
                 attention: computing["attention_seconds"],
                 "gather": exposed.get("gather_seconds", 0.0),
                 "reduce": exposed.get("reduce_scatter_seconds", 0.0)}
        parts["rest"] = self.plan["step_seconds"] - sum(parts.values())
        return parts

    def step(self, scales: Scales) -> float:
        seconds = 0.0
        for name, part in self.parts().items():
            factor = {"gather": scales.gathers.get(self.engine, 1.0), "reduce": scales.reduces}.get(
                name, scales.computing.get(name, 1.0))
            seconds += part / factor
        return seconds

    def error_with(self, scales: Scales) -> float:
        return self.predicted * self.plan["step_seconds"] / self.step(scales) / self.published - 1


def fitted(rows: list[Row], computing: dict[str, float] | None = None) -> Scales:
    """The three rates, each from its fitted row: first the one that reductions have, too."""
    scales = Scales(computing=dict(computing or {}))
    for engine in ENGINES:
        row = next(one for one in rows if one.role == "fitted" and one.engine == engine)
        wanted = row.predicted * row.plan["step_seconds"] / row.published
        parts = row.parts()
        bound = parts["gather"] + (parts["reduce"] if engine == HIERARCHICAL else 0.0)
        scales.gathers[engine] = 1.0
        left = wanted - (row.step(scales) - bound)
        scales.gathers[engine] = bound / left if left > 0 else math.inf
        if engine == HIERARCHICAL:
            scales.reduces = scales.gathers[engine]
    return scales


def fitted_to(rows: list[Row]) -> Scales:
    """The three rates with the least squares of the logarithmic errors of these rows."""
    scales = Scales(gathers={engine: 1.0 for engine in ENGINES})

    def cost() -> float:
        return sum(math.log1p(row.error_with(scales)) ** 2 for row in rows)

    step = 0.2
    while step > 1e-4:
        better = False
        for engine in ENGINES:
            for factor in (1 + step, 1 / (1 + step)):
                before, least = (scales.gathers[engine], scales.reduces), cost()
                scales.gathers[engine] *= factor
                if engine == HIERARCHICAL:
                    scales.reduces = scales.gathers[engine]
                if cost() < least:
                    better = True
                else:
                    scales.gathers[engine], scales.reduces = before
        if not better:
            step /= 2
    return scales


class Predictor:
    """Runs `loom plan` and `weft_sim`."""

    def __init__(self, programs: pathlib.Path, root: pathlib.Path) -> None:
        self.programs, self.root, self.folder = programs, root, root / "perf" / "seeds"

    def plan(self, model: pathlib.Path, cluster: pathlib.Path, words: list[str]) -> dict:
        command = [str(self.programs / "loom"), "plan", str(model), "--cluster", str(cluster), "--json", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
        return json.loads(done.stdout)["predictions"][0]["plans"][0]

    def rows(self) -> list[Row]:
        rows = []
        for told in json.loads((self.folder / "rows.json").read_text(encoding="utf-8")):
            batch = told["sequences_a_rank"] * told["nodes"] * 8
            overrides = {"data.global_batch": batch, "data.microbatch": told["microbatch"], **told.get("overrides", {})}
            plan = self.plan(self.folder / "models" / f"{told['model']}.json", self.root / "clusters" / "p4d.json",
                             ["--nodes", str(told["nodes"]), "--engine", told["engine"], "--attention", told["attention"],
                              *(f"--{key}={value}" for key, value in overrides.items())])
            rows.append(Row(told["name"], told["published"], told["role"], told["engine"], told["attention"], told["nodes"],
                            told["source"], told["assumed"], plan))
        return rows

    def steps(self) -> list[tuple[str, float, float]]:
        """Of the 109 measured steps: the model's billions of parameters, seconds measured, seconds predicted."""
        with open(self.folder / "vtrain" / "ground_truth_multi.csv", newline="", encoding="utf-8") as file:
            measured = list(csv.DictReader(file))
        return [(one["Parameters (billion)"], float(one["iteration time (ms)"]) / 1e3, self.step(one)) for one in measured]

    def step(self, one: dict[str, str]) -> float:
        tokens = int(one["sequence length"])
        config = {"model": {"family": "gpt2", "vocabulary": 51200, "context": tokens, "width": int(one["hidden size"]),
                            "layers": int(one["# layers"]), "heads": int(one["attention heads"])},
                  "data": {"sequence_length": tokens, "global_batch": int(one["global batch"]),
                           "microbatch": int(one["micro batch"])},
                  "parallel": {"tensor_degree": int(one["tensor parallelism"]),
                               "pipeline_degree": int(one["pipeline parallelism"]), "prescaled_batch": True,
                               "precision": "fp16", "activation_checkpointing": "each", "optimize": "speed",
                               "memory_weight": 0, "placement": "PDT"}}
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(config, file)
            file.flush()
            return self.plan(pathlib.Path(file.name), self.folder / "a100-hdr.json",
                             ["-n", one["# GPUs"], "--engine", "megatron", "--attention", "standard"])["step_seconds"]

    def all_reduces(self) -> list[dict]:
        return json.loads((self.folder / "all_reduce.json").read_text(encoding="utf-8"))

    def engine(self, name: str) -> dict:
        cluster = json.loads((self.root / "clusters" / "p4d.json").read_text(encoding="utf-8"))
        return {key: value["value"] for key, value in cluster["engines"][name].items()}

    def weft_us(self, nodes: int, size: int, interfaces: float = 1.0, algorithms: tuple[str, ...] = ()) -> float:
        """The best of Weft's plans for an AllReduce on p4d nodes of 8 ranks, in microseconds."""
        failed = [f"--fail-rail={node}:3" for node in range(nodes)] if interfaces < 1 else []
        command = [str(self.programs / "weft_sim"), str(self.root / "clusters" / "p4d.json"), "-c", "allreduce", "-s",
                   str(size), "--nodes", str(nodes), "--json", *failed, *(word for name in algorithms for word in ("-a", name))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
        return min(row["us"] for row in json.loads(done.stdout)["rows"] if row.get("us"))
