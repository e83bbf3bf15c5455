"""A canvas for the docs' pictures: boxes, arrows, lines and text as one SVG file that suits light and dark pages.

Colours are classes of a style sheet inside the file, with a second set for pages whose reader prefers dark. The two
accent colours, blue and orange, can be told apart by readers who are colour-blind. Sizes are in pixels.
"""
from xml.sax.saxutils import escape

LIGHT = {"ink": "#1f2328", "soft": "#59636e", "line": "#8c959f", "fill": "#f6f8fa", "blue": "#0b62b8", "orange": "#b54708",
         "tint": "#ddeeff", "warm": "#fff1e0"}
DARK = {"ink": "#f0f6fc", "soft": "#9198a1", "line": "#6e7681", "fill": "#161b22", "blue": "#58a6ff", "orange": "#f0883e",
        "tint": "#12304f", "warm": "#3d2a16"}


def _rules(colours):
    return "".join(f".{name}{{fill:{value}}}.s-{name}{{stroke:{value}}}" for name, value in colours.items())


class Canvas:
    def __init__(self, width, height, title, text):
        """`title` and `text` are what a reader without the picture is told."""
        self.width, self.height = width, height
        self.head = f"<title>{escape(title)}</title><desc>{escape(text)}</desc>"
        self.parts = []

    def text(self, x, y, words, colour="ink", size=14, anchor="start", bold=False):
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(f'<text class="{colour}" x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"{weight}>'
                          f"{escape(words)}</text>")

    def box(self, x, y, width, height, fill="fill", edge="line"):
        self.parts.append(f'<rect class="{fill} s-{edge}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>')

    def line(self, x1, y1, x2, y2, colour="line", width=1.5, dashed=False, arrow=False):
        more = ' stroke-dasharray="4 4"' if dashed else ""
        more += f' marker-end="url(#to-{colour})"' if arrow else ""
        self.parts.append(f'<line class="s-{colour}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke-width="{width:g}"{more}/>')

    def curve(self, x1, y1, x2, y2, bend, colour="line", width=1.5):
        """An arrow that leaves the straight way by `bend` pixels, to its left."""
        dx, dy = x2 - x1, y2 - y1
        length = (dx * dx + dy * dy) ** 0.5
        cx, cy = (x1 + x2) / 2 + bend * dy / length, (y1 + y2) / 2 - bend * dx / length
        self.parts.append(f'<path class="none s-{colour}" d="M{x1:.1f} {y1:.1f}Q{cx:.1f} {cy:.1f} {x2:.1f} {y2:.1f}" '
                          f'stroke-width="{width:g}" marker-end="url(#to-{colour})"/>')

    def dot(self, x, y, radius=5, colour="blue", hollow=False):
        kind = f"fill s-{colour}" if hollow else colour
        self.parts.append(f'<circle class="{kind}" cx="{x:g}" cy="{y:g}" r="{radius:g}" stroke-width="1.5"/>')

    def __str__(self):
        style = f"text{{font-family:system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif}}.none{{fill:none}}{_rules(LIGHT)}"
        style += f"@media (prefers-color-scheme:dark){{{_rules(DARK)}}}"
        arrows = "".join(f'<marker id="to-{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
                         f'<path class="{name}" d="M0 0L8 4L0 8z"/></marker>' for name in ("line", "blue", "orange"))
        size = f'viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}"'
        return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">', self.head,
                          f"<style>{style}</style><defs>{arrows}</defs>", *self.parts, "</svg>", ""])
