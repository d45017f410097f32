"""Horizontal bars as an SVG file, written as plain text: one row per label, one panel per quantity.

Readable on light and dark pages: the drawing brings its own background and follows the reader's colour scheme.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

ROW, BAR, LABELS, PANEL, GAP, TEXT, HEAD, FOOT, EDGE = 24, 14, 84, 280, 28, 96, 74, 22, 16
STYLE = """
text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 13px; fill: #1f2328 }
.title { font-size: 16px; font-weight: 600 } .small { font-size: 11px; fill: #59636e }
.page { fill: #ffffff } .track { fill: #eff2f5 } .mark { stroke: #59636e; stroke-width: 1.5; stroke-dasharray: 3 3 }
.bar0 { fill: #2f6fdb } .bar1 { fill: #c4661a } .bar2 { fill: #2c8a57 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .small { fill: #9198a1 }
  .page { fill: #0d1117 } .track { fill: #20262e } .mark { stroke: #9198a1 }
  .bar0 { fill: #5d9bff } .bar1 { fill: #f0974a } .bar2 { fill: #57bd86 }
}
"""


@dataclass(frozen=True)
class Panel:
    """One quantity: a value per label (None: not measured) and the text beside its bar.

    top: value at the right end, which grows with the values. mark: a line to compare with.
    """

    title: str
    values: Sequence[float | None]
    texts: Sequence[str]
    mark: float
    mark_text: str
    top: float

    @property
    def right(self) -> float:
        """Value at the right end."""
        return max([self.top, *(v for v in self.values if v is not None)])


def make_chart(title: str, labels: Sequence[str], panels: Sequence[Panel]) -> str:
    """Return the text of an SVG file."""
    width = EDGE + LABELS + len(panels) * (PANEL + TEXT + GAP)
    height = HEAD + ROW * len(labels) + FOOT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(title, {chr(34): "&quot;"})}">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{width}" height="{height}" rx="6"/>',
        _text(EDGE, 26, title, "title"),
    ]
    for i, label in enumerate(labels):
        parts.append(_text(EDGE, HEAD + ROW * i + BAR - 1, label))
    for number, panel in enumerate(panels):
        parts += _panel(EDGE + LABELS + number * (PANEL + TEXT + GAP), panel, number)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    kind = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{kind} text-anchor="{anchor}">{escape(text)}</text>'


def _panel(left: float, panel: Panel, number: int) -> list[str]:
    parts = [_text(left, 52, panel.title)]
    for i, (value, text) in enumerate(zip(panel.values, panel.texts, strict=True)):
        y, length = HEAD + ROW * i, PANEL * (value or 0.0) / panel.right
        parts.append(f'<rect class="track" x="{left}" y="{y}" width="{PANEL}" height="{BAR}" rx="2"/>')
        if value is not None:
            bar = f'x="{left}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2"'
            parts.append(f'<rect class="bar{number % 3}" {bar}/>')
        parts.append(_text(left + PANEL + 8, y + BAR - 2, text, "small"))
    x, end = left + PANEL * panel.mark / panel.right, HEAD + ROW * len(panel.values)
    parts.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{HEAD - 8}" y2="{end - 4}"/>')
    parts.append(_text(x, end + 10, panel.mark_text, "small", "end" if panel.mark > panel.right / 2 else "start"))
    return parts
