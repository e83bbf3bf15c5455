"""Bars of ratios, group by group, over a mark at 1."""
from pictures.svg import Canvas

ROW, GAP = 24, 16


def bars(title, text, caption, groups, most):
    """`groups` are (name, [(label, ratio, said)]); `most` is the ratio at the right border."""
    height = 62 + sum(ROW * len(rows) + GAP + 20 for _, rows in groups) + 24
    out = Canvas(860, height, title, text)
    left, right, y = 270, 800, 62
    out.text(10, 24, title, size=16, bold=True)
    x = lambda ratio: left + (right - left) * min(ratio, most) / most  # noqa: E731
    top = y
    for name, rows in groups:
        out.text(10, y + 12, name, size=13, bold=True)
        y += 20
        for label, ratio, said in rows:
            out.text(left - 12, y + 15, label, "soft", 13, "end")
            out.box(left, y + 2, x(ratio) - left, ROW - 6, "tint", "blue")
            out.text(x(ratio) + 8, y + 15, said, "blue", 13, bold=True)
            y += ROW
        y += GAP
    out.line(x(1), top, x(1), y - GAP + 4, "orange", 1.5, dashed=True)
    out.text(x(1), top - 10, "equally fast", "orange", 12, "middle")
    out.text(10, y + 8, caption, "soft", 12)
    return out
