"""`edgellm tokenize`: ids, pieces in quotes, half characters as bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgellm.cli import loading, main
from edgellm.tokenizer import Tokenizer

PIECES = {1: b"Hi", 2: b" \n", 300: "é".encode()[:1], 301: "é".encode()[1:], 5: b""}


class FakeTokenizer:
    def encode(self, text: str, special: bool = False) -> list[int]:
        return [5] if special else [] if not text else [1, 2, 300, 301]

    def token_bytes(self, token_id: int) -> bytes:
        return PIECES[token_id]

    def is_control(self, token_id: int) -> bool:
        return token_id == 5

    def decode(self, ids: list[int], special: bool = False) -> str:
        return "<|end|>" if special else ""


@pytest.fixture(autouse=True)
def found(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Put the fake tokenizer behind any name; returns the names asked for."""
    names: list[str] = []

    def find_file(model: str) -> Path:
        names.append(model)
        return Path("x.gguf")

    monkeypatch.setattr(loading, "find_file", find_file)
    monkeypatch.setattr(Tokenizer, "from_gguf", classmethod(lambda cls, path: FakeTokenizer()))
    return names


def test_one_token_a_line(found: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tokenize", "some-model", "Hi \né"]) == 0
    assert capsys.readouterr().out == "  1  'Hi'\n  2  ' \\n'\n300  '\\xc3'\n301  '\\xa9'\n4 tokens\n"
    assert found == ["some-model"]


def test_special(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tokenize", "m", "<|end|>", "--special"]) == 0
    assert capsys.readouterr().out == "5  '<|end|>'\n1 token\n"


def test_json_from_standard_input(type_in: Any, capsys: pytest.CaptureFixture[str]) -> None:
    type_in("Hi \né\n")
    assert main(["tokenize", "m", "--json"]) == 0
    expected = {"token_ids": [1, 2, 300, 301], "pieces": ["Hi", " \n", "\ufffd", "\ufffd"]}
    assert json.loads(capsys.readouterr().out) == expected


def test_no_text_no_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tokenize", "m", ""]) == 0
    assert capsys.readouterr().out == "0 tokens\n"


def test_a_model_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tokenize"]) == 2
    assert "MODEL" in capsys.readouterr().err
