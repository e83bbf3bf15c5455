#!/usr/bin/env python3
"""Breaks attention's kernels on purpose, one place at a time, and counts which breaks their tests notice.

    attention_mutations.py BUILD [--only NUMBER ...] [--reuse] [--jobs N]

The sources are compiled with every break in them, into BUILD/mutations: an environment variable says which is in effect. mutations.py does
the same for the other kernels, and compiles each break for itself: there a few quick tests see all of a kernel. The tests of a break run first
without the address sanitizer, which takes three times as long. A break is caught when a test fails, or the emulator or the sanitizer ends the
program. Prints each break that survives. The exit code is 1 if one does that is not expected to, or if the tests fail without any break.
"""
import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
KERNELS = "device/cuda/kernels"

# file: [(text, replacement)]. Every place where the text stands is a break of its own. A text that ends in `;` is a
# statement, any other one an expression. Where a part of it stands in « », that is replaced, and the rest tells the place.
BREAKS = {
    "attention_tile.h": [
        ("row * head + permuted * kChunk", "row % 8 * head + permuted * kChunk"),
        ("first + row < tokens", "true"),
        ("column < size", "true"),
        ("column + e < size", "true"),
        ("(first + thread / kChunks) * from.stride", "thread / kChunks * from.stride"),
        ("source += kRowsAtOnce * from.stride", "source += from.stride"),
        ("thread >= kRowsAtOnce * kChunks", "thread >= kRowsAtOnce * kChunks - 1"),
        ("warp_barrier();", ""),
        ("m * 16 + half * 8 + g", "m * 16 + half * 8 + t"),
        ("first + row >= tokens", "false"),
        ("c >= size", "false"),
        ("c + e < size", "true"),
        ("(first + row) * to.stride", "row * to.stride"),
        ("sums[m][b][2 * half + 1]", "sums[m][b][2 * half]"),
        ("b * 8 + 2 * t + c", "b * 8 + t + c"),
        ("«r * 8 + g», chunk", "r * 8 + t"),
        ("m * 16 + lane % 16", "m * 16 + lane % 8"),
        ("k * 2 + lane / 16", "k * 2 + lane / 8 % 2"),
        ("lane % 8 + lane / 16 * 8", "lane % 16"),
        ("k * 2 + lane / 8 % 2", "k * 2 + lane / 16"),
        ("multiply<T>(sums[m][2 * b], x[m], y[0], y[1]);", "multiply<T>(sums[m][2 * b], x[m], y[1], y[0]);"),
        ("multiply<T>(sums[m][2 * b + 1], x[m], y[2], y[3]);", "multiply<T>(sums[m][2 * b + 1], x[m], y[0], y[1]);"),
        ("(m * 16 + i / 2 * 8 + g) * 8 * k", "(m * 16 + i / 2 * 8 + g) * 8"),
        ("(r * 8 + g) * 8 * k + j", "(r * 8 + g) * 8 * k + j / 2 * 2"),
        ("column + b * 8 + 2 * t", "b * 8 + 2 * t"),
        ("factors[m][«2 * j + i / 2»]", "2 * j"),
        ("pack<T>(f[i % 2 * 2], f[i % 2 * 2 + 1])", "pack<T>(f[i % 2 * 2 + 1], f[i % 2 * 2])"),
        ("j * 16 + lane % 16", "j * 16 + lane % 8"),
        ("column / 8 + b * 2 + lane / 16", "b * 2 + lane / 16"),
        ("column / 8 + b * 2 + lane / 16", "column / 8 + b * 2"),
        ("«load_matrices_transposed»(", "load_matrices"),
        ("static_cast<int64_t>(batch) * a.tokens * heads", "static_cast<int64_t>(batch) * a.tokens"),
        ("a.heads + «static_cast<unsigned>(key_head)»", "0"),
        ("a.heads + «a.key_heads» + static_cast<unsigned>(key_head)", "a.heads"),
        ("a.heads + «a.key_heads» + static_cast<unsigned>(key_head)", "0"),
        ("a.key_heads + «static_cast<unsigned>(key_head)»", "0"),
        ("a, out, «a.heads», batch", "a.qkv_heads()"),
    ],
    "attention_mask.h": [
        ("query >= window", "query > window"),
        ("query + 1 - window", "query - window"),
        ("causal ? query + 1 : length", "causal ? query : length"),
        ("causal ? query + 1 : length", "causal ? query + 2 : length"),
        ("causal ? query + 1 : length", "causal ? query + 1 : tokens"),
        ("causal ? query + 1 : length", "query + 1"),
        ("query < tokens", "true"),
        ("key >= first_key(query)", "true"),
        ("key >= first_key(query)", "key > first_key(query)"),
        ("key < last_key(query)", "key <= last_key(query)"),
        ("query + queries <= tokens", "true"),
        ("key >= first_key(query + queries - 1)", "key >= first_key(query)"),
        ("key >= first_key(query + queries - 1)", "true"),
        ("key + keys <= last_key(query)", "key + keys - 1 <= last_key(query)"),
        ("key + keys <= last_key(query)", "key <= last_key(query)"),
        ("visible.first_key(query) / tile", "visible.first_key(query) / tile + 1"),
        ("visible.first_key(query) / tile", "0"),
        ("(end + tile - 1) / tile", "end / tile"),
        ("larger(«arguments.begins[first_row + query]», in_window)", "in_window"),
        ("larger(«arguments.begins[first_row + query]», in_window)", "arguments.begins[first_row + query] + 1"),
        ("first_row(«batch * tokens»)", "0"),
        ("window < tokens - key ? «key + window» : tokens", "key + window - 1"),
        ("smaller(«arguments.ends[first_row + key]», in_window)", "arguments.ends[first_row + key] - 1"),
        ("visible.last_query(«key + keys - 1»)", "key"),
        ("key / tile", "key / tile + 1"),
        ("key < visible.length", "true"),
        ("2 * power <= heads", "2 * power < heads"),
        ("static_cast<float>(head + 1)", "static_cast<float>(head)"),
        ("static_cast<float>(head - power) + 0.5f", "static_cast<float>(head - power)"),
        ("static_cast<int>(a.first_head) + head", "head"),
        ("static_cast<int>(a.all_heads)) / «a.scale»", "1.0f"),
        ("!hides && slope == 0", "!hides"),
        ("hides && !visible.sees(query, key)", "false"),
        ("static_cast<float>(key - query)", "static_cast<float>(key - query + 1)"),
        ("static_cast<unsigned>(batch)} * «a.all_heads»", "a.heads"),
        ("a.all_heads + «a.first_head» + head", "0"),
        ("a.first_drawn % 4 == 0 && a.tokens % 4 == 0", "true"),
        ("a.first_drawn % 4 == 0 && a.tokens % 4 == 0", "false"),
        ("«q + m * 16», k + b * 8", "q"),
        ("q + b * 8, «k + m * 16»", "k"),
        ("(4 * i)", "(4 * (i ^ 1))"),
        ("word < threshold_", "word <= threshold_"),
        ("x[m][b][i] * keep", "x[m][b][i]"),
        ("dropped >> (4 * (m * n + b) + i)", "dropped >> (4 * b + i)"),
        ("(odd ? 8 : 0)", "0"),
        ("k + t / 2 * 4", "k + t / 2 * 2"),
        ("«odd ? drawn.word[0] : drawn.word[2]», 1", "odd ? drawn.word[2] : drawn.word[0]"),
        ("odd ? drawn.word[1] : drawn.word[3], «1»", "2"),
        ("«g + i / 2 * 8», k + 2 * t + i % 2", "g"),
        ("number % 4", "0"),
        ("«q + 2 * t + r % 2», k + g / 4", "q + 2 * t"),
        ("g / 4 * 4 + r / 2 * 8", "g / 4 * 4"),
        ("chosen(drawn.word, r ^ s)", "chosen(drawn.word, r)"),
        ("«s * 4»), r ^ s", "s"),
        ("q + 2 * t + i % 2, «k + g + i / 2 * 8»", "k + g"),
    ],
    "attention_forward.h": [
        ("high = larger(high, shuffle_xor(high, 1));", ""),
        ("high = larger(high, shuffle_xor(high, 2));", ""),
        ("high = larger(high, shuffle_xor(high, 2));", "high = larger(high, shuffle_xor(high, 4));"),
        ("high == -INFINITY ? 0.0f : high * scale", "high * scale"),
        ("rows.largest[m][half] = high;", ""),
        ("rows.sum[m][half] * shrink", "rows.sum[m][half]"),
        ("head / static_cast<int>(a.sharing())", "0"),
        ("head / static_cast<int>(a.sharing())", "head % static_cast<int>(a.key_heads)"),
        ("out[m][b][2 * half] *= shrink;", ""),
        ("out[m][b][2 * half + 1] *= shrink;", ""),
        ("tile % 2 * 2 * Tiles::kStage", "0"),
        ("commit_copies();", ""),
        ("wait_for_copies<0>();", ""),
        ("wait_for_copies<0>();", "wait_for_copies<1>();"),
        ("barrier();", ""),
        ("load(tile + 1)", "load(tile)"),
        ("«own + warp_row * Tiles::kHead», stage", "own"),
        ("«first + warp_row», tile * kKeys, p", "first"),
        ("(«first + warp_row», tile * kKeys)", "first"),
        ("/ 8>(first + warp_row, tile * kKeys), «1», p", "a.keep"),
        ("«stage + Tiles::kStage», 0, out", "stage"),
        ("sum += shuffle_xor(sum, 1);", ""),
        ("sum += shuffle_xor(sum, 2);", ""),
        ("a.keep / sum", "1.0f / sum"),
        ("sum > 0 ? a.keep / sum : 0.0f", "a.keep / sum"),
        ("row < visible.tokens", "true"),
        ("half * 8 + lane / 4", "lane / 4"),
        ("log2_of(sum)) * «kLn2»", "1.0f"),
        ("«first + warp_row», 0, own", "first"),
    ],
    "attention_backward.h": [
        ("drop(bits, a.keep, p);", ""),
        ("drop(bits, a.keep, ds);", ""),
        ("«a.keep», ds", "1.0f"),
        ("ds[m][b][i] - delta[m][i / 2]", "ds[m][b][i]"),
        ("tile % 2 * 2 * Tiles::kStage", "0"),
        ("step % 2 * 2 * Tiles::kStage", "0"),
        ("step % 2 * 2 * kQueries", "0"),
        ("head / static_cast<int>(a.sharing())", "0"),
        ("head / static_cast<int>(a.sharing())", "head % static_cast<int>(a.key_heads)"),
        ("of_head * static_cast<int>(a.sharing())", "of_head"),
        ("key_head * static_cast<int>(a.sharing())", "key_head"),
        ("step / of_head", "0"),
        ("tiles.first + step % of_head", "step % of_head"),
        ("dropped(a, batch, «head»); bits", "first_head"),
        ("slope_before_scale(a, «head»), first", "first_head"),
        ("commit_copies();", ""),
        ("wait_for_copies<0>();", ""),
        ("wait_for_copies<0>();", "wait_for_copies<1>();"),
        ("barrier();", ""),
        ("load(tile + 1)", "load(tile)"),
        ("load(step + 1)", "load(step)"),
        ("row < visible.tokens", "true"),
        ("a.lse[at] * kLog2E", "a.lse[at]"),
        ("half * 8 + lane / 4", "lane / 4"),
        ("mask_scores<false>(visible, slope, first + warp_row, tile * kKeys, p);", ""),
        ("mask_scores<true>(visible, slope_before_scale(a, head), first + warp_row, tile * kQueries, p);", ""),
        ("(«first + warp_row», tile * kKeys)", "first"),
        ("(tile * kQueries, «first + warp_row»)", "first"),
        ("«stage + Tiles::kStage», ds", "stage"),
        ("«own_douts», stage", "own_queries"),
        ("«own_values», stage", "own_keys"),
        ("ds, «stage», 0, dq", "stage + Tiles::kStage"),
        ("«stage + Tiles::kStage», column, dv", "stage"),
        ("stage + Tiles::kStage, «column», dv", "0"),
        ("scale, «of_stage[query]»", "of_stage[0]"),
        ("scale, «of_stage[query]»", "of_stage[query ^ 1]"),
        ("of_stage[kQueries + query]", "of_stage[query]"),
        ("factor[m][half] = a.scale", "factor[m][half] = 1"),
        ("static_cast<int>(block_index().x) % Tiles::kShares * Tiles::kColumns", "0"),
        ("tile * kQueries + i", "i"),
        ("first + warp_row, «column», own_keys", "0"),
    ],
    "attention_delta.h": [
        ("row >= uint64_t{a.batch} * a.tokens * a.heads", "false"),
        ("sum = warp_sum(sum);", ""),
        ("d += kLanes", "d += 2 * kLanes"),
        ("token % a.tokens", "token"),
    ],
}

