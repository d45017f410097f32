"""tools/pages.py: a table replaces the one between its markers and nothing else."""

from __future__ import annotations

from pathlib import Path

import pages
import pytest


def test_only_the_section_changes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A\n<!-- begin x -->\nold\n<!-- end x -->\nkept\n<!-- begin y -->\n<!-- end y -->\n")
    pages.put_section(page, "x", "\nnew ä\n\n")
    pages.put_section(page, "y", "more")
    assert page.read_text(encoding="utf-8") == (
        "# A\n<!-- begin x -->\nnew ä\n<!-- end x -->\nkept\n<!-- begin y -->\nmore\n<!-- end y -->\n"
    )


def test_a_page_that_is_not_there_is_made(tmp_path: Path) -> None:
    page = tmp_path / "new.md"
    for text in ("one", "two"):
        pages.put_section(page, "x", text)
    assert page.read_text() == "<!-- begin x -->\ntwo\n<!-- end x -->\n"


@pytest.mark.parametrize(
    "text",
    [
        "no markers",
        "<!-- begin x -->",
        "<!-- end x --> <!-- begin x -->",
        "<!-- begin x --><!-- begin x --><!-- end x -->",
    ],
)
def test_a_page_without_the_section_stays_as_it_is(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(pages.PageError, match="begin x"):
        pages.put_section(page, "x", "new")
    assert page.read_text() == text


def test_tables() -> None:
    rows = [["a", "1"], ["bcd", "20"]]
    assert pages.make_table(["n", "v"], rows) == "| n | v |\n| --- | ---: |\n| a | 1 |\n| bcd | 20 |"
    assert pages.make_columns(["n", "v"], rows) == "n     v\na     1\nbcd  20"


def test_the_machine_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ", 1 thread, edgellm " in pages.describe_machine(1) and ", 2 threads, " in pages.describe_machine(2)
    monkeypatch.setattr(pages.Path, "read_text", lambda *a, **k: "flags: x\n")
    monkeypatch.setattr(pages.platform, "processor", lambda: "")
    assert pages._cpu_name() == pages.platform.machine()


def test_the_performance_page_has_every_section() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "performance.md").read_text(encoding="utf-8")
    for section in ("peak", "formats", "threads", "peers", "peers-busy"):
        assert page.count(f"<!-- begin {section} -->") == page.count(f"<!-- end {section} -->") == 1
