"""Every example of docs/python.md runs: here with a tiny random model in place of the one it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tiny_models import write_tiny

from edgellm import hub

PAGE = Path(__file__).resolve().parent.parent / "docs" / "python.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "m.gguf"
    return write_tiny(path, formats="Q8_0", context=1024, metadata={"tokenizer.chat_template": TEMPLATE})


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs(
    number: int, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hub, "resolve", lambda *_: model)
    code = EXAMPLES[number].replace('LLM.estimate("smollm2"', f"LLM.estimate({str(model)!r}")
    exec(compile(code, f"example {number} of {PAGE.name}", "exec"), {"__name__": "example"})
    assert capsys.readouterr().out.strip()


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 7