# Breaks that no result shows, by what they are.
EQUIVALENT = {
    "tiles that nobody sees are masked": {("visible.first_key(query) / tile", "0")},
    "rows are shared out differently, for the same words": {("a.first_drawn % 4 == 0 && a.tokens % 4 == 0", "false")},
    "the kernel of keys has one tile of rows in a warp": {("q + b * 8, «k + m * 16»", "k")},
    "one word of 2^32": {("word < threshold_", "word <= threshold_")},
    "the masks of the other conditions hide these, too": {("query + queries <= tokens", "true"), ("query < tokens", "true")},
}


def pattern_of(old):
    """Spaces match line breaks, too."""
    before, part, after = re.split("[«»]", old) if "«" in old else ("", old, "")
    escaped = [re.sub(r"(\\ )+", r"\\s+", re.escape(text)) for text in (before, part, after)]
    return r"(?<!\w)" + escaped[0] + "(?P<part>" + escaped[1] + ")" + escaped[2]


def write_sources(target):
    """Copies the kernels with every break; returns the list of (file, line, old, new)."""
    folder = target / KERNELS
    folder.mkdir(parents=True, exist_ok=True)
    breaks = []
    for path in sorted((ROOT / "src/loom" / KERNELS).iterdir()):
        text = path.read_text(encoding="utf-8")
        places = []  # (begin, end, old, [(number, new)])
        for old, new in BREAKS.get(path.name, []):
            found = [m.span("part") for m in re.finditer(pattern_of(old), text)]
            if not found:
                sys.exit(f"{path.name} has no: {old}")
            for begin, end in found:
                line = text.count("\n", 0, begin) + 1
                breaks.append((path.name, line, old, new))
                places.append((begin, end, old, new, len(breaks)))
        text = with_breaks(text, places)
        if path.name == "primitives_host.h":
            text = text.replace("namespace loom::cuda {", MUTANT, 1)
        written = folder / path.name
        if not written.exists() or written.read_text(encoding="utf-8") != text:
            written.write_text(text, encoding="utf-8")
    return breaks


