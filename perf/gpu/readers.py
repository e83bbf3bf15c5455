"""What the steps' programs print, as values for a line of JSON. A reader raises Unreadable where there is nothing to read.

A reader takes what is there: the output of a program that was ended at its time limit has some of its rows. Every reader's
values have a `kind`, by which perf/gpu_report.py shows them.
"""
import csv
import json
import re


class Unreadable(Exception):
    """Why there is no value."""


def json_rows(text):
    """Lines of JSON objects, as gpu_ranks, fsdp.py and facts.py print them."""
    rows = []
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                rows.append(json.loads(line))
            except ValueError:
                continue  # of a program that was ended in the middle of it
    if not rows:
        raise Unreadable("the program printed no line of JSON")
    return {"kind": "rows", "rows": rows}


# What MFU is told of: an H100's and an H200's dense products of 16-bit floats, FLOP/s.
PEAK = 989e12


def training(text):
    """loom_step and torch_gpt2.py: a line a step, then one with the sums; of a program that was ended, the steps alone."""
    rows = json_rows(text)["rows"]
    kernels = [{**row, "kernel_ms": round(row["kernel_ms"], 4)} for row in rows if "kernel_ms" in row]
    steps = [row for row in rows if "step" in row]
    sums = next((row for row in reversed(rows) if "tokens_per_second" in row), {})
    if not steps:
        raise Unreadable("no step was made")
    last = steps[-1]["step"] + 1  # PyTorch begins anew with a smaller batch where one does not fit
    row = {"system": sums.get("system"), "batch": sums.get("batch"), "tokens": sums.get("tokens"), "steps": last,
           "ms": sums.get("ms", steps[-1]["ms"]), "tokens/s": sums.get("tokens_per_second")}
    if sums:
        flops = sums["tokens_per_second"] * sums["flops_per_token"]
        row |= {"TFLOP/s": flops / 1e12, "MFU, %": flops / PEAK * 100}
    row |= {"memory, MiB": sums.get("memory_mb"), "planned, MiB": sums.get("planned_mb"), "first loss": steps[-last]["loss"],
            "last loss": steps[-1]["loss"], "notes": "; ".join(row["note"] for row in rows if "note" in row)}
    return {"kind": "training", "rows": [row], "kernels": kernels}


def per_cent(text):
    """gpu_probe beside: one number."""
    found = re.findall(r"^-?\d+(?:\.\d+)?$", text, re.MULTILINE)
    if not found:
        raise Unreadable("the program printed no number")
    return {"kind": "per cent", "per cent": float(found[-1])}


def yes_or_no(text):
    """gpu_probe census."""
    found = re.findall(r"^(yes|no)$", text, re.MULTILINE)
    if not found:
        raise Unreadable("the program printed neither yes nor no")
    return {"kind": "answer", "answer": found[-1]}


def _number(word):
    return None if word == "N/A" else float(word)


def _perf_rows(text):
    """The out-of-place half of a perf tool's lines: size count type redop root time algbw busbw #wrong ..."""
    rows = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < 13 or not re.fullmatch(r"\d+", words[0]) or not re.fullmatch(r"\d+", words[1]):
            continue
        us, algbw, busbw, wrong = map(_number, words[5:9])
        rows.append({"bytes": int(words[0]), "us": us, "alg GB/s": algbw, "bus GB/s": busbw, "wrong": wrong})
    return rows


def _algorithms(text):
    found = re.search(r"^# Algorithms\s*: (.*)$", text, re.MULTILINE)
    return found.group(1) if found else None


def perf_table(text):
    """A perf tool's table."""
    rows = _perf_rows(text)
    if not rows:
        raise Unreadable("the tool printed no table")
    return {"kind": "perf", "rows": rows, "algorithms": _algorithms(text)}


