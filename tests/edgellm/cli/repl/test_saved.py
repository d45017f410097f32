"""Conversations on disk: whole, private, and checked field by field when they come back."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from edgellm import private_file
from edgellm.cli.repl import saved
from edgellm.cli.repl.conversation import Turn
from edgellm.config import SamplingParams
from edgellm.errors import EdgeLLMError, OptionError, ResourceError, StateError

TURNS = (Turn("Q1 ü", "A1\n🙂"), Turn("Q2", "A2", "hm"))
SAVED = saved.Saved("smollm2", "Be brief.", TURNS, SamplingParams(temperature=0.0, stop=("x",)))
GOOD: dict[str, Any] = {
    "format": saved.FORMAT,
    "version": 1,
    "model": "m",
    "parameters": {},
    "messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}],
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGELLM_HOME", str(tmp_path))
    return tmp_path


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    for name in ("talk", str(tmp_path / "elsewhere.json")):
        path = saved.save(name, SAVED)
        assert saved.load(name) == SAVED
        assert json.loads(path.read_text("utf-8"))["messages"][:2] == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Q1 ü"},
        ]
    assert saved.names() == ["talk"]
    empty = saved.Saved("m", None, (), SamplingParams())
    saved.save("talk", empty)
    assert saved.load("talk") == empty


@pytest.mark.skipif(
    sys.platform == "win32", reason="Windows has no permission bits; the user's folder is private there"
)
def test_only_the_owner_may_read_it() -> None:
    path = saved.save("talk", SAVED)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_failed_write_leaves_the_old_one_and_no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved.save("talk", SAVED)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(private_file.os, "fsync", full)
    with pytest.raises(ResourceError, match="cannot be written to .*No space left on device"):
        saved.save("talk", saved.Saved("other", None, (), SamplingParams()))
    assert saved.load("talk") == SAVED and os.listdir(path.parent) == ["talk.json"]


@pytest.mark.parametrize("name", ["", ".hidden", "a" * 101, "a:b", "a\nb", "..", "a\x00"])
def test_strange_names_are_refused(name: str) -> None:
    with pytest.raises(OptionError, match="no name for a conversation"):
        saved.save(name, SAVED)


def test_a_path_that_cannot_be_is_an_error_of_one_line(tmp_path: Path) -> None:
    for name in (str(tmp_path / "no" / "folder.json"), "a/\0.json", str(tmp_path) + "/"):
        for act in (lambda name=name: saved.save(name, SAVED), lambda name=name: saved.load(name)):  # type: ignore[misc]
            with pytest.raises(EdgeLLMError) as caught:
                act()
            assert "\n" not in str(caught.value)


def test_a_missing_one_is_named_with_those_there_are() -> None:
    saved.save("talk", SAVED)
    with pytest.raises(StateError, match="there is no conversation at .*nope.json; saved ones: talk"):
        saved.load("nope")


def test_a_good_one_is_good(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps(GOOD))
    assert saved.load(str(tmp_path / "x.json")).turns == (Turn("Q", "A"),)


def with_messages(*messages: Any) -> dict[str, Any]:
    return {**GOOD, "messages": list(messages)}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "damaged"),
        (b"\xff\xfe", "damaged"),
        (b"{", "damaged"),
        (b"[" * 100_000, "damaged"),
        (b'{"format": NaN}', "damaged"),
        ([], "is no conversation of edgellm"),
        ({**GOOD, "format": "else"}, "is no conversation of edgellm"),
        ({**GOOD, "version": 2}, "version 2"),
        ({**GOOD, "model": 5}, "its model must be a text"),
        ({**GOOD, "messages": {}}, "its messages must be a list"),
        (with_messages(3), "message 1 must have texts"),
        (with_messages({"role": "user"}), "message 1 must have texts"),
        (with_messages({"role": "user", "content": None}), "message 1 must have texts"),
        (with_messages({"role": "assistant", "content": "A"}), "a message of the user is due"),
        (with_messages(GOOD["messages"][0], GOOD["messages"][0]), "a message of the assistant is due"),
        (with_messages(GOOD["messages"][0]), "its last question has no answer"),
        (with_messages(*GOOD["messages"], {"role": "system", "content": "s"}), "comes one of 'system'"),
        ({**GOOD, "parameters": []}, "its parameters must be an object"),
        ({**GOOD, "parameters": {"heat": 1}}, "a parameter 'heat'"),
        ({**GOOD, "parameters": {"temperature": "1"}}, "temperature must be a number"),
        ({**GOOD, "parameters": {"temperature": -1}}, "temperature must be at least 0"),
        ({**GOOD, "parameters": {"max_tokens": True}}, "max_tokens must be a whole number"),
        ({**GOOD, "parameters": {"stop": "x"}}, "stop must be a list of texts"),
        ({**GOOD, "parameters": {"logit_bias": {"a": 1}}}, "logit_bias must map token ids"),
    ],
)
def test_what_is_wrong_is_said(content: Any, says: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    with pytest.raises(StateError) as caught:
        saved.load(str(path))
    assert says in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_a_huge_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved, "MOST_BYTES", 10)
    (tmp_path / "x.json").write_text(json.dumps(GOOD))
    with pytest.raises(StateError, match="larger than"):
        saved.load(str(tmp_path / "x.json"))
