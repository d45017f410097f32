"""docs/cli.md is what the command line says of itself."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from edgellm.cli.dispatch import COMMANDS


@pytest.fixture
def tool(repo_root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_cli_docs", repo_root / "tools" / "make_cli_docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")  # whatever the terminal
    assert tool.PAGE.read_text("utf-8") == tool.make_page(), "run python tools/make_cli_docs.py"


def test_every_command_and_no_long_line(tool: ModuleType) -> None:
    page = tool.make_page()
    assert all(f"\n## edgellm {name}\n" in page for name in COMMANDS)
    assert max(map(len, page.splitlines())) <= 120
