"""An AllGather over four nodes of two ranks: all-to-all takes one hop between nodes, a ring a hop for each rank."""
import math

from pictures.svg import Canvas

NODES, RANKS = 4, 2


def places(cx, cy, radius):
    """The corner of each node, clockwise from the upper left, and of each of its ranks."""
    corners = [(cx - radius, cy - radius), (cx + radius, cy - radius), (cx + radius, cy + radius), (cx - radius, cy + radius)]
    return corners, [[(x - 30 + 60 * (rank if node in (0, 1) else 1 - rank), y) for rank in range(RANKS)]
                     for node, (x, y) in enumerate(corners)]


def draw_nodes(out, corners):
    for node, (x, y) in enumerate(corners):
        out.box(x - 56, y - 30, 112, 60)
        out.text(x, y - 38 if node < 2 else y + 48, f"node {node}", "soft", 12, "middle")


def draw_ranks(out, ranks):
    for node, its in enumerate(ranks):
        for rank, (x, y) in enumerate(its):
            out.dot(x, y, 13, "blue", hollow=True)
            out.text(x, y + 5, str(node * RANKS + rank), size=13, anchor="middle")


def shortened(start, end, by):
    (x1, y1), (x2, y2) = start, end
    length = math.hypot(x2 - x1, y2 - y1)
    dx, dy = (x2 - x1) / length * by, (y2 - y1) / length * by
    return x1 + dx, y1 + dy, x2 - dx, y2 - dy


def draw():
    out = Canvas(920, 420, "AllGather over 4 nodes of 2 ranks: all-to-all beside a ring",
                 "All-to-all: each rank puts its shard to its rail peers on all other nodes at once. Ring: each rank passes shards to the next rank.")
    for cx, title, words in ((230, "all-to-all", "1 hop between nodes; a shard crosses only to nodes that lack it"),
                             (690, "ring", "7 hops; every shard crosses every border between nodes")):
        out.text(cx, 26, title, size=17, anchor="middle", bold=True)
        out.text(cx, 46, words, "soft", 13, "middle")
    corners, ranks = places(230, 215, 105)
    draw_nodes(out, corners)
    x1, y1, x2, y2 = shortened(ranks[0][0], ranks[1][0], 15)
    out.curve(x1 - 8, y1 - 13, x2 + 6, y2 - 14, 26, "blue", 2)  # past rank 1
    for node in (2, 3):
        out.line(*shortened(ranks[0][0], ranks[node][0], 15), "blue", 2, arrow=True)
    for node in range(NODES):
        out.line(*shortened(ranks[node][0], ranks[node][1], 14), "orange", 2, arrow=True)
    draw_ranks(out, ranks)
    corners, ranks = places(690, 215, 105)
    draw_nodes(out, corners)
    order = [place for its in ranks for place in its]
    for number, start in enumerate(order):
        inside = number % RANKS == 0
        out.line(*shortened(start, order[(number + 1) % len(order)], 15), "orange" if inside else "blue", 2, arrow=True)
    draw_ranks(out, ranks)
    out.line(60, 404, 100, 404, "blue", 2, arrow=True)
    out.text(108, 409, "between nodes (all-to-all: the puts of rank 0; every rank does the same)", "soft", 12)
    out.line(600, 404, 640, 404, "orange", 2, arrow=True)
    out.text(648, 409, "inside a node", "soft", 12)
    return out
