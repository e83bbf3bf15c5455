"""The table of what is to be measured on a GPU, in the order of importance: of two steps, the first is the one that a run of
half the length should have done.

A command's words may name {bin}, {lib}, {root} and {driver}, and what is smaller on the tests' driver (SIZES).
"""
from dataclasses import dataclass, field
from typing import Callable

from gpu import readers

GROUPS = {
    "environment": "Environment",
    "step 0": "What stopped, or was left open, the last time",
    "latency": "Latency and bandwidth, ranks being threads of a process",
    "plan kernel": "Short collectives as one kernel (WEFT_CUDA_KERNEL=on), ranks being threads of a process",
    "copy path": "Long collectives as copies on the caller's stream (WEFT_CUDA_COPY_BYTES), beside step by step, ranks being threads",
    "failures": "Abort and deadline",
    "correctness": "Correctness",
    "losses": "Loom: operators, gradients and losses on the GPU beside those on CPUs",
    "training": "Loom: training steps beside PyTorch's, and what they are made of",
    "tools": "Loom: kernels under CUDA's tools",
    "processes": "Ranks as processes, which take turns on the GPU",
    "NCCL": "NCCL on the same card",
    "multiprocessors": "Who needs multiprocessors",
    "rest": "What remains",
}
# On a GPU, and on the tests' driver, which is slow and works on host memory.
SIZES = {
    "64K": ("65536", "65536"),
    "1M": ("1048576", "262144"),
    "16M": ("16777216", "524288"),
    "256M": ("268435456", "1048576"),
    "largest": ("256M", "64K"),
    "most": ("4M", "512"),
    "longest": ("128M", "512"),
    "operations": ("1000000", "256"),
    "calls": ("5000", "1500"),
    "seconds": ("45", "5"),
    "collectives": ("", "all_reduce"),
    # Loom's and PyTorch's models: GPT-2 with 124M and with 1.5B parameters.
    "loss steps": ("20", "2"),
    "loss width": ("128", "32"),
    "loss tokens": ("64", "16"),
    "loss families": ("gpt2,gptj,gpt_neox,gpt_neo,bloom,llama,qwen3,bert,roberta,gpt2_packed,llama_packed", "gpt2,llama,bert"),
    "gradient families": ("gpt2,gptj,gpt_neox,gpt_neo,bloom,llama,qwen3,bert,roberta", "gpt2,llama"),
    "gradient parameters": ("0", "2"),
    "context": ("1024", "32"),
    "vocabulary": ("50257", "500"),
    "gpt2 layers": ("12", "1"),
    "gpt2 width": ("768", "64"),
    "gpt2 heads": ("12", "1"),
    "gpt2 batch": ("64", "2"),
    "gpt2 steps": ("30", "2"),
    "gpt2-xl layers": ("48", "2"),
    "gpt2-xl width": ("1600", "64"),
    "gpt2-xl heads": ("25", "1"),
    "gpt2-xl batch": ("16", "2"),
    "gpt2-xl steps": ("8", "2"),
    "cube": ("8192", "64"),
    "copy": ("1073741824", "65536"),
    "repeats": ("20", "2"),
    # Filters of test_cuda, for several steps: a test that hangs keeps the others of its step from running.
    "graphs": ("*Graph*", "GraphCalls.*"),
    "layouts": ("*DeviceLayouts*", "*DeviceLayouts*/0011"),
    "operators": ("TypedGpuOperators*:FusedGpuOperators*:Fp32GpuOperators*:GpuModels*", "TypedGpuOperators/1.*Layer*"),
    "processes": ("*Process*", "CollectivesOfProcessesDeathTest*"),
    "others": ("-*Graph*:*DeviceLayouts*:*Process*:MissingDeathTest*:FakeDeathTest*:GpuDirect*", "DeviceTypes*"),
}


@dataclass(frozen=True)
class Step:
    name: str
    group: str
    limit_s: int  # after which it is ended
    usual_s: int  # it is not begun with less than this left
    asks: str     # what it answers
    command: tuple
    read: Callable
    needs: tuple = ()
    environment: dict = field(default_factory=dict)


