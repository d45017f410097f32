"""Let a constraint wait until a model has thought: reasoning is free, the answer after it has its form.

Without this a model that thinks first would have to write its JSON as a thought. Knows ids and, where a mark is several
tokens, bytes. Next hops: `choosing.py` says what a constraint is, `reasoning.py` what marks are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from ..choosing import Constraint


class _Phase(Enum):
    START = "start"  # reasoning may begin, or the answer
    REASONING = "reasoning"
    GAP = "gap"  # the empty line that models put after reasoning, in up to two tokens, or the answer
    REST_OF_GAP = "rest of gap"
    ANSWER = "answer"


_AFTER_FREE = {
    _Phase.START: _Phase.REASONING,
    _Phase.GAP: _Phase.REST_OF_GAP,
    _Phase.REST_OF_GAP: _Phase.ANSWER,
}


class AfterReasoning:
    """A Constraint that holds from the end of the reasoning on.

    inner: the constraint. is_opened: the prompt ends inside reasoning. open_id: the token that begins it, None if it is
    several: then only the prompt can. close: the bytes that end it. token_bytes: of a token, the closing mark's included.
    gap_ids: tokens that may stand between reasoning and answer, two of them at most. eog_ids: may not come inside reasoning.
    """

    def __init__(
        self,
        inner: Constraint,
        is_opened: bool,
        open_id: int | None,
        close: bytes,
        token_bytes: Callable[[int], bytes],
        gap_ids: Collection[int],
        eog_ids: Collection[int],
    ) -> None:
        self._inner = inner
        self._open_id, self._close, self._token_bytes = open_id, close, token_bytes
        self._gap_ids, self._eog_ids = sorted(gap_ids), sorted(eog_ids)
        self._phase = _Phase.REASONING if is_opened else _Phase.START
        self._tail = b""  # the last bytes of the reasoning, which may begin its end
        self._before: list[tuple[_Phase, bytes, bool]] = []  # what was so before each id, and whether inner took it

    def mask(self, logits: NDArray[np.float32]) -> None:
        """Let reasoning be free but for its end; then the inner constraint decides."""
        if self._phase is _Phase.REASONING:
            logits[self._eog_ids] = -np.inf
            return
        free = self._free_ids()
        kept = logits[free]
        self._inner.mask(logits)
        logits[free] = kept

    def accept(self, token_id: int) -> None:
        """Go on by an id."""
        phase, is_inner = self._phase, False
        self._before.append((phase, self._tail, False))
        if phase is _Phase.REASONING:
            self._tail = (self._tail + self._token_bytes(token_id))[-2 * len(self._close) - 64 :]
            if self._close in self._tail:
                self._phase, self._tail = _Phase.GAP, b""
        elif token_id in self._free_ids():
            self._phase = _AFTER_FREE[phase]
        else:
            self._phase, is_inner = _Phase.ANSWER, True
            self._inner.accept(token_id)
        self._before[-1] = (*self._before[-1][:2], is_inner)

    def forced(self) -> list[int]:
        """What the inner constraint forces, once nothing else may come."""
        return self._inner.forced() if self._phase is _Phase.ANSWER else []

    def take_back(self, num_tokens: int) -> None:
        """Undo the last `num_tokens` calls of `accept`."""
        gone = self._before[len(self._before) - num_tokens :]
        del self._before[len(self._before) - num_tokens :]
        if gone:
            self._phase, self._tail, _ = gone[0]
            self._inner.take_back(sum(is_inner for _, _, is_inner in gone))

    @property
    def is_complete(self) -> bool:
        """True once nothing but the end may follow."""
        return self._phase is _Phase.ANSWER and self._inner.is_complete

    def _free_ids(self) -> list[int]:
        if self._phase is _Phase.START:
            return [] if self._open_id is None else [self._open_id]
        return self._gap_ids if self._phase in (_Phase.GAP, _Phase.REST_OF_GAP) else []
