"""CONTRIBUTING's worked example is the file that runs."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_example_is_the_file() -> None:
    section = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Add a model")[1].split("\n## ")[0]
    assert section.count("\n") < 40
    shown = section.split("```python\n")[1].split("```")[0]
    lines = [line.removeprefix("   ") for line in shown.rstrip().splitlines()]
    code = (ROOT / "models" / "arcee.py").read_text(encoding="utf-8").splitlines()
    start = code.index(lines[0])
    assert [line for line in code[start:] if '"""' not in line] == lines