ALL = []
# CUDA's, which a machine may lack: by their names here, and as facts.py finds them.
TOOLS = ("compute-sanitizer", "ncu")
# If NCCL cannot load the plugin, it uses its sockets and says so in its log only. So each run fixes the transport.
OWN_SOCKETS = {"NCCL_NET_PLUGIN": "none", "NCCL_NET": "Socket"}
OVER_PLUGIN = {"NCCL_NET_PLUGIN": "weft", "NCCL_NET": "Weft"}
OF_TESTS = {"WEFT_TUNE": "off"}
# The tests' driver has room for few kernels that wait for each other.
IN_KERNELS = {"WEFT_CUDA_KERNEL": "on", "FAKE_CUDA_MULTIPROCESSORS": "64"}
# As a user has it, where the tuner decides; and for every message.
BY_COPIES = {"WEFT_CUDA_COPY_BYTES": "64M"}
ALL_BY_COPIES = {"WEFT_CUDA_COPY_BYTES": "64M", "WEFT_CUDA_COPY_FROM": "1"}


def step(name, group, limit_s, usual_s, asks, command, read, needs=(), **environment):
    ALL.append(Step(name, group, limit_s, usual_s, asks, tuple(command), read, tuple(needs), environment))


def launched(ranks, *words):
    """The ranks' labels would stand before the tables' numbers."""
    return ["{bin}/weft_run", "-n", str(ranks), "--timeout", "100", "--no-label", *words]


def as_hosts(ranks, *words):
    """NCCL takes ranks that share a GPU only if it takes them for hosts."""
    return launched(ranks, "sh", "-c", "NCCL_HOSTID=host$WEFT_RANK exec " + " ".join(words))


def perf(collective, *words):
    return [f"{{bin}}/{collective}_perf", "--device", "cuda", *words]


def beside_threads(collective):
    step(f"beside_{collective}_threads", "multiprocessors", 60, 12,
         f"What a matrix product loses beside {collective} of 256 MiB, ranks being threads",
         ["{bin}/gpu_probe", "beside", "threads", collective, "{256M}"], readers.per_cent, ["CUDA's runtime"])


def of_tests(name, limit_s, usual_s, asks):
    step(f"tests_{name}", "correctness", limit_s, usual_s, asks, ["{bin}/test_cuda", f"--gtest_filter={{{name}}}"],
         readers.google_tests, **OF_TESTS)


def of_model(model):
    """The options of loom_step and of torch_gpt2.py for one of the two models."""
    return [*of_shape(model), "--steps", f"{{{model} steps}}"]


def of_shape(model):
    """Those of loom_probe, too."""
    words = ["--tokens", "{context}"]
    for name in ("layers", "width", "heads", "batch"):
        words += [f"--{name}", f"{{{model} {name}}}"]
    return words


# Loom's steps of one rank wait for no peer. So kernels may be loaded when they are first used, and cuBLASLt's thousands need not
# all be loaded, which Weft asks for otherwise.
ALONE = {"CUDA_MODULE_LOADING": "LAZY"}


def loom_step(name, model, limit_s, usual_s, *words, asks="", needs=()):
    step(f"loom_{name}", "training", limit_s, usual_s, asks or f"Loom's steps of GPT-2 {name} in bf16",
         ["{bin}/loom_step", "--gpu", "0", "--precision", "bf16", *words, "--vocabulary", "{vocabulary}", *of_model(model), "--kernels"],
         readers.training, ["Loom's kernels", *needs], **ALONE)


def sanitized(name, tool, asks, *words):
    step(name, "tools", 60, 15, asks,
         ["{compute-sanitizer}", "--tool", tool, "--kernel-name", "kns=loom_", "--error-exitcode", "3", *words], readers.errors,
         ["compute-sanitizer", "Loom's kernels"], **ALONE)


def collectives(ranks):
    step(f"collectives_{ranks}", "correctness", 90, 45,
         f"Every collective of {ranks} processes that share the GPU, as one node and as two",
         ["{root}/tests/gpu/every_collective.sh", "{bin}", str(ranks), "{collectives}"], readers.every_collective,
         MOST="{most}", **OF_TESTS)


