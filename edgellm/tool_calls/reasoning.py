"""Where a model thinks aloud: the marks around its reasoning, and whether the prompt has opened it already.

Knows marks and templates. Next hops: `splitter.py` takes reasoning out of an answer, `after_reasoning.py` lets a constraint
wait for its end.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class ReasoningMarks(NamedTuple):
    """The texts before and after reasoning. token: what of the first is a token, if not all of it."""

    open: str
    close: str
    token: str = ""

    @property
    def controls(self) -> tuple[str, str]:
        """What must be seen even where it is a control token."""
        return self.token or self.open, self.close


# Source: the models' chat templates.
KNOWN = (
    ReasoningMarks("<think>", "</think>"),
    ReasoningMarks("[THINK]", "[/THINK]"),
    ReasoningMarks("<|START_THINKING|>", "<|END_THINKING|>"),
    ReasoningMarks("<seed:think>", "</seed:think>"),
    ReasoningMarks("<mm:think>", "</mm:think>"),
    ReasoningMarks("<|channel>thought", "<channel|>", "<|channel>"),
)
_TAIL_TOKENS = 24


class HasMarks(Protocol):
    """What is needed of a tokenizer."""

    def find_token(self, text: str) -> int | None: ...
    def decode(self, ids: list[int], special: bool = False) -> str: ...


def find_marks(source: str, tokenizer: HasMarks) -> ReasoningMarks | None:
    """Return the marks that a template's source shows or that are tokens of the vocabulary; None for a model that has none."""
    for marks in KNOWN:
        if marks.close in source or tokenizer.find_token(marks.close) is not None:
            return marks
    return None


def is_opened(marks: ReasoningMarks, prompt_ids: list[int], tokenizer: HasMarks) -> bool:
    """Return whether a prompt ends inside reasoning: its last text, but for white space, is the opening mark."""
    return tokenizer.decode(prompt_ids[-_TAIL_TOKENS:], special=True).rstrip().endswith(marks.open)
