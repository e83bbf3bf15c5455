#!/usr/bin/env python3
"""Turns the results of perf/gpu/quarter_hour.sh into a page in Markdown.

    perf/gpu_report.py results.jsonl [more.jsonl ...] [--docs docs/results/gpu.md]

Without --docs the page is printed. Of several files, the last one that has tried a step gives its result; a step that one
file has as ok stays so where another one skipped it.
"""
import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from gpu import results  # noqa: E402
from gpu.steps import ALL, GROUPS  # noqa: E402

FAKE = "fake device"  # cuDeviceGetName of tests/cuda/fake_driver
STATUSES = {"ok": "ok", "failed": "**failed**", "timeout": "**not over in time**", "skipped": "skipped", "started": "**cut off**"}


def table(heads, rows):
    lines = [f"| {' | '.join(heads)} |", f"| {' | '.join('---' for _ in heads)} |"]
    lines += [f"| {' | '.join(cell(value) for value in row)} |" for row in rows]
    return "\n".join(lines)


def cell(value):
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    if isinstance(value, list):
        return ", ".join(map(cell, value)) if len(value) < 6 else f"{cell(value[0])} … {cell(value[-1])}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {cell(of_it)}" for name, of_it in value.items())
    return str(value).replace("|", "\\|").replace("\n", " ")


def human(size):
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"


# ---- what a step came to, in few words, by the kind of its values ----

def in_words(values):
    kind = values["kind"]
    if kind == "tests":
        words = f"{values['passed']} passed, {len(values['failed'])} failed, {values['skipped']} skipped"
        words += f"; failed: {', '.join(values['failed'])}" if values["failed"] else ""
        words += f"; not over: {', '.join(values['not over'])}" if values["not over"] else ""
        return words + (f"; compute-sanitizer: {values['errors']} errors" if "errors" in values else "")
    if kind == "collectives":
        right = sum(run["result"] == "right" for run in values["runs"])
        others = [f"{run['collective']} as {run['nodes']} node(s) {run['result']}" for run in values["runs"]
                  if run["result"] != "right"]
        return f"{right} of {len(values['runs'])} runs right" + (f"; {'; '.join(others)}" if others else "")
    if kind == "per cent":
        return f"{values['per cent']:.1f} % slower"
    if kind == "answer":
        return values["answer"]
    if kind == "errors":
        return f"{values['errors']} errors"
    return {"markdown": "below", "text": "below", "perf": "below"}.get(kind) or f"{len(values['rows'])} lines, below"


def details(name, values):
    """The tables of one step, or nothing where its words say all."""
    kind = values["kind"]
    if kind == "markdown":
        return "\n".join(values["lines"])
    if kind == "text":
        return "\n".join(["```", *values["lines"], "```"])
    if kind == "perf":
        rows = [(human(row["bytes"]), row["us"], row["alg GB/s"], row["bus GB/s"], row["wrong"]) for row in values["rows"]]
        algorithms = f"\n\nAlgorithms: {values['algorithms']}" if values["algorithms"] else ""
        return table(["size", "µs", "algorithm GB/s", "bus GB/s", "wrong"], rows) + algorithms
    if kind == "rows":
        heads = list(dict.fromkeys(head for row in values["rows"] for head in row))
        return table(heads, [[human(row[head]) if head == "bytes" and head in row else row.get(head) for head in heads]
                             for row in values["rows"]])
    return None


def environment(lines):
    facts = lines.get("machine", {}).get("values")
    if not facts:
        return "The machine's facts are not known."
    programs = lines.get("programs", {}).get("values", {}).get("rows", [{}])[-1]
    return table(["", ""], [*facts["rows"][-1].items(), *(("programs: " + name, of_them) for name, of_them in programs.items())])


def is_time(row):
    """Whether it is a row of gpu_ranks time."""
    return "algorithm" in row and "us" in row


def of_training(lines):
    """Training steps of all systems, together."""
    rows = [{"step": name, **row} for name, line in lines.items() if (line.get("values") or {}).get("kind") == "training"
            for row in line["values"]["rows"]]
    return table([*rows[0]], [[row.get(head) for head in rows[0]] for row in rows]) if rows else ""


MOST_KERNELS = 30  # in a table


def of_kernels(line):
    """The kernels of one step, the longest first."""
    rows = line["values"]["kernels"]
    shown = [(row["instruction"], row["kernel"], row["calls"], row["kernel_ms"]) for row in rows[:MOST_KERNELS]]
    if rest := rows[MOST_KERNELS:]:
        shown.append(("all others", "", sum(row["calls"] for row in rest), sum(row["kernel_ms"] for row in rest)))
    return table(["instruction", "kernel", "calls", "ms"], shown)