# ---- environment; the facts themselves are a step that every run begins with (quarter_hour.py) ----
step("weft_info", "environment", 30, 5, "What the driver and the device offer to Weft", ["{bin}/weft_info", "--cuda"], readers.lines)

# ---- first signs of Loom, whose kernels and products no GPU has run: the rest of Loom's steps follows below ----
step("operators", "losses", 90, 20, "Operators and tiny models in each element type, outputs poisoned: the CPU's numbers?",
     ["{bin}/test_loom_device", "--gtest_filter={operators}"], readers.google_tests, ["Loom's kernels"])
step("gradients", "losses", 60, 20, "Gradients of tiny models in fp32: the differences of the loss?",
     ["{bin}/loom_probe", "gradients", "--gpu", "0", "--families", "{gradient families}", "--parameters", "{gradient parameters}"],
     readers.json_rows, ["Loom's kernels"], **ALONE)
loom_step("124M", "gpt2", 60, 20)

# ---- step 0 ----
step("fsdp_over_weft", "step 0", 120, 45,
     "Does PyTorch's FSDP train over the shim, with eager loading, and learn what the unsharded model learns?",
     ["python3", "-B", "{root}/perf/gpu/fsdp.py", "--library", "weft-nccl"], readers.json_rows, ["torch"],
     LD_PRELOAD="{lib}/weft-nccl/libnccl.so.2", WEFT_BACKEND="weft", CUDA_MODULE_LOADING="EAGER", CUDA_DEVICE_MAX_CONNECTIONS="32")
step("waits_behind", "step 0", 60, 35,
     "What waits while another thread is in cudaFree or in a kernel's first launch beside a stream that waits",
     ["{bin}/gpu_waits", "behind"], readers.markdown_table, ["CUDA's runtime"])
step("waits_beside_a_kernel", "step 0", 60, 25, "Which calls return while a kernel spins, cudaIpcOpenMemHandle first of all",
     ["{bin}/gpu_waits", "spins"], readers.markdown_table, ["CUDA's runtime"])

# ---- latency and bandwidth, which processes that share a GPU would not show ----
for ranks in (2, 4):
    for collective in ("all_reduce", "all_gather", "reduce_scatter"):
        step(f"{collective}_{ranks}", "latency", 40, 6, f"{collective} of {ranks} ranks, and by which algorithm",
             ["{bin}/gpu_ranks", "time", str(ranks), collective, "64", "{64K}", "{1M}", "{16M}", "{256M}"], readers.json_rows)
step("all_reduce_8", "latency", 40, 6, "all_reduce of 8 ranks",
     ["{bin}/gpu_ranks", "time", "8", "all_reduce", "64", "{1M}"], readers.json_rows)
step("copy", "latency", 30, 4, "What a copy inside the device takes", ["{bin}/gpu_ranks", "copy", "{256M}"], readers.json_rows)
step("flag", "latency", 30, 4, "The round trip between a stream and a CPU thread, by flags",
     ["{bin}/gpu_ranks", "flag"], readers.json_rows)
step("full_stream", "latency", 20, 5, "Do more calls end than a stream holds, which wait in the driver for room?",
     ["{bin}/gpu_ranks", "time", "2", "all_reduce", "64", "--calls", "{calls}"], readers.json_rows)
for ranks in (2, 4):
    step(f"graph_{ranks}", "latency", 40, 5, f"all_reduce of {ranks} ranks in a CUDA graph of 20 calls",
         ["{bin}/gpu_ranks", "time", str(ranks), "all_reduce", "64", "--graph", "20"], readers.json_rows)
for blocks in (1, 4, 64):
    step(f"blocks_{blocks}", "latency", 30, 5, f"reduce_scatter with at most {blocks} thread blocks for a rank (16 is usual)",
         ["{bin}/gpu_ranks", "time", "2", "reduce_scatter", "{256M}"], readers.json_rows, WEFT_CUDA_BLOCKS=str(blocks))