MUTANT = """#include <cstdlib>
namespace loom::cuda {
inline bool mutant(int number) {
  static const int chosen = std::getenv("MUTANT") != nullptr ? std::atoi(std::getenv("MUTANT")) : 0;
  return number == chosen;
}
"""


def with_breaks(text, places):
    """The text with each break as a choice of run time. Of breaks that overlap, each replaces its part of all of them."""
    out, at = [], 0
    groups = []  # overlapping places, by their hull
    for place in sorted(places, key=lambda p: (p[0], -p[1])):
        if groups and place[0] < groups[-1][1]:
            groups[-1][1] = max(groups[-1][1], place[1])
            groups[-1][2].append(place)
        else:
            groups.append([place[0], place[1], [place]])
    for begin, end, members in groups:
        hull = text[begin:end]
        statement = hull.rstrip().endswith(";")
        result = hull
        for b, e, old, new, number in members:
            changed = hull[: b - begin] + new + hull[e - begin:]
            if statement:
                result = f"if (mutant({number})) {{ {changed} }} else {{ {result} }}"
            else:
                result = f"(mutant({number}) ? ({changed}) : ({result}))"
        out += [text[at:begin], result]
        at = end
    return "".join(out) + text[at:]


def compile_tests(build, target, jobs, sanitizer):
    tests = ROOT / "tests/loom/cuda_kernels"
    flags = ["-std=c++20", "-O1", "-g1", *sanitizer, "-w", f"-I{target}", f"-I{ROOT}/src/loom", f"-I{ROOT}/tests/loom", f"-I{ROOT}/include"]
    sources = [*sorted((target / KERNELS).glob("attention*.cu")), *sorted((tests / "emulator").glob("*.cc")),
               tests / "attention_test.cc", tests / "attention_delta_test.cc"]
    objects = [target / (source.name + "".join(sanitizer) + ".o") for source in sources]

    def one(source, target_object):
        speed = ["-O2"] if source.parent.name == "emulator" else []
        subprocess.run(["g++", *flags, *speed, "-x", "c++", "-c", source, "-o", target_object], check=True)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, sources, objects))
    program = target / ("test_mutants" + "".join(sanitizer))
    subprocess.run(["g++", *sanitizer, *objects, f"-L{build}/lib", "-lloom_layers", "-lweft", "-licuuc", "-ldnnl", "-lgomp",
                    "-lfmt", "-lgtest", "-lgtest_main", "-lpthread", f"-Wl,-rpath,{build}/lib", "-o", program], check=True)


