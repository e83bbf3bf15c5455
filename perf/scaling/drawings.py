"""Charts that stand alone, as files beside a page."""
from __future__ import annotations

from comparison.charts import HEIGHT, WIDTH, Series, chart

from .field import Field
from .simulator import MESH, TITLES, TREES, size_text

COLOURS = ["#1769aa", "#c2410c", "#2e7d32", "#8e24aa", "#b8860b", "#00838f"]
STYLE = ("text{font:10.5px system-ui,sans-serif;fill:#5b6670}.title{font-size:12px;font-weight:600;fill:#1d2329}"
         ".unit{font-weight:400;fill:#5b6670}.grid{stroke:#dde2e7}.one{stroke:#5b6670;stroke-dasharray:4 3}"
         ".line{fill:none;stroke-width:2}" +
         "".join(f".line.s{i},.key.s{i}{{stroke:{c}}}.dot.s{i}{{fill:{c}}}" for i, c in enumerate(COLOURS)))


def svg(title: str, unit: str, series: list[Series], mark_one: bool = False) -> str:
    """A chart with its key below."""
    inner = chart(title, unit, series, mark_one).replace("<svg ", f'<svg width="{WIDTH}" height="{HEIGHT}" ', 1)
    step = (WIDTH - 52) / max(len(series), 1)
    key = "".join(f'<line class="key {one.colour}" stroke-width="3" x1="{40 + i * step:.0f}" x2="{54 + i * step:.0f}" '
                  f'y1="{HEIGHT + 8}" y2="{HEIGHT + 8}"/><text x="{58 + i * step:.0f}" y="{HEIGHT + 12}">{one.name}</text>'
                  for i, one in enumerate(series))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT + 24}" width="{WIDTH * 3 // 2}">'
            f'<style>{STYLE}</style><rect width="100%" height="100%" fill="#fff"/>{inner}{key}</svg>\n')


def names_of(field: Field) -> dict[str, str]:
    tree = TREES[field.collective]
    return {MESH: "all-to-all", "ring": "ring", tree: tree.replace("_", " ")}


def gain_chart(field: Field) -> str:
    shown = [nodes for nodes in (2, 8, 32, 128, 512) if nodes in field.nodes]
    return svg(f"{TITLES[field.collective]}: all-to-all against the best of ring and tree", "times faster",
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