# ---- the plan kernel: each result says by which algorithm it ran, "one_hop_kernel" or "direct_kernel" where it was the kernel ----
step("kernel_tests", "plan kernel", 60, 5, "Do collectives run as one kernel, in graphs too, and end when a rank is missing?",
     ["{bin}/test_cuda", "--gtest_filter=*PlanPath*-*Processes*"], readers.google_tests, **OF_TESTS, **IN_KERNELS)
for ranks in (2, 4):
    for collective in ("all_reduce", "all_gather"):
        step(f"kernel_{collective}_{ranks}", "plan kernel", 40, 5, f"{collective} of {ranks} ranks as one kernel",
             ["{bin}/gpu_ranks", "time", str(ranks), collective, "64", "{64K}"], readers.json_rows, **IN_KERNELS)
step("kernel_graph_2", "plan kernel", 40, 5, "all_reduce of 2 ranks in a CUDA graph of 20 calls, each a kernel of the graph",
     ["{bin}/gpu_ranks", "time", "2", "all_reduce", "64", "--graph", "20"], readers.json_rows, **IN_KERNELS)
step("kernel_abort", "plan kernel", 40, 5, "How soon the stream goes on after weftCommAbort, from a kernel that waits",
     ["{bin}/gpu_ranks", "abort"], readers.json_rows, **OF_TESTS, **IN_KERNELS)
step("kernel_deadline", "plan kernel", 40, 5, "How soon a kernel ends whose peer never comes", ["{bin}/gpu_ranks", "deadline"],
     readers.json_rows, **OF_TESTS, **IN_KERNELS)
step("kernel_small_operations", "plan kernel", 90, 50, "Are 10^6 small operations with random delays right as kernels?",
     ["{bin}/gpu_ranks", "random", "2", "{operations}", "--seconds", "{seconds}"], readers.json_rows, **IN_KERNELS)

# ---- copies on the stream: each result says by which algorithm it ran, "copy_engines" where it was this path; the same
# lengths step by step are all_gather_2 and all_gather_4 above ----
step("copies_tests", "copy path", 90, 10, "Are long collectives right as copies on the stream, and do they end when a rank is missing?",
     ["{bin}/test_cuda", "--gtest_filter=CopyPath.*-*256MiB*"], readers.google_tests, **OF_TESTS,
     WEFT_CUDA_COPY_BYTES="64K", WEFT_CUDA_COPY_FROM="1")
for ranks in (2, 4):
    step(f"copies_all_gather_{ranks}", "copy path", 40, 5, f"all_gather of {ranks} ranks as copies on the stream",
         ["{bin}/gpu_ranks", "time", str(ranks), "all_gather", "{64K}", "{1M}", "{16M}", "{256M}"], readers.json_rows, **ALL_BY_COPIES)
step("tuned_all_gather_4", "copy path", 40, 5, "The same of 4 ranks where the tuner chooses the path",
     ["{bin}/gpu_ranks", "time", "4", "all_gather", "{64K}", "{1M}", "{16M}", "{256M}"], readers.json_rows, **BY_COPIES)
for end, asks in (("abort", "How soon the stream goes on after weftCommAbort, while it waits for a peer's copies"),
                  ("deadline", "How soon it goes on when the peer never comes")):
    step(f"copies_{end}", "copy path", 40, 5, asks, ["{bin}/gpu_ranks", end, "all_gather"], readers.json_rows, **OF_TESTS, **ALL_BY_COPIES)
step("copies_beside_all_gather", "copy path", 60, 12,
     "What a matrix product loses beside all_gather of 256 MiB as copies on the stream, ranks being threads",
     ["{bin}/gpu_probe", "beside", "threads", "all_gather", "{256M}"], readers.per_cent, ["CUDA's runtime"], **ALL_BY_COPIES)

# ---- failures ----
step("abort", "failures", 40, 5, "How soon the stream goes on after weftCommAbort", ["{bin}/gpu_ranks", "abort"], readers.json_rows,
     **OF_TESTS)
step("deadline", "failures", 40, 5, "How soon the stream goes on when a peer never comes", ["{bin}/gpu_ranks", "deadline"], readers.json_rows,
     **OF_TESTS)

beside_threads("all_gather")

