"""Banned texts: found however they are cut, held while they may still come, taken back, and never in an answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import write_tiny

from edgellm import LLM
from edgellm.banned import BannedTexts
from edgellm.errors import OptionError

PIECES = [b"a", b"b", b"ab", b"c", b"bc", b"\xc3", b"\xa9", b"", b"abc"]


@given(
    st.lists(st.sampled_from(["ab", "abc", "ca", "\u00e9", "bcb", "aaa"]), min_size=1, max_size=3, unique=True),
    st.lists(st.integers(0, len(PIECES) - 1), max_size=60),
)
def test_what_stays_never_holds_a_banned_text(texts: list[str], ids: list[int]) -> None:
    watcher, kept, shown = BannedTexts(texts, PIECES.__getitem__), [], 0
    banned = [text.encode() for text in texts]
    for token_id in ids:
        kept.append(token_id)
        num_back = watcher.accept(token_id)
        joined = b"".join(PIECES[i] for i in kept)
        assert bool(num_back) == any(text in joined for text in banned)
        if num_back:
            left, gone = kept[:-num_back], kept[-num_back:]
            assert not any(text in b"".join(PIECES[i] for i in [*left, *gone[:-1]]) for text in banned)
            assert len(left) >= shown, "what was let pass is never taken back"
            watcher.take_back(num_back)
            kept = left
        shown = max(shown, len(kept) - watcher.num_held)
        ready = b"".join(PIECES[i] for i in kept[: len(kept) - watcher.num_held])
        assert not any(text in ready for text in banned)


def test_the_one_in_which_it_began_goes() -> None:
    watcher = BannedTexts(["bc"], PIECES.__getitem__)
    assert [watcher.accept(i) for i in (0, 2)] == [0, 0] and watcher.num_held == 1
    assert watcher.accept(3) == 2
    watcher.take_back(2)
    assert watcher.num_held == 0 and watcher.accept(8) == 1


def test_what_was_let_go_is_not_taken_back_though_it_could_begin_one_now() -> None:
    watcher = BannedTexts(["ca"], PIECES.__getitem__)
    assert [watcher.accept(3), watcher.accept(3)] == [0, 0] and watcher.num_held == 1
    assert watcher.accept(0) == 2  # the second c goes; the first has been shown
    watcher.take_back(2)
    assert watcher.num_held == 0 and watcher.accept(0) == 1
    watcher.take_back(1)
    assert watcher.accept(1) == 0 and watcher.num_held == 0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("banned") / "m.gguf", context=256)


@pytest.mark.parametrize("max_sequences", [1, 3])
def test_an_answer_without_them_and_the_same_whatever_else_runs(model: Path, max_sequences: int) -> None:
    with LLM.load(model, max_sequences=max_sequences) as llm:
        given = {"temperature": 3.0, "top_k": 0, "min_p": 0.0, "max_tokens": 60, "ignore_eos": True}
        free = llm.generate("a", seed=3, **given).text
        banned = tuple({free[i : i + 2] for i in (1, 9, 20, 33)} - {"", "\ufffd"})
        banned = tuple(text for text in banned if "\ufffd" not in text)
        streams = [llm.stream("a", seed=seed, banned=banned, **given) for seed in (3, 4, 5)]
        answers = ["".join(stream) for stream in streams]
        assert not any(text in answer for text in banned for answer in answers)
        alone = [llm.generate("a", seed=seed, banned=banned, **given).text for seed in (3, 4, 5)]
        assert answers == alone and answers[0] != free


def test_when_nothing_is_left_it_says_so(model: Path) -> None:
    with LLM.load(model) as llm:
        texts = {llm.detokenize([i]) for i in range(llm.vocab_size)} - {""}
        banned = tuple(text for text in texts if "\ufffd" not in text)
        with pytest.raises(OptionError, match="nothing can follow here|banned texts leave no way on"):
            llm.generate("a", temperature=0, banned=banned, ignore_eos=True, max_tokens=40, logit_bias=_no_odd_ids(llm))


def _no_odd_ids(llm: LLM) -> dict[int, float]:
    """Forbid ids whose text is no text of its own: control tokens and single bytes."""
    odd = [i for i in range(llm.vocab_size) if llm.detokenize([i]) in ("", "\ufffd")]
    return dict.fromkeys(odd, -100.0)