# In this order: the quick ones first.
FILTERS = ["AttentionDelta*:*/0.ASequence*:*/0.SmallAndOddHeads:*/0.OneToken:*/0.EverythingAtOnce:*/0.Window:*/0.Padded:*/0.Dropout*:*/0.Tensor*:*/0.Alibi:*/0.SharedKeys*:*/0.SeveralTexts*",
           "*/1.EverythingAtOnce:*/1.SmallAndOddHeads:*/1.Padded:*/1.Dropout*:*/1.Tensor*:*/1.Window:*/1.EveryVariant*:*/1.SharedKeys*:*/1.SeveralTexts*",
           "*/0.Head*:*/1.Head64:*/0.EveryVariant*:*/1.Head96", "*/1.Head*:*/1.Alibi"]


def caught(programs, number):
    """A test that does not end is one that notices."""
    plain, sanitized = programs
    for program, tests in [(plain, 0), (plain, 1), (sanitized, 0), (plain, 2), (sanitized, 1), (plain, 3), (sanitized, 2)]:
        try:
            done = subprocess.run([program, "--gtest_fail_fast", "--gtest_filter=" + FILTERS[tests]], capture_output=True, timeout=900, check=False,
                                  env={**os.environ, "MUTANT": str(number), "ASAN_OPTIONS": "detect_leaks=0"})
        except subprocess.TimeoutExpired:
            return True
        if done.returncode != 0:
            return True
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--only", type=int, nargs="+")
    parser.add_argument("--reuse", action="store_true", help="the programs of the last call")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    target = arguments.build.resolve() / "mutations"
    breaks = write_sources(target)
    programs = [target / "test_mutants", target / "test_mutants-fsanitize=address"]
    if not arguments.reuse:
        for sanitizer in ([], ["-fsanitize=address"]):
            compile_tests(arguments.build.resolve(), target, arguments.jobs, sanitizer)
    equivalent = set().union(*EQUIVALENT.values())
    if not arguments.reuse and caught(programs, 0):
        print("the tests fail without any break")
        return 1
    noticed = expected = wrong = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        jobs = {pool.submit(caught, programs, number): number for number in arguments.only or range(1, len(breaks) + 1)}
        for job in concurrent.futures.as_completed(jobs):
            name, line, old, new = breaks[jobs[job] - 1]
            if job.result():
                noticed += 1
            elif (old, new) in equivalent:
                expected += 1
            else:
                wrong += 1
                print(f"survives: {jobs[job]} {name}:{line}: {old} -> {new or 'nothing'}", flush=True)
    print(f"{noticed + expected + wrong} breaks: {noticed} caught, {expected} without effect as expected, {wrong} survive")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
