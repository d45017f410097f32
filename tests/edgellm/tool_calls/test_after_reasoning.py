"""A constraint waits until the model has thought, through every way of getting there and back."""

from __future__ import annotations

import numpy as np
import pytest

from edgellm.tool_calls.after_reasoning import AfterReasoning

OPEN, GAP, A, B, END, HALF, REST = 0, 1, 2, 3, 4, 5, 6
PIECES = [b"<think>", b"\n\n", b"a", b"b", b"", b"</th", b"ink>"]


class Only:
    """Wants A twice."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def mask(self, logits: np.ndarray) -> None:
        logits[[i for i in range(len(logits)) if i != A]] = -np.inf

    def accept(self, token_id: int) -> None:
        assert token_id == A
        self.seen.append(token_id)

    def forced(self) -> list[int]:
        return [A] * (2 - len(self.seen))

    def take_back(self, num_tokens: int) -> None:
        if num_tokens:
            del self.seen[-num_tokens:]

    @property
    def is_complete(self) -> bool:
        return len(self.seen) == 2


def make(is_opened: bool, open_id: int | None = OPEN) -> tuple[AfterReasoning, Only]:
    inner = Only()
    return AfterReasoning(inner, is_opened, open_id, b"</think>", PIECES.__getitem__, [GAP], [END]), inner


def allowed(constraint: AfterReasoning) -> set[int]:
    logits = np.zeros(len(PIECES), np.float32)
    constraint.mask(logits)
    return set(np.flatnonzero(logits == 0).tolist())


def test_the_whole_way() -> None:
    constraint, inner = make(False)
    assert allowed(constraint) == {OPEN, A} and constraint.forced() == []
    constraint.accept(OPEN)
    assert allowed(constraint) == {OPEN, GAP, A, B, HALF, REST} and constraint.forced() == []
    for token in (B, HALF, A, HALF):
        constraint.accept(token)
        assert not constraint.is_complete and constraint.forced() == [] and END not in allowed(constraint)
    constraint.accept(REST)
    assert allowed(constraint) == {GAP, A}
    constraint.accept(GAP)
    assert allowed(constraint) == {GAP, A} and constraint.forced() == []
    constraint.accept(GAP)
    assert allowed(constraint) == {A} and constraint.forced() == [A, A]
    constraint.accept(A)
    constraint.accept(A)
    assert constraint.is_complete and inner.seen == [A, A]
    for _ in range(2):
        constraint.take_back(5)  # to inside the reasoning, before REST
        assert allowed(constraint) == {OPEN, GAP, A, B, HALF, REST} and inner.seen == []
        for token in (REST, A, A):
            constraint.accept(token)
        assert constraint.is_complete
        constraint.take_back(0)
        assert constraint.is_complete
        constraint.take_back(1)
        assert inner.seen == [A] and not constraint.is_complete and constraint.forced() == [A]
        constraint.take_back(2)
        for token in (REST, GAP, GAP, A, A):
            constraint.accept(token)


def test_a_model_that_does_not_think_begins_at_once() -> None:
    constraint, inner = make(False)
    constraint.accept(A)
    assert allowed(constraint) == {A} and inner.seen == [A]
    constraint.take_back(1)
    assert allowed(constraint) == {OPEN, A}


@pytest.mark.parametrize("open_id", [OPEN, None])
def test_a_prompt_that_opened_the_reasoning(open_id: int | None) -> None:
    constraint, _ = make(True, open_id)
    assert allowed(constraint) == {OPEN, GAP, A, B, HALF, REST}
    constraint.accept(HALF)
    constraint.accept(REST)
    assert allowed(constraint) == {GAP, A}
