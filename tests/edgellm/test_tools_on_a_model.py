"""The example of docs/tools-and-reasoning.md on a real model, letter by letter."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tools-and-reasoning.md"


@pytest.mark.model
def test_the_example_of_the_page_runs(smollm2_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None and '.load("smollm2")' in found[1]
    names: dict[str, Any] = {}
    exec(found[1].replace('.load("smollm2")', f".load({str(smollm2_path)!r})"), names)
    roles = [message["role"] for message in names["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant"]
    (call,) = names["messages"][1]["tool_calls"]
    assert call["function"]["name"] == "get_weather" and '"city"' in call["function"]["arguments"]
    assert names["messages"][2]["tool_call_id"] == call["id"] and "21" in names["messages"][2]["content"]
    assert capsys.readouterr().out.strip() == names["done"].content != ""
