"""Ratios of many cells on a logarithmic axis: for each name the geometric mean as a dot, slowest to fastest cell as a line."""
import math

from pictures.svg import Canvas


def ranges(title, text, note, caption, cells, ticks):
    """`cells` is {name: ratios}; the first and the last of `ticks` bound the axis, and 1 is marked "as fast"."""
    out = Canvas(860, 60 + 30 * len(cells) + 62, title, text)
    left, right, top, least, greatest = 270, 810, 52, ticks[0], ticks[-1]
    bottom = top + 30 * len(cells)

    def x(ratio):
        ratio = min(max(ratio, least), greatest)
        return left + (right - left) * math.log(ratio / least) / math.log(greatest / least)

    out.text(10, 22, title, size=16, bold=True)
    out.text(850, 22, note, "soft", 12, "end")
    for tick in ticks:
        out.line(x(tick), top - 8, x(tick), bottom, "orange" if tick == 1 else "line", 1.5 if tick == 1 else 0.5, dashed=tick != 1)
        out.text(x(tick), bottom + 18, f"{tick:g}×", "orange" if tick == 1 else "soft", 12, "middle")
    out.text(x(1), bottom + 36, "equally fast", "orange", 12, "middle")
    for number, (name, ratios) in enumerate(cells.items()):
        y = top + 30 * number + 12
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        out.text(left - 14, y + 5, name, size=13, anchor="end")
        out.line(x(min(ratios)), y, x(max(ratios)), y, "blue", 2)
        out.dot(x(mean), y, 6)
        out.text(x(mean), y - 9, f"{mean:.3g}", "blue", 12, "middle", True)
    out.text(10, bottom + 56, f"Dot: geometric mean of all cells. Line: slowest to fastest cell. {caption}", "soft", 12)
    return out