# ---- Loom: do tiny models have the CPU's losses, and how fast are large ones? PyTorch's steps follow Loom's of the same size ----
for precision in ("fp32", "bf16"):
    step(f"losses_{precision}", "losses", 120, 45, f"Tiny models of each family in {precision}: the CPU's losses?",
         ["python3", "-B", "{root}/perf/gpu/loom_losses.py", "{bin}/loom", "--steps", "{loss steps}", "--width", "{loss width}",
          "--tokens", "{loss tokens}", "--families", "{loss families}", "--precisions", precision], readers.json_rows, ["Loom's kernels"], **ALONE)
step("cudnn_attention", "losses", 40, 10, "cuDNN's attention on the GPU: the CPU's results in double?",
     ["{bin}/test_loom_device", "--gtest_filter=TypedGpuAttention/0.Padded*:TypedGpuAttention/0.ADeterministic*"], readers.google_tests,
     ["Loom's kernels", "cuDNN"])
loom_step("124M_cudnn", "gpt2", 60, 15, "--attention", "cudnn", asks="Loom's steps of GPT-2 124M in bf16, with cuDNN's attention", needs=["cuDNN"])
loom_step("1.5B", "gpt2-xl", 120, 45)
for model, size, eager_s, compiled_s in (("gpt2", "124M", 25, 60), ("gpt2-xl", "1.5B", 40, 75)):
    for mode, usual_s in (("eager", eager_s), ("compiled", compiled_s)):
        step(f"torch_{mode}_{size}", "training", 2 * usual_s, usual_s, f"PyTorch's steps of GPT-2 {size} in bf16, {mode}",
             ["python3", "-B", "{root}/perf/gpu/torch_gpt2.py", mode, *of_model(model)], readers.training, ["torch"])
for model, size, usual_s in (("gpt2", "124M", 15), ("gpt2-xl", "1.5B", 20)):
    step(f"ceilings_{size}", "training", 60, usual_s, f"What a step of GPT-2 {size} in bf16 is made of, each alone: the best there is",
         ["{bin}/loom_probe", "ceilings", "--vocabulary", "{vocabulary}", "--cube", "{cube}", "--copy", "{copy}", "--repeats", "{repeats}",
          *of_shape(model)], readers.json_rows, ["Loom's kernels"], **ALONE)
for tool, asks in (("memcheck", "an access out of bounds"), ("racecheck", "a race in shared memory")):
    sanitized(f"{tool}_step", tool, f"Does {tool} find {asks} in a step in bf16?", "{bin}/loom_step", "--gpu", "0", "--precision", "bf16",
              "--layers", "1", "--width", "128", "--heads", "2", "--tokens", "200", "--batch", "2", "--vocabulary", "500", "--dropout",
              "0.1", "--steps", "1")
    sanitized(f"{tool}_families", tool, f"Does {tool} find {asks} in tiny models of each family in fp32?", "{bin}/loom_probe",
              "gradients", "--gpu", "0", "--layers", "1", "--batch", "2", "--parameters", "1")
# Kernels of cuBLASLt are left out: ceilings have them.
step("ncu", "tools", 90, 40, "What limits each kernel of a step of two blocks of GPT-2 124M",
     ["{ncu}", "--clock-control", "none", "--kernel-name", "regex:loom_", "--launch-count", "100", "--csv", "--page", "raw", "--print-units",
      "base", "--metrics", ",".join(readers.NCU_METRICS), "{bin}/loom_step", "--gpu", "0", "--precision", "bf16", "--layers", "2",
      "--batch", "16", "--tokens", "1024", "--steps", "1"], readers.ncu, ["ncu", "Loom's kernels"], **ALONE)

# ---- correctness ----
of_tests("graphs", 90, 30, "Does a capture take cuStreamWaitValue32, and do graphs give the right results?")
step("small_operations", "correctness", 90, 50, "Are 10^6 small operations with random delays right, or as many as 45 s hold?",
     ["{bin}/gpu_ranks", "random", "2", "{operations}", "--seconds", "{seconds}"], readers.json_rows)
of_tests("others", 90, 40, "The tests of GPU memory on the real driver: types, failures, what is given back")
of_tests("layouts", 90, 40, "Every collective over layouts of ranks as threads")
of_tests("processes", 60, 20, "Ranks as processes, through CUDA IPC")
collectives(2)