def every_collective(text):
    """tests/gpu/every_collective.sh: a perf tool's table below each `== all_reduce, 2 ranks, 1 nodes`."""
    sections = re.split(r"^== (\w+), (\d+) ranks, (\d+) nodes$", text, flags=re.MULTILINE)[1:]
    if not sections:
        raise Unreadable("no collective was begun")
    runs = []
    for collective, ranks, nodes, table in zip(*(sections[i::4] for i in range(4))):
        rows = _perf_rows(table)
        over = re.search(r"^# Out of bounds values : \d+ (OK|FAILED)$", table, re.MULTILINE)
        runs.append({"collective": collective, "ranks": int(ranks), "nodes": int(nodes),
                     "result": {"OK": "right", "FAILED": "wrong"}[over.group(1)] if over else "not over",
                     "us": {row["bytes"]: row["us"] for row in rows}, "algorithms": _algorithms(table)})
    return {"kind": "collectives", "runs": runs}


def google_tests(text):
    """A GoogleTest program's verdicts, and the test that was under way when the program ended early."""
    verdicts = {name: re.findall(rf"^\[ +{name} +\] ([\w/.]+)(?:, where .*)? \(\d+ ms\)$", text, re.MULTILINE)
                for name in ("OK", "FAILED", "SKIPPED")}
    begun = re.findall(r"^\[ RUN +\] (\S+)$", text, re.MULTILINE)
    if not begun:
        raise Unreadable("no test was begun")
    ended = {name for names in verdicts.values() for name in names}
    return {"kind": "tests", "passed": len(verdicts["OK"]), "skipped": len(verdicts["SKIPPED"]), "failed": verdicts["FAILED"],
            "not over": [name for name in begun if name not in ended]}


def markdown_table(text):
    """gpu_waits: a table in Markdown, which a report shows as it is."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    if len(lines) < 3:
        raise Unreadable("the program printed no row")
    if all("not measured" in line for line in lines[2:]):
        raise Unreadable("no row was measured")
    return {"kind": "markdown", "lines": lines}


def sanitizer(text):
    """compute-sanitizer's last word, and the tests' beside it."""
    found = re.search(r"^=+ ERROR SUMMARY: (\d+) errors?", text, re.MULTILINE)
    if not found:
        raise Unreadable("compute-sanitizer printed no summary")
    return {**google_tests(text), "errors": int(found.group(1))}


def errors(text):
    """compute-sanitizer's last words on a program that is no test: its memcheck's, or its racecheck's."""
    found = re.findall(r"^=+ ERROR SUMMARY: (\d+) errors?|^=+ RACECHECK SUMMARY: \d+ hazards? displayed \((\d+) errors?", text, re.MULTILINE)
    if not found:
        raise Unreadable("compute-sanitizer printed no summary")
    return {"kind": "errors", "errors": sum(int(count) for pair in found for count in pair if count)}


# Of a launch: its time, and what parts of their peaks it takes of arithmetic, of memory, and of places for warps.
NCU_METRICS = {
    "gpu__time_duration.sum": "ms",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "multiprocessors, %",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": "memory, %",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "warps, %",
}


def ncu(text):
    """ncu's page of raw values: a line of names, one of units, then one for each launch. The slowest kernels come first."""
    table = list(csv.reader(line for line in text.splitlines() if line.startswith('"')))
    if not table or "Kernel Name" not in table[0]:
        refused = re.search(r"ERR_NVGPUCTRPERM|==ERROR== .*", text)
        raise Unreadable(f"ncu printed no table: {refused.group() if refused else 'and no error'}")
    launches = {}
    for line in table[2:]:
        launch = dict(zip(table[0], line))
        launches.setdefault(launch["Kernel Name"].split("(")[0], []).append([float(launch[name].replace(",", "")) for name in NCU_METRICS])
    if not launches:
        raise Unreadable("ncu saw no launch")
    rows = []
    for kernel, values in launches.items():
        ns = sum(one[0] for one in values)
        means = [sum(one[0] * one[at] for one in values) / ns for at in range(1, len(NCU_METRICS))]  # weighted by time
        rows.append({"kernel": kernel, "launches": len(values), **dict(zip(NCU_METRICS.values(), [ns / 1e6, *means]))})
    return {"kind": "rows", "rows": sorted(rows, key=lambda row: -row["ms"])}


def lines(text):
    """weft_info: text for people."""
    if not text.strip():
        raise Unreadable("the program printed nothing")
    return {"kind": "text", "lines": text.rstrip().splitlines()}
