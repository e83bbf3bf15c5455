"""The idea of Weft: one plan, which four programs read."""
from pictures.svg import Canvas

READERS = [
    ("verify", "every element holds its contributions;", "no deadlock, no early read"),
    ("simulate", "time on up to 512 nodes,", "on a laptop"),
    ("execute", "host memory or GPU memory,", "over any transport"),
    ("trace", "predicted beside measured,", "on one timeline"),
]
STEPS = ["put   slice 0 to rank 4", "wait  slice 0 of rank 4", "reduce into output", "copy  to local ranks", "signal rank 1"]


def draw():
    out = Canvas(920, 300, "One plan, four readers",
                 "A generator makes a plan, a list of steps. The verifier, the simulator, the step loop and the trace read the same plan.")
    out.box(10, 85, 190, 130)
    out.text(105, 112, "generator", size=16, anchor="middle", bold=True)
    for number, words in enumerate(["one file an algorithm:", "all-to-all, ring, tree, …", "a pure function of", "request, topology, rank"]):
        out.text(105, 137 + 19 * number, words, "soft", 13, "middle")
    out.line(205, 150, 260, 150, "blue", 2, arrow=True)
    out.box(265, 60, 215, 180, "tint", "blue")
    out.text(372, 88, "plan", "blue", 16, "middle", True)
    for number, words in enumerate(STEPS):
        out.text(285, 118 + 22 * number, words, size=13)
    out.text(372, 260, "a list of steps, plain data", "soft", 13, "middle")
    for number, (verb, first, second) in enumerate(READERS):
        y = 8 + 73 * number
        out.line(485, 150, 548, y + 32, "blue", 2, arrow=True)
        out.box(553, y, 357, 64)
        out.text(568, y + 38, verb, size=16, bold=True)
        out.text(662, y + 27, first, "soft", 12)
        out.text(662, y + 45, second, "soft", 12)
    return out
