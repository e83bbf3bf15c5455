"""The layers of Weft, and what stands on its header."""
from pictures.svg import Canvas

LAYERS = [
    ("api", "the C functions: check, convert, call"),
    ("job", "create, split and shrink communicators; measure the machine"),
    ("engine", "run operations: contexts, step loops, progress, failures, recorder"),
    ("model", "cost model, simulator, tuner"),
    ("plan", "steps, generators (one file an algorithm), verifier"),
    ("transport", "puts and messages: shared memory, TCP, libfabric"),
    ("bootstrap", "rendezvous, liveness, launchers"),
    ("topology", "this host; which rank is on which node"),
    ("nccl", "NCCL, opened at run time"),
    ("device", "memory and arithmetic: host and CUDA"),
    ("base", "errors, log, settings, threads"),
]
USERS = ["Loom", "PyTorch backend", "NCCL shim", "perf tools", "your program"]
HEIGHT = 30


def draw():
    bottom = 110 + (HEIGHT + 4) * len(LAYERS)
    out = Canvas(920, bottom + 40, "The layers of Weft", "Each layer depends only on the layers below it. Programs use weft.h alone.")
    for number, name in enumerate(USERS):
        x = 10 + 182 * number
        out.box(x, 10, 172, 36, "warm", "orange")
        out.text(x + 86, 33, name, "orange", 14, "middle", True)
    out.box(10, 60, 900, 34, "tint", "blue")
    out.text(460, 82, "include/weft/weft.h: the whole public surface", "blue", 14, "middle", True)
    for number, (name, words) in enumerate(LAYERS):
        y = 108 + (HEIGHT + 4) * number
        out.box(10, y, 900, HEIGHT)
        out.text(24, y + 20, name, size=14, bold=True)
        out.text(130, y + 20, words, "soft", 13)
    out.text(10, bottom + 24, "A layer includes only layers below it. scripts/check_layers.py compares the includes with the table of layers.", "soft", 12)
    return out