def taken_apart(step, ceilings):
    """A step's time by what it is spent on, beside the same work alone, where that was measured."""
    sums = dict.fromkeys(("products", "attention", "other kernels"), 0.0)
    for row in step["values"]["kernels"]:
        name = row["kernel"]
        kind = "products" if name.startswith("product") else "attention" if "attention" in name else "other kernels"
        sums[kind] += row["kernel_ms"]
    whole = step["values"]["rows"][0]["ms"]
    alone = {row["what"]: row["ms"] for row in ((ceilings or {}).get("values") or {}).get("rows", [])}
    rows = [(kind, ms, ms / whole * 100, alone.get(f"all {kind} of a step")) for kind, ms in sums.items()]
    rest = whole - sum(sums.values())
    return table(["of a step", "ms", "%", "alone, ms"], [*rows, ("between kernels", rest, rest / whole * 100, None), ("all", whole, 100.0, None)])


def of_threads(lines):
    """The rows of gpu_ranks time, together: what the sizes of one collective compare best in."""
    rows = [(row["collective"], row["ranks"], human(row["bytes"]), row["us"], row["GB/s"], row["algorithm"], row.get("path", ""), row["graph"] or "", name)
            for name, line in lines.items() for row in (line.get("values") or {}).get("rows", []) if is_time(row)]
    return table(["collective", "ranks", "size", "µs", "GB/s", "algorithm", "path", "in a graph of", "step"], rows) if rows else ""


def group_section(group, lines):
    here = [(step, lines[step.name]) for step in ALL if step.group == group and step.name in lines]
    if not here:
        return []
    overview = table(["question", "result", "", "s", "step"],
                     [(step.asks, in_words(line["values"]) if line.get("values") else line.get("reason"), STATUSES[line["status"]],
                       line.get("seconds"), f"`{step.name}`") for step, line in here])
    by_name = {step.name: line for step, line in here}
    parts = [f"## {GROUPS[group]}", overview, *filter(None, [of_threads(by_name), of_training(by_name)])]
    for step, line in here:
        values = line.get("values")
        if values and values.get("kernels"):
            ceilings = by_name.get(f"ceilings_{step.name.removeprefix('loom_').removesuffix('_cudnn')}")
            parts += [f"`{step.name}`: the kernels of one step, beside the median time of all", taken_apart(line, ceilings),
                      f"`{step.name}`: its kernels", of_kernels(line)]
        if not values or values["kind"] == "training" or any(is_time(row) for row in values.get("rows", []) if values["kind"] == "rows"):
            continue  # those are in the table of all
        if shown := details(step.name, values):
            parts += [f"`{step.name}`: {step.asks}", shown]
    return parts


def troubles(lines):
    parts = []
    for name, line in lines.items():
        if line["status"] in ("failed", "timeout", "started"):
            said = "\n".join(["```", *line.get("last_lines", ["nothing was kept: the run was cut off in this step"]), "```"])
            parts += [f"**{name}**: {line.get('reason', 'the run was cut off in it')}. `{line.get('command', '')}`", said]
    return ["## What failed, with its last lines", *parts] if parts else []


def page(paths):
    lines = results.read(paths)
    cards = sorted({line["card"] for line in lines.values() if line.get("card")})
    counts = {status: sum(line["status"] == status for line in lines.values()) for status in STATUSES}
    summary = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    untried = [step.name for step in ALL if step.name not in lines]
    if not cards:
        where = "There was no GPU."
    elif cards == [FAKE]:
        where = "It comes from the tests' driver: there was no GPU, and the times say nothing."
    else:
        where = f"Measured on one {' and on one '.join(cards)}, the ranks of a row sharing it."
    parts = ["# Weft on a GPU",
             f"This page is written by `perf/gpu_report.py` from the results of `perf/gpu/quarter_hour.sh`. {where}",
             f"Steps: {summary or 'none'}{', ' + str(len(untried)) + ' not come to' if untried else ''}.",
             "## Machine", environment(lines)]
    if len(cards) > 1:
        parts.append(table(["step", "card"], [(name, line.get("card")) for name, line in lines.items() if line.get("card")]))
    for group in GROUPS:
        parts += group_section(group, lines)
    parts += troubles(lines)
    return "\n\n".join(parts) + "\n"


def write(path, files):
    """Writes the page at once, so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = path.with_suffix(".part")
    whole.write_text(page(files), encoding="utf-8")
    whole.replace(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--docs", type=Path, help="the page to write")
    options = parser.parse_args()
    if missing := [path for path in options.results if not path.exists()]:
        parser.error(f"{missing[0]} does not exist, must be a file of results")
    if options.docs:
        write(options.docs, options.results)
    else:
        print(page(options.results), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
