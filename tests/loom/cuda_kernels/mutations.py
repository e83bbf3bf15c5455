#!/usr/bin/env python3
"""Breaks the kernels of src/loom/device/cuda/kernels, one place at a time, and says which tests notice.

mutations.py BUILD [NAME...]: BUILD is a build folder with libloom_layers.a; names are those of files, all by default. Each mutation is a text
of a file, which must be there once, and what stands in its place. Tests of the kernels are built with it, by g++ with the address sanitizer,
and run. The exit code is 1 if a mutation is not noticed.

For time's sake only fp16 is built of the kernels that several types have, and only kernels are compiled again: no mutation is in a function
of the host's, as those that shape launches are.
"""
import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
KERNELS = ROOT / "src/loom/device/cuda/kernels"
TESTS = ROOT / "tests/loom/cuda_kernels"

# The files of tests, and the kernels that each launches.
ELEMENTWISE, NORM, EMBEDDING, ENTROPY, ROWS = ("elementwise_test", "norm_test", "embedding_test", "cross_entropy_test",
                                                  "gather_rows_test")
KERNELS_OF = {ELEMENTWISE: ["activation", "adamw", "dropout", "elementwise", "normal"], NORM: ["norm", "column_sums"],
              EMBEDDING: ["embedding", "rotary"], ENTROPY: ["cross_entropy"], ROWS: ["gather_rows"]}
# The kernels that a header's mutations are compiled into, and the tests that are to notice.
SEEN_BY = {"activation.h": (ELEMENTWISE, "activation"), "adamw.h": (ELEMENTWISE, "adamw"), "dropout.h": (ELEMENTWISE, "dropout"),
           "dropout_mask.h": (ELEMENTWISE, "dropout"), "elementwise.h": (ELEMENTWISE, "elementwise"), "normal.h": (ELEMENTWISE, "normal"),
           "norm.h": (NORM, "norm"), "column_sums.h": (NORM, "column_sums"), "embedding.h": (EMBEDDING, "embedding"),
           "embedding_gradient.h": (EMBEDDING, "embedding"), "token_order.h": (EMBEDDING, "embedding"), "rotary.h": (EMBEDDING, "rotary"),
           "cross_entropy.h": (ENTROPY, "cross_entropy"), "split_cross_entropy.h": (ENTROPY, "cross_entropy"),
           "gather_rows.h": (ROWS, "gather_rows")}
IN_ELEMENTS, IN_ROWS, IN_GRADIENTS, IN_NORMS = (ELEMENTWISE, "elementwise"), (ELEMENTWISE, "dropout"), (EMBEDDING, "embedding"), (NORM, "norm")

