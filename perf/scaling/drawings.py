"""Charts that stand alone, as files beside a page."""
from __future__ import annotations

from comparison.charts import HEIGHT, WIDTH, Series, chart

from .field import Field
from .simulator import MESH, TITLES, TREES, size_text

# For light and for dark pages; readers who are colour-blind can tell them apart (after Okabe and Ito).
COLOURS = ["#0072b2", "#c04a00", "#00805d", "#a8487d", "#8a6500", "#007a99"]
DARK_COLOURS = ["#56b4e9", "#ff8c42", "#2ecc9a", "#e79ac4", "#f0c33c", "#5fd3e8"]


def _rules(colours: list[str], soft: str, ink: str, grid: str, back: str) -> str:
    lines = "".join(f".line.s{i},.key.s{i}{{stroke:{c}}}.dot.s{i}{{fill:{c}}}" for i, c in enumerate(colours))
    return (f"text,.unit{{fill:{soft}}}.title{{fill:{ink}}}.grid{{stroke:{grid}}}.one{{stroke:{soft}}}.back{{fill:{back}}}" + lines)


STYLE = ("text{font:10.5px system-ui,sans-serif}.title{font-size:12px;font-weight:600}.unit{font-weight:400}"
         ".one{stroke-dasharray:4 3}.line{fill:none;stroke-width:2}" +
         _rules(COLOURS, "#59636e", "#1f2328", "#d1d9e0", "#fff") +
         "@media (prefers-color-scheme:dark){" + _rules(DARK_COLOURS, "#9198a1", "#f0f6fc", "#3d444d", "#0d1117") + "}")


def svg(title: str, unit: str, series: list[Series], mark_one: bool = False) -> str:
    """A chart with its key below."""
    inner = chart(title, unit, series, mark_one).replace("<svg ", f'<svg width="{WIDTH}" height="{HEIGHT}" ', 1)
    step = (WIDTH - 52) / max(len(series), 1)
    key = "".join(f'<line class="key {one.colour}" stroke-width="3" x1="{40 + i * step:.0f}" x2="{54 + i * step:.0f}" '
                  f'y1="{HEIGHT + 8}" y2="{HEIGHT + 8}"/><text x="{58 + i * step:.0f}" y="{HEIGHT + 12}">{one.name}</text>'
                  for i, one in enumerate(series))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT + 24}" width="{WIDTH * 3 // 2}">'
            f'<style>{STYLE}</style><rect class="back" width="100%" height="100%"/>{inner}{key}</svg>\n')


def names_of(field: Field) -> dict[str, str]:
    tree = TREES[field.collective]
    return {MESH: "all-to-all", "ring": "ring", tree: tree.replace("_", " ")}


def gain_chart(field: Field) -> str:
    shown = [nodes for nodes in (2, 8, 32, 128, 512) if nodes in field.nodes]
    return svg(f"{TITLES[field.collective]}: all-to-all against the best other", "times faster",
               [Series(f"{nodes} nodes", f"s{i}", [(size, field.gain(nodes, size)) for size in field.sizes_of(nodes)])
                for i, nodes in enumerate(shown)], mark_one=True)


def times_chart(field: Field, nodes: int) -> str:
    """Each way's time over size."""
    return svg(f"{TITLES[field.collective]} on {nodes} nodes, over size", "µs",
               [Series(title, f"s{i}", [(size, field.us[nodes, size][name]) for size in field.sizes_of(nodes)
                                        if name in field.us[nodes, size]])
                for i, (name, title) in enumerate(names_of(field).items())])


def rate_chart(field: Field, size: int) -> str:
    return svg(f"{TITLES[field.collective]} of {size_text(size)}: share of the line rate, over nodes", "%",
               [Series(title, f"s{i}", [(nodes, 100 * field.line[nodes, size] / field.us[nodes, size][name])
                                        for nodes in field.nodes if name in field.us.get((nodes, size), {})])
                for i, (name, title) in enumerate(names_of(field).items())])


def bucket_chart(us: dict[tuple[int, int, str], float], total: int) -> str:
    nodes, sizes = sorted({key[0] for key in us}), sorted({key[1] for key in us})
    return svg(f"All-to-all AllReduce of {size_text(total)}, cut into buckets of …", "ms",
               [Series(f"{count} nodes", f"s{i}", [(size, us[count, size, MESH] / 1e3) for size in sizes])
                for i, count in enumerate(nodes)])
