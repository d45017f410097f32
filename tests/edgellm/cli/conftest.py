"""A model that says what it is told to, put where the commands load theirs."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_llm import FakeLLM

from edgellm.cli import loading


@pytest.fixture
def fake_llm(monkeypatch: pytest.MonkeyPatch) -> FakeLLM:
    llm = FakeLLM()
    monkeypatch.setattr(loading, "load_llm", llm.load)
    return llm


@pytest.fixture
def type_in(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that puts text or bytes on standard input, as a pipe."""

    def put(text: str | bytes) -> None:
        raw = text if isinstance(text, bytes) else text.encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8"))

    return put


@pytest.fixture
def repo_root() -> Path:
    return Path(__file__).parents[3]