MUTATIONS = {
    "packs.h": [  # each with the tests and kernels that see it
        (IN_ELEMENTS, "in_packs && first + n <= count", "in_packs && first < count"),
        (IN_ELEMENTS, "i < first + n && i < count", "i < first + n"),
        (IN_ELEMENTS, "x.at[first + i] = value_of(element[i])", "x.at[i] = value_of(element[i])"),
        (IN_ELEMENTS, "pack<T>(x.at[first + 2 * i], x.at[first + 2 * i + 1])", "pack<T>(x.at[first + 2 * i + 1], x.at[first + 2 * i])"),
        (IN_ELEMENTS, "% 16 == 0) && ...", "% 8 == 0) && ..."),
        (IN_ROWS, "in_packs ? width / n * n : 0", "in_packs ? (width + n - 1) / n * n : 0"),
        (IN_ROWS, "column = packed + thread_index().x;", "column = packed + thread_index().x + 1;"),
        (IN_GRADIENTS, "column += threads * n)", "column += threads)"),
        (IN_NORMS, "  barrier();\n  for (int i = 0; i < count; ++i) x[i] = 0;", "  for (int i = 0; i < count; ++i) x[i] = 0;"),
        (IN_NORMS, "scratch[warp_index() * count + i] = x[i]", "scratch[warp_index() + i] = x[i]"),
        (IN_NORMS, "for (unsigned warp = 0; warp < thread_count()", "for (unsigned warp = 1; warp < thread_count()"),
        (IN_NORMS, "x[i] = warp_sum(x[i]);", ";"),
    ],
    "activation.h": [
        ("each = F::value(each)", "each = F::slope(each)"),
        ("d.at[j] *= F::slope(x.at[j])", "d.at[j] = F::slope(x.at[j])"),
        ("aligned(a.x, a.y)", "aligned(a.x)"),
        ("aligned(a.x, a.dy, a.dx)", "aligned(a.x, a.dx)"),
        ("store_pack(a.dx + i, d)", "store_pack(a.dx + i, x)"),
        ("visit(x, count), visit(y, count);", "visit(x, count), visit(y, count - 1);"),
        ("y.at[i] *= F::value(g.at[i])", "y.at[i] = F::value(g.at[i])"),
        ("y.at[i] *= F::value(g.at[i])", "y.at[i] = g.at[i] * F::value(y.at[i])"),
        ("gate = a.x + row * 2 * a.width, *const up = gate + a.width;", "gate = a.x + row * a.width, *const up = gate + a.width;"),
        ("T* const to = a.y + row * a.width;", "T* const to = a.y;"),
        ("aligned(gate, up, to)", "aligned(gate, up)"),
        ("aligned(gate, up, to)", "aligned(gate, to)"),
        ("store_pack(to + column, y);", "store_pack(to + column, g);"),
        ("*const dy = a.dy + row * a.width;", "*const dy = a.dy;"),
        ("aligned(gate, up, dy, dgate, dup)", "aligned(gate, up, dgate, dup)"),
        ("aligned(gate, up, dy, dgate, dup)", "aligned(gate, dy, dgate)"),
        ("aligned(gate, up, dy, dgate, dup)", "aligned(gate, up, dy)"),
        ("g.at[i] = F::slope(x) * u.at[i] * d.at[i];", "g.at[i] = F::slope(x) * d.at[i];"),
        ("u.at[i] = F::value(x) * d.at[i];", "u.at[i] = F::value(g.at[i]) * d.at[i];"),
        ("    store_pack(dup + column, u);\n", ""),
        ("dgate = a.dx + row * 2 * a.width, *const dup", "dgate = a.dx + row * a.width, *const dup"),
    ],
    "dropout_mask.h": [
        ("begin = first + static_cast", "begin = static_cast"),
        ("static_cast<unsigned>(begin % 4)", "0"),
        ("4 * block < skip + n", "4 * block < n"),
        ("begin / 4 + block", "begin / 4"),
        ("? word[i + 3] : word[i + 2]", "? word[i + 2] : word[i + 2]"),
        ("(skip & 2) != 0 ? high : low", "low"),
        ("< threshold ? 0.0f : keep", "< threshold ? 0.0f : 1.0f"),
    ],
    "dropout.h": [
        ("if (bias != nullptr) add_pack(sum, bias + column);\n  mask.apply(i, sum);", "mask.apply(i, sum);\n  if (bias != nullptr) add_pack(sum, bias + column);"),
        ("bias + column);", "bias + i);"),
        ("mask.apply(i, sum);", "mask.apply(column, sum);"),
        ("add_pack(sum, residual + i);", ""),
        ("a.x + row, a.bias, a.y + row)", "a.x + row, a.y + row)"),
        ("aligned(a.residual + row, ", "aligned("),
        ("a.mask.apply(i, x);", "a.mask.apply(i / 2, x);"),
    ],
    "elementwise.h": [
        ("each *= a.scale;", ""),
        ("kept<T>(each) - kept<T>(each) == 0", "each - each == 0"),
        ("finite = finite && ", "finite = "),
        ("!finite && a.overflow != nullptr", "!finite"),
        ("begin + a.size < a.count ? begin + a.size : a.count", "begin + a.size"),
        ("for (; at < end; ++at) sum +=", "for (; at < end && false; ++at) sum +="),
        ("a.x[at + lane_index()]", "a.x[at]"),
        ("at + kLanes <= end; at += kLanes", "at + kLanes <= end; at += kLanes + 1"),
        ("sum += shuffle_double(mine, lane)", "sum += shuffle_double(mine, 31 - lane)"),
        ("word[1] = shuffle(word[1], lane)", "word[1] = shuffle(word[1], 0)"),
        ("(kElementThreads / kLanes) + warp_index()", "(kElementThreads / kLanes)"),
        ("    barrier();\n    const int64_t count", "    const int64_t count"),
        ("all += piece[i];\n    barrier();", "all += piece[i];"),
        ("ahead = begin + kThreads + thread", "ahead = begin + kThreads + 1 + thread"),
        ("if (ahead < a.count) next", "if (ahead + 1 < a.count) next"),
        ("a.count - begin < kThreads ? a.count - begin : kThreads", "kThreads"),
        ("thread == 0 && i < count", "thread == 0 && i + 1 < count"),
        ("store_pack(a.sum + i, sum)", "store_pack(a.sum, sum)"),
        ("aligned(a.from, a.to),\n                         [&]<int n>(int64_t i) { store_pack", "aligned(a.to),\n                         [&]<int n>(int64_t i) { store_pack"),
        ("load_pack<n>(a.from + i));", "load_pack<n>(a.from));"),
    ],
    "adamw.h": [
        ("    store_pack(a.second + i, second);\n", ""),
        ("    store_pack(a.first + i, first);\n", ""),
        ("a.first, a.second, a.parameter)", "a.first, a.second)"),
        ("aligned(a.gradient, a.master,", "aligned(a.gradient,"),
        ("if (a.parameter != nullptr) store_pack", "store_pack"),
        ("store_pack(a.parameter + i, master)", "store_pack(a.parameter + i, first)"),
    ],
    "normal.h": [
        ("const int64_t skip = static_cast<int64_t>(a.first % 4);", "const int64_t skip = 0;"),
        ("begin + i >= 0 && ", ""),
        ("begin + i < a.count) a.y", "true) a.y"),
        ("drawn.word[2], drawn.word[3]", "drawn.word[3], drawn.word[2]"),
    ],
    "column_sums.h": [
        ("  barrier();\n", ""),
        ("row < last; row += groups", "row < last; row += 1"),
        ("row = first + warp_index()", "row = first"),
        ("aligned(x) && ", ""),
        ("stride % n == 0 && ", ""),
        ("column + kColumns <= width;", "column < width;"),
        ("column + c < width) sum.at[i]", "true) sum.at[i]"),
        ("in_packs ? lane_index() * n + i : i * kLanes + lane_index()", "lane_index() * n + i"),
        ("(a.x, a.stride,", "(a.x, a.width,"),
        ("group < groups; ++group) total", "group + 1 < groups; ++group) total"),
        ("a.rows * (part + 1) / parts", "a.rows * (part + 1) / parts - 1"),
        ("a.add ? to + sum : sum", "sum"),
        ("column < a.split ? a.low", "column <= a.split ? a.low"),
        ("c += kLanes * groups", "c += kLanes"),
        ("c < kColumns && column + c < width; c +=", "c < kColumns; c +="),
    ],
    "norm.h": [
        ("if (column < width) body(pack, column);", "body(pack, column);"),
        ("(int64_t{thread_count()} * pack + thread_index().x)", "(int64_t{thread_index().x} * (columns / n) + pack)"),
        ("each = kept<T>(each);", "each = each;"),
        ("scratch + kLanes);", "scratch);"),
        ("(each - mean) * (each - mean)", "each * each"),
        ("+ a.epsilon);", ");"),
        ("(x[pack].at[i] - mean) * rstd * weight.at[i] + bias.at[i]", "(x[pack].at[i] - mean) * rstd * weight.at[i]"),
        ("a.mask, begin + column, column);", "a.mask, column, column);"),
        (" a.mean[row] = mean;", ";"),
        ("a.y, a.residual, a.added, a.sum)", "a.y, a.residual, a.sum)"),
        ("    scratch = other_scratch, other_scratch = swapped;\n", "    (void)swapped;\n"),
        ("scratch + 2 * kLanes;", "scratch + kLanes / 16;"),
        ("each = (each - mean) * rstd;", "each = each * rstd;"),
        ("dweight[pack].at[i] += dy.at[i] * hat.at[i];", "dweight[pack].at[i] = dy.at[i] * hat.at[i];"),
        ("dbias[pack].at[i] += dy.at[i];", "dbias[pack].at[i] += dy.at[i] * weight.at[i];"),
        ("- average - hat.at[i] * product", "- hat.at[i] * product"),
        ("- average - hat.at[i] * product", "- average"),
        ("if (a.add) dx", "dx"),
        ("if (a.masked == nullptr) return;\n      a.mask.apply(begin + column, dx);", "if (a.masked == nullptr) return;\n      a.mask.apply(column, dx);"),
        ("row < a.rows; row += grid_size().x", "row < a.rows - 1; row += grid_size().x"),
        ("int64_t{block_index().x} * (has_mean ? 2 : 1) * a.width", "int64_t{block_index().x} * a.width"),
        ("dx.at[i] = kept<T>(", "dx.at[i] = ("),
        ("aligned(a.x, a.weight, a.dy, a.dx, a.partial, a.masked)", "aligned(a.x, a.weight, a.dx, a.partial, a.masked)"),
        ("store_pack(to + a.width + column, dbias[pack])", "store_pack(to + a.width + column, dweight[pack])"),
        # Norms without a mean and a bias.
        ("a.mean != nullptr ? sum[0] / static_cast<float>(a.width) : 0.0f", "sum[0] / static_cast<float>(a.width)"),
        ("if (a.bias != nullptr) bias = ", "bias = "),
        ("if (a.bias != nullptr) bias = ", "if (a.bias == nullptr) bias = "),
        ("if (a.mean != nullptr) a.mean[row] = mean", "a.mean[row] = mean"),
        ("has_mean ? a.mean[row] : 0.0f", "a.mean[row]"),
        ("has_mean ? sums[0] / static_cast<float>(a.width) : 0.0f", "sums[0] / static_cast<float>(a.width)"),
        ("if (has_mean) store_pack(", "store_pack("),
        ("(has_mean ? 2 : 1)", "2"),
        # What is fused with a norm.
        ("if (a.sum != nullptr) {", "if (a.sum != nullptr && a.added != nullptr) {"),
        ("residual_sum<n>(a.residual, a.x, a.added, a.mask", "residual_sum<n>(a.x, a.residual, a.added, a.mask"),
        ("a.mask, begin + column, column);", "a.mask, begin + column, begin + column);"),
        ("store_pack(a.sum + begin + column, x[pack]);", ""),
        ("store_pack(a.sum + begin + column, x[pack]);", "store_pack(a.sum + column, x[pack]);"),
        ("a.residual, a.added, a.sum)", "a.added, a.sum)"),
        ("a.residual, a.added, a.sum)", "a.residual, a.added)"),
        ("if (a.add) dx", "if (a.add && a.masked == nullptr) dx"),
        ("      a.mask.apply(begin + column, dx);\n", ""),
        ("store_pack(a.masked + begin + column, dx);", ""),
        ("store_pack(a.masked + begin + column, dx);", "store_pack(a.masked + column, dx);"),
        ("store_pack(a.dx + begin + column, dx);\n      if (a.masked == nullptr) return;",
         "if (a.masked == nullptr) return store_pack(a.dx + begin + column, dx);"),
        ("a.partial, a.masked)", "a.partial)"),
    ],
    "rotary.h": [
        ("a.turns + row % a.tokens * a.dims", "a.turns + row * a.dims"),
        ("a.back ? -turns", "!a.back ? -turns"),
        ("partner = a.interleaved ? 1 : pairs", "partner = a.interleaved ? 1 : pairs + 1"),
        ("step = a.interleaved ? 2 : 1", "step = 1"),
        ("a.qkv + row * a.stride", "a.qkv + row * a.heads * a.head_size"),
        ("x * cosine - y * sine", "x * cosine + y * sine"),
        ("for_row<1>(a.heads * pairs,", "for_row<1>(a.heads * pairs / 2,"),
        ("for_row<1>(a.heads * pairs,", "for_row<1>((a.heads + 1) * pairs,"),
        ("a.scaling, a.first_position", "ops::RotaryScaling{}, a.first_position"),
        ("a.first_position + i / pairs", "i / pairs"),
        ("std::sin(angle)", "std::cos(angle)"),
    ],
    "embedding.h": [
        ("(first + row) % tokens :", "row % tokens :"),
        ("(first + row) % tokens :", "first + row :"),
        ("int64_t{of_row[row]} + 1", "int64_t{of_row[row]}"),
        ("(a.width | a.stride) % kPack<T>", "a.width % kPack<T>"),
        ("load_pack<n>(a.x + row * a.stride", "load_pack<n>(a.x + row * a.width"),
        ("store_pack(a.y + row * a.stride", "store_pack(a.y + row * a.width"),
        ("a.token[row] - a.own.first", "a.token[row]"),
        ("of_own < a.own.count)", "of_own <= a.own.count)"),
        ("of_own >= 0 && ", ""),
        ("add_pack(sum, a.type + column)", "add_pack(sum, a.type)"),
        ("aligned(a.wte, a.wpe, a.type, a.y)", "aligned(a.wte, a.wpe, a.y)"),
        ("aligned(a.wte, a.wpe, a.type, a.y) && a.width % kPack<T> == 0", "aligned(a.wte, a.wpe, a.type, a.y)"),
        ("aligned(a.x, a.wpe, a.y)", "aligned(a.x, a.y)"),
    ],
    "token_order.h": [
        ("position != nullptr && position[row] < 0", "false"),
        ("position[row] < 0", "position[row] <= 0"),
        ("  digit[thread_index().x] = mine;\n  barrier();", "  digit[thread_index().x] = mine;"),
        ("    barrier();\n    const int32_t before", "    const int32_t before"),
        ("    barrier();\n    sum[thread] += before;", "    sum[thread] += before;"),
        ("thread >= distance ?", "thread > distance ?"),
        ("sum[thread] - mine;", "sum[thread];"),
        (">> (8 * a.digit) &", ">> 8 &"),
        ("i < thread_index().x; ++i) place", "i <= thread_index().x; ++i) place"),
        ("int32_t row = -1, mine = -1;", "int32_t row = -1, mine = 0;"),
        ("a.before == nullptr ? static_cast<int32_t>(place) : a.before[place]", "static_cast<int32_t>(place)"),
        ("key >= 0 && key < own.count ? key : own.count", "key"),
        ("int64_t{mine} * grid_size().x + block_index().x] = count", "int64_t{mine} * grid_size().x] = count"),
        ("place += count;", ""),
    ],
    "embedding_gradient.h": [
        ("bool from_before = key == key_at(a, begin - 1);", "bool from_before = false;"),
        ("if (goes_on && place + 1 < end) continue;", "if (goes_on) continue;"),
        ("if (from_before || goes_on) {", "if (goes_on) {"),
        ("(from_before ? 0 : 1)", "(goes_on ? 1 : 0)"),
        ("key = next, from_before = false, sum = {};", "key = next, from_before = false;"),
        ("key = next, from_before = false, sum = {};", "key = next, sum = {};"),
        ("place < end && key < a.tokens.own.count;", "place < end;"),
        ("key_at(a, begin) == key && key_at(a, begin - 1) == key", "false"),
        ("key_at(a, begin) == key && key_at(a, begin - 1) == key", "key_at(a, begin) == key"),
        ("next = piece + 1; key_at", "next = piece + 2; key_at"),
        ("(2 * piece + 1) * a.width", "2 * piece * a.width"),
        ("key < a.tokens.own.count && key_at(a, end - 1) == key", "key_at(a, end - 1) == key"),
        ("key < a.tokens.own.count && key_at(a, end - 1) == key", "key < a.tokens.own.count"),
        ("body.template operator()<n>(begin + column)", "body.template operator()<n>(column)"),
        ("begin + tile < a.width ? tile : a.width - begin", "tile"),
        ("aligned(a.dy, a.dwte, a.sums)", "aligned(a.dy, a.dwte)"),
        ("(place - a.first % a.tokens + a.tokens) % a.tokens", "place"),
        ("row < a.rows; row += a.tokens", "row < a.rows; row += a.tokens + 1"),
    ],
    "gather_rows.h": [
        ("if (from >= 0) x", "x"),
        ("from * a.width", "to * a.width"),
        ("a.y + to * a.width", "a.y + from * a.width"),
        ("aligned(a.x, a.y)", "aligned(a.x)"),
        (" && a.width % kPack<T> == 0", ""),
        ("visit(x, of * width)", "visit(x, rows * width)"),
        ("a.scores + row * a.stride", "a.scores + row * a.classes"),
        ("value_of(scores[c]) > value_of", "value_of(scores[c]) >= value_of"),
        ("c < a.classes; ++c", "c < a.stride; ++c"),
        ("row < a.rows; row += kElementThreads", "row < kElementThreads && row < a.rows; row += kElementThreads"),
        ("  barrier();\n", ""),
        ("thread = 1; thread < kElementThreads", "thread = 1; thread < kElementThreads - 1"),
        ("*a.right += mine;", "*a.right = mine;"),
    ],
    "cross_entropy.h": [
        ("  barrier();\n", ""),
        ("    mine.sum *= exp_difference(mine.largest, largest);\n", ""),
        ("    mine.largest = largest;\n", ""),
        ("a.sum * exp_difference(a.largest, largest)", "a.sum"),
        ("largest = -3.4028235e38f;", "largest = 0;"),
        ("for (unsigned warp = 1; warp <", "for (unsigned warp = 2; warp <"),
        ("column + i < count ? factor", "true ? factor"),
        ("if (column + i == target) x.at[i] -= scale;", ""),
        ("if (column + i == target)", "if (column == target)"),
        ("a.scale / numbers.sum, target", "1 / numbers.sum, target"),
        ("if (target < 0) {", "if (target < -1) {"),
        ("a.logits + row * a.stride", "a.logits + row * a.vocabulary"),
        ("static_cast<double>(numbers.largest) -", "0.0 -"),
        ("for_row<kPack<T>>(stride, aligned(logits)", "for_row<kPack<T>>(stride, true"),
        ("int mask = 16; mask > 0; mask /= 2", "int mask = 8; mask > 0; mask /= 2"),
    ],
    "split_cross_entropy.h": [
        ("target < 0 ? 0.0f : value_of(logits[target])", "value_of(logits[target < 0 ? 0 : target])"),
        ("token < own.first + own.count", "token <= own.first + own.count"),
        ("token - own.first : -1", "token : -1"),
        ("wanted += of_rank[2];", "wanted = of_rank[2];"),
        ("(rank * a.rows + row) * 3", "(rank * a.rows) * 3"),
        ("if (thread_index().x != 0) return;", ""),
        ("a.scale / all.sum", "1 / all.sum"),
        ("if (a.target[row] < 0) {", "if (a.target[row] < -1) {"),
    ],
}
# What costs time only: several threads write the same, or a thread's packs are side by side.
SAME = {("split_cross_entropy.h", "if (thread_index().x != 0) return;"), ("column_sums.h", "c += kLanes * groups"),
        ("norm.h", "(int64_t{thread_count()} * pack + thread_index().x)")}