# ---- processes ----
EIGHT = ["-b", "8", "-e", "8", "-c", "0"]
step("eight_bytes", "processes", 40, 8, "all_reduce of 8 bytes", launched(2, *perf("all_reduce", *EIGHT, "-n", "100")), readers.perf_table)
step("eight_bytes_in_a_graph", "processes", 40, 8, "The same in a graph of 20 calls",
     launched(2, *perf("all_reduce", *EIGHT, "-n", "20", "-G", "5")), readers.perf_table)
LONG = ["-b", "{largest}", "-e", "{largest}", "-n", "10", "-w", "2", "-c", "0"]
for collective in ("all_gather", "all_reduce"):
    for ranks in (2, 4, 8):
        step(f"{collective}_processes_{ranks}", "processes", 40, 10, f"{collective} of 256 MiB, {ranks} processes",
             launched(ranks, *perf(collective, *LONG)), readers.perf_table)

# ---- NCCL ----
for collective in ("all_reduce", "all_gather"):
    of_nccl = perf(collective, "--backend", "nccl", "-b", "8", "-e", "{largest}", "-f", "32", "-n", "10", "-w", "2")
    step(f"nccl_{collective}", "NCCL", 40, 10, f"NCCL's {collective}, 2 ranks of one host (NCCL from 2.30 on)", launched(2, *of_nccl),
         readers.perf_table, ["NCCL"], NCCL_MULTI_RANK_GPU_ENABLE="1")
    step(f"nccl_{collective}_as_hosts", "NCCL", 40, 15, f"NCCL's {collective}, 2 ranks as hosts over its sockets", as_hosts(2, *of_nccl),
         readers.perf_table, ["NCCL"], **OWN_SOCKETS)
    step(f"nccl_{collective}_over_weft", "NCCL", 40, 15, f"NCCL's {collective}, 2 ranks as hosts over Weft's plugin", as_hosts(2, *of_nccl),
         readers.perf_table, ["NCCL"], **OVER_PLUGIN)
step("fsdp_over_nccl", "NCCL", 120, 45, "FSDP over NCCL, 2 ranks as hosts over its sockets", ["python3", "-B", "{root}/perf/gpu/fsdp.py"],
     readers.json_rows, ["torch"], **OWN_SOCKETS)

# ---- multiprocessors ----
for collective in ("all_gather", "reduce_scatter"):
    step(f"census_{collective}", "multiprocessors", 60, 20, f"Does {collective} end while a kernel holds every multiprocessor?",
         ["{bin}/gpu_probe", "census", collective], readers.yes_or_no, ["CUDA's runtime"])
    if collective != "all_gather":
        beside_threads(collective)
    for backend in ("weft", "nccl"):
        needs = ["CUDA's runtime"] + (["NCCL"] if backend == "nccl" else [])
        step(f"beside_{collective}_{backend}", "multiprocessors", 60, 15,
             f"What it loses beside {backend}'s {collective}, ranks being processes",
             as_hosts(2, "{bin}/gpu_probe", "beside", backend, collective, "{256M}"), readers.per_cent, needs,
             **(OWN_SOCKETS if backend == "nccl" else {}))

# ---- rest ----
collectives(4)
collectives(8)
step("long_collectives", "correctness", 150, 60, "Every collective of 128 MiB, 2 processes, as one node and as two",
     ["{root}/tests/gpu/every_collective.sh", "{bin}", "2", "{collectives}"], readers.every_collective, MOST="{longest}", **OF_TESTS)
step("sanitizer", "rest", 150, 60, "Does compute-sanitizer find an access out of bounds in the kernels?",
     ["{compute-sanitizer}", "--tool", "memcheck", "{bin}/test_cuda", "--gtest_filter=DeviceTypes*"], readers.sanitizer,
     ["compute-sanitizer"], **OF_TESTS)
step("waits", "rest", 150, 90, "Every call while a stream waits; connections; mappings", ["{bin}/gpu_waits"], readers.markdown_table,
     ["CUDA's runtime"])
