"""Where a model thinks aloud: the marks around its reasoning, and whether the prompt has opened it already.

Knows marks and templates. Next hops: `splitter.py` takes reasoning out of an answer, `after_reasoning.py` lets a constraint
wait for its end.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class ReasoningMarks(NamedTuple):
    """The texts before and after reasoning."""

    open: str
    close: str


# Source: the models' chat templates.
KNOWN = (
    ReasoningMarks("<think>", "</think>"),
    ReasoningMarks("[THINK]", "[/THINK]"),
    ReasoningMarks("<|START_THINKING|>", "<|END_THINKING|>"),
    ReasoningMarks("<seed:think>", "</seed:think>"),
    ReasoningMarks("<mm:think>", "</mm:think>"),
)
_TAIL_TOKENS = 24


class HasMarks(Protocol):
    """What is needed of a tokenizer."""

    def encode(self, text: str, special: bool = False, add_bos: bool | None = None) -> list[int]: ...
    def decode(self, ids: list[int], special: bool = False) -> str: ...


def find_marks(source: str, tokenizer: HasMarks) -> ReasoningMarks | None:
    """Return the marks that a template's source shows or that are tokens of the vocabulary; None for a model that has none."""
    for marks in KNOWN:
        if marks.close in source or get_token(tokenizer, marks.close) is not None:
            return marks
    return None


def get_token(tokenizer: HasMarks, text: str) -> int | None:
    """Return the one token that a text is, or None if it is several."""
    ids = list(tokenizer.encode(text, special=True, add_bos=False))
    return ids[0] if len(ids) == 1 else None


def is_opened(marks: ReasoningMarks, prompt_ids: list[int], tokenizer: HasMarks) -> bool:
    """Return whether a prompt ends inside reasoning: its last text, but for white space, is the opening mark."""
    return tokenizer.decode(prompt_ids[-_TAIL_TOKENS:], special=True).rstrip().endswith(marks.open)
