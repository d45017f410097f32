"""What is typed before it is sent: several lines, long pastes, completion, what is recalled."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from edgellm.cli.repl import recall, saved
from edgellm.cli.repl.completions import complete
from edgellm.cli.repl.conversation import Turn
from edgellm.cli.repl.multiline import is_open, unwrap
from edgellm.cli.repl.pasted import FOLD_LETTERS, LONG_OFFER, Pasted
from edgellm.cli.repl.recall import Recall
from edgellm.config import SamplingParams


@pytest.mark.parametrize(
    ("text", "open", "meant"),
    [
        ("plain", False, "plain"),
        ('"""', True, ""),
        ('"""a', True, "a"),
        ('"""a\nb', True, "a\nb"),
        ('"""a\nb"""', False, "a\nb"),
        ('"""\na\n"""', False, "a"),
        ('say """a', False, 'say """a'),
        ('/system """a', True, '/system """a'),
        ('/set system """a\nb"""', False, '/set system """a\nb"""'),
    ],
)
def test_three_quotation_marks(text: str, open: bool, meant: str) -> None:
    assert (is_open(text), unwrap(text)) == (open, meant)


def test_a_long_paste_is_a_mark_until_it_is_sent() -> None:
    pasted = Pasted()
    long, longer = "x" * 100_000, "line\n" * 50
    first, second = pasted.fold(long), pasted.fold(longer)
    assert first == "[pasted: 100,000 characters]" and second == "[pasted #2: 250 characters]"
    assert pasted.unfold(f"a {first} b {second}{first}") == f"a {long} b {longer}{long}"
    assert (
        pasted.unfold(first[:-1]) == first[:-1] and pasted.unfold("[pasted: 7 characters]") == "[pasted: 7 characters]"
    )
    assert pasted.fold("x" * FOLD_LETTERS) == "x" * FOLD_LETTERS
    assert pasted.fold_offer("x" * LONG_OFFER) == "x" * LONG_OFFER
    assert pasted.unfold(pasted.fold_offer("y" * (LONG_OFFER + 1))) == "y" * (LONG_OFFER + 1)


def words(text: str) -> list[str]:
    return [word for word, _ in complete(text)[1]]


def test_completion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGELLM_HOME", str(tmp_path))
    assert words("/s") == ["/system", "/set", "/show", "/save", "/stats"]
    assert complete("/re")[0] == 3
    assert words("/set p") == ["parameter"] and words("/show te") == ["template"]
    assert words("/set parameter temp") == ["temperature"]
    assert words("/set parameter json ") == ["default", "true", "false"]
    assert words("/load ") == []
    saved.save("talk", saved.Saved("m", None, (Turn("Q", "A"),), SamplingParams()))
    assert words("/load t") == ["talk"] and words("/load talk ") == []
    for text in ("", "plain", "plain /s", "/s\n/s", "/help x", "/set parameter nope "):
        assert words(text) == [], text


def test_what_was_typed_is_recalled(tmp_path: Path) -> None:
    path = tmp_path / "chat" / "typed.jsonl"
    kept = Recall(path)
    for text in ("one", "two\nlines ü", "two\nlines ü", " ", "x" * (recall.LONGEST + 1), "\ud800"):
        kept.add(text)
    assert Recall(path).texts == ["one", "two\nlines ü", "\ud800"]
    assert Recall(path, reads=False).texts == []
    if sys.platform != "win32":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_damaged_or_large_file_costs_only_what_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "typed.jsonl"
    path.write_bytes(b'"a"\n\xff\n{"b": 1}\n' + b"[" * 100_000 + b'\n"c"\n"half')
    assert Recall(path).texts == ["a", "c"]
    path.write_bytes(b"".join(b'"%03d"\n' % i for i in range(100)))
    monkeypatch.setattr(recall, "MOST_BYTES", 300)
    texts = Recall(path).texts
    assert texts[-1] == "099" and 10 < len(texts) < 50
    assert path.stat().st_size < 300 and Recall(path).texts == texts


def test_a_place_that_cannot_be_written_costs_the_memory_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    kept = Recall(tmp_path / "file" / "typed.jsonl")
    kept.add("one")
    assert kept.texts == ["one"]
