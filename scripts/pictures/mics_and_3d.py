"""How Loom divides ranks: MiCS groups of sharded data parallelism, and a layout of data, pipeline and tensor ranks."""
from pictures.svg import Canvas

NODES, RANKS = 2, 4


def draw():
    out = Canvas(920, 430, "MiCS groups and a 3D layout of 8 ranks",
                 "Left: 8 ranks on 2 nodes, partition groups of 4 share one copy of the state, replication groups of 2 hold equal slices. "
                 "Right: 2 data ranks, 2 stages and 2 tensor ranks.")
    out.text(10, 26, "MiCS: p = 4", size=17, bold=True)
    out.text(10, 46, "a partition group shares one copy of the state", "soft", 13)
    for node in range(NODES):
        y = 80 + 150 * node
        out.box(10, y, 420, 92, "tint", "blue")
        out.text(22, y + 20, f"node {node}: partition group {node}", "blue", 13, bold=True)
        for rank in range(RANKS):
            x = 30 + 100 * rank
            out.box(x, y + 32, 80, 46)
            out.text(x + 40, y + 51, f"rank {node * RANKS + rank}", size=13, anchor="middle")
            out.text(x + 40, y + 69, f"slice {rank}", "soft", 12, "middle")
    for rank in range(RANKS):
        x = 70 + 100 * rank
        out.line(x, 173, x, 229, "orange", 2, dashed=True)
    out.text(10, 352, "AllGather and ReduceScatter, each microbatch: partition groups", "blue", 13)
    out.text(10, 374, "AllReduce, once a step: replication groups (dashed)", "orange", 13)
    out.text(10, 396, "p = 1: plain data parallelism. p = all ranks: ZeRO-3.", "soft", 13)
    left = 490
    out.text(left, 26, "3D: D = 2, P = 2, T = 2 (DPT)", size=17, bold=True)
    out.text(left, 46, "the rightmost letter varies fastest over neighbouring ranks", "soft", 13)
    for data in range(2):
        y = 80 + 150 * data
        out.box(left, y, 420, 112)
        out.text(left + 12, y + 20, f"node {data}: data rank {data}", size=13, bold=True)
        for stage in range(2):
            x = left + 16 + 214 * stage
            out.box(x, y + 30, 174, 70, "warm", "orange")
            out.text(x + 10, y + 47, f"stage {stage}", "orange", 12, bold=True)
            for tensor in range(2):
                out.box(x + 10 + 78 * tensor, y + 54, 74, 36)
                out.text(x + 47 + 78 * tensor, y + 77, f"rank {data * 4 + stage * 2 + tensor}", size=12, anchor="middle")
        out.line(left + 192, y + 65, left + 226, y + 65, "blue", 2, arrow=True)
    for stage in range(2):
        out.line(left + 103 + 214 * stage, 193, left + 103 + 214 * stage, 229, "blue", 2, dashed=True)
    out.text(left, 374, "arrow: activations; dashed: gradients of equal stages", "blue", 13)
    out.text(left, 396, "orange box: tensor ranks, which share the work on each layer", "orange", 13)
    return out
