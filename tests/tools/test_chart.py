"""tools/chart.py: the drawing is valid XML, bars are as long as their values, and dark pages are thought of."""

from __future__ import annotations

from xml.etree import ElementTree

import chart

SVG = "{http://www.w3.org/2000/svg}"


def draw(values: list[float | None], mark: float = 0.5, top: float = 1.0) -> ElementTree.Element:
    texts = ["-" if v is None else f"{v}" for v in values]
    panel = chart.Panel("speed", values, texts, mark, "goal", top)
    return ElementTree.fromstring(
        chart.make_chart('a < b & "c"', ["Q4_0", "<none>", "F32"][: len(values)], [panel] * 2)
    )


def bar_lengths(root: ElementTree.Element, kind: str) -> list[float]:
    return [float(r.get("width", "")) for r in root.iter(f"{SVG}rect") if r.get("class") == kind]


def test_bars_are_as_long_as_their_values() -> None:
    root = draw([0.25, None, 1.0])
    assert bar_lengths(root, "bar0") == bar_lengths(root, "bar1") == [chart.PANEL / 4, chart.PANEL]
    assert bar_lengths(root, "track") == [chart.PANEL] * 6


def test_a_value_beyond_the_end_moves_the_end() -> None:
    root = draw([2.0, 1.0])
    assert bar_lengths(root, "bar0") == [chart.PANEL, chart.PANEL / 2]
    line = next(root.iter(f"{SVG}line"))
    assert float(line.get("x1", "")) == chart.EDGE + chart.LABELS + chart.PANEL / 4


def test_text_is_escaped_and_inside_the_page() -> None:
    root = draw([0.1, 0.2, 0.3])
    words = [t.text for t in root.iter(f"{SVG}text")]
    assert root.get("aria-label") == root.findtext(f"{SVG}title") == 'a < b & "c"'
    assert {"Q4_0", "<none>", "0.2", "goal", "speed"} <= set(words)
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    assert all(float(t.get("x", "")) < width and float(t.get("y", "")) < height for t in root.iter(f"{SVG}text"))


def test_colours_follow_the_reader() -> None:
    assert "prefers-color-scheme: dark" in (draw([0.5]).findtext(f"{SVG}style") or "")
