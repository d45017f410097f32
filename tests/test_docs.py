"""What docs/cases.md and docs/tools.md say exists does exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CASES = (ROOT / "docs" / "cases.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| (O\d\d) \|(.*)$", CASES, re.MULTILINE))
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def get_tests(path: Path) -> set[str]:
    """Return the names of a file's test functions."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {node.name for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


@pytest.mark.parametrize("case", ROWS)
def test_the_tests_of_a_case_exist(case: str) -> None:
    named = NAMED.findall(ROWS[case])
    assert named, f"{case} names no test"
    assert ROWS[case].count("::") == len(named), f"{case}: a test's name is not written as `tests/FILE.py::test_name`"
    missing = [f"{path}::{name}" for path, name in named if name not in get_tests(ROOT / path)]
    assert not missing


def test_the_cases_of_this_stage_are_there() -> None:
    wanted = (1, 2, 3, 4, 7, 8, 9, 10, 11, 18, 20, 21, 22, 27)
    assert set(ROWS) >= {f"O{number:02}" for number in wanted}


def test_every_tool_has_a_word() -> None:
    told = set(re.findall(r"`(tools/\w+\.py)`", (ROOT / "docs" / "tools.md").read_text(encoding="utf-8")))
    there = {f"tools/{path.name}" for path in (ROOT / "tools").glob("*.py")}
    assert told == there