COMPILE = ["g++", "-std=c++20", "-O0", "-fsanitize=address", "-fno-omit-frame-pointer", "-w"]
LIBRARIES = "-lfmt -licuuc -ldnnl -lgtest -lgtest_main -lhwloc -lfabric -lpthread -lgomp -ldl".split()


def one_type(folder):
    """Copies of the files that list the types, with fp16 alone."""
    types = (KERNELS / "types.h").read_text()
    launch = (TESTS / "launch.h").read_text()
    assert "::testing::Types<float, bf16, fp16>" in launch
    (folder / "device/cuda/kernels").mkdir(parents=True)
    (folder / "cuda_kernels").mkdir()
    (folder / "device/cuda/kernels/types.h").write_text(re.sub(r"for_type\(fp32, float\)|for_type\(bf16, ::loom::bf16\)", "", types))
    (folder / "cuda_kernels/launch.h").write_text(launch.replace("::testing::Types<float, bf16, fp16>", "::testing::Types<fp16>"))


def compile_one(source, target, folders, more=()):
    """What the compiler says, if it refuses."""
    include = [f"-I{path}" for path in (*folders, ROOT / "src/loom", ROOT / "tests/loom", ROOT / "include")]
    built = subprocess.run([*COMPILE, *more, *include, "-x", "c++", "-c", source, "-o", target], capture_output=True, text=True)
    return built.stderr if built.returncode else None


def noticed(program):
    """Why a test failed, or None."""
    try:
        run = subprocess.run([program, "--gtest_fail_fast"], capture_output=True, text=True, timeout=300, env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})
    except subprocess.TimeoutExpired:
        return "it does not end"
    if run.returncode == 0:
        return None
    sanitizer = re.search(r"AddressSanitizer: \S+", run.stderr)
    failed = re.search(r"\[  FAILED  \] ([\w./]+)", run.stdout)
    said = run.stderr.strip().splitlines()
    return (sanitizer[0] if sanitizer else failed[1] if failed else said[0] if said else "it fails")[:110]


class Bench:
    """Objects of everything as it is, and programs with one of the kernels' objects replaced."""

    def __init__(self, scratch, build, tests):
        self.scratch = scratch
        self.libraries = [build / "lib/libloom_layers.a", build / "lib/libweft_layers.a", *LIBRARIES]
        self.types = scratch / "types"
        one_type(self.types)
        parts = [(TESTS / f"emulator/{name}.cc", ["-O2"]) for name in ("emulator", "fiber")]
        for test in tests:
            kernels = KERNELS_OF[test]
            parts += [(TESTS / f"{test}.cc", [])] + [(KERNELS / f"{name}.cu", []) for name in kernels]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for said in pool.map(lambda part: compile_one(part[0], scratch / f"{part[0].stem}.o", [self.types], part[1]), parts):
                if said:
                    sys.exit(said)

    def link(self, test, replaced, target):
        """What is replaced comes first: of templates that several objects have, the linker keeps the first copy."""
        own = [self.scratch / f"{name}.o" for name in ("emulator", "fiber", test, *KERNELS_OF[test]) if name not in replaced]
        subprocess.run(["g++", "-fsanitize=address", *replaced.values(), *own, *self.libraries, "-o", target], check=True)
        return target

    def try_mutation(self, file, seen_by, old, new, number):
        """(Whether the script can be trusted, why a test failed or None)."""
        text = (KERNELS / file).read_text()
        if text.count(old) != 1:
            return False, f"it is there {text.count(old)} times"
        folder = self.scratch / f"{file}.{number}"
        (folder / "device/cuda/kernels").mkdir(parents=True)
        (folder / "device/cuda/kernels" / file).write_text(text.replace(old, new))
        test, kernel = seen_by
        said = compile_one(KERNELS / f"{kernel}.cu", folder / "mutant.o", [folder, self.types])
        if said:
            return False, "it does not compile: " + said[:800]
        reason = noticed(self.link(test, {kernel: folder / "mutant.o"}, folder / "program"))
        shutil.rmtree(folder)
        return True, reason


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=Path)
    parser.add_argument("names", nargs="*", default=list(MUTATIONS))
    parser.add_argument("--only", default="", help="mutations of lines with this text alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    chosen = []
    for file in arguments.names:
        for mutation in MUTATIONS[file]:
            seen_by, old, new = mutation if len(mutation) == 3 else (SEEN_BY[file], *mutation)
            if arguments.only in old:
                chosen.append((file, seen_by, old, new))
    tests = sorted({seen_by[0] for _, seen_by, _, _ in chosen})
    scratch = Path(tempfile.mkdtemp(prefix="kernel-mutations-"))
    bench = Bench(scratch, arguments.build, tests)
    for test in tests:
        if reason := noticed(bench.link(test, {}, scratch / f"{test}.program")):
            sys.exit(f"{test} fails without any mutation: {reason}")
    caught = wrong = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        jobs = {pool.submit(bench.try_mutation, *each, number): (each[0], *each[2:]) for number, each in enumerate(chosen)}
        for job in concurrent.futures.as_completed(jobs):
            (trusted, reason), (file, old, new) = job.result(), jobs[job]
            same = trusted and reason is None and (file, old) in SAME
            caught += trusted and reason is not None
            wrong += not same and (not trusted or reason is None)
            verdict = "same" if same else "CANNOT" if not trusted else "caught" if reason else "MISSED"
            print(f"{verdict:7} {file}: {old!r} -> {new!r}{': ' + reason if reason else ''}", flush=True)
    shutil.rmtree(scratch)
    print(f"{caught} of {caught + wrong} mutations are noticed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
