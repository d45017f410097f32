"""From a decision to arrays: a flat batch of all tokens of a step, and back from logit rows to their sequences.

Knows neither model nor cache contents. Next hop: `runner.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as ListOf

import numpy as np
from numpy.typing import NDArray

from .cache.states import StateCache
from .kernels.ops import Batch
from .scheduler import Work
from .sequence import Sequence

_FIRST_ROW, _NO_ROWS = np.zeros(1, np.int32), np.zeros(0, np.int32)
_NO_STATES = _NO_ROWS, _NO_ROWS


def num_logit_rows(work: Work) -> int:
    """How many logit rows this share of a step wants: all, the last and one per guess, or none while a prompt is unfinished."""
    if work.sequence.keep_logits:
        return work.num_tokens
    if work.sequence.keep_hidden is not None or work.num_tokens < work.sequence.num_pending:
        return 0
    return 1 + len(work.draft)


def num_hidden_rows(work: Work) -> int:
    """How many rows of hidden states this share of a step wants."""
    if work.sequence.keep_hidden == "all":
        return work.num_tokens
    return int(work.sequence.keep_hidden == "last" and work.num_tokens == work.sequence.num_pending)


def make_batch(
    works: ListOf[Work], block_tables: tuple[NDArray[np.int32], ...], states: StateCache | None = None
) -> Batch:
    """Lay the shares of a step one after another. The tables are handed on as they are: a row is a cache slot.

    states: where the program has layers with a state: chooses the records that the step writes.
    """
    reads, writes = _NO_STATES if states is None else (states.reads, _plan_states(works, states))
    if len(works) == 1 and works[0].num_rows == 1 and num_logit_rows(works[0]) == 1:
        return _make_decode_batch(works[0].sequence, block_tables, reads, writes)
    token_ids: list[int] = []
    logit_rows: list[int] = []
    hidden_rows: list[int] = []
    for work in works:
        start = work.sequence.num_cached
        token_ids += work.sequence.token_ids[start : start + work.num_tokens]
        token_ids += work.draft
        logit_rows += range(len(token_ids) - num_logit_rows(work), len(token_ids))
        hidden_rows += range(len(token_ids) - num_hidden_rows(work), len(token_ids))
    counts = [work.num_rows for work in works]
    positions = [np.arange(w.sequence.num_cached, w.sequence.num_cached + w.num_rows, dtype=np.int64) for w in works]
    return Batch(
        token_ids=np.array(token_ids, np.int32),
        positions=np.concatenate(positions),
        sequences=np.repeat(np.array([work.sequence.slot for work in works], np.int32), counts),
        block_tables=block_tables,
        logit_rows=np.array(logit_rows, np.int32),
        hidden_rows=np.array(hidden_rows, np.int32),
        state_reads=reads,
        state_writes=writes,
    )


def _plan_states(works: ListOf[Work], states: StateCache) -> NDArray[np.int32]:
    return np.concatenate(
        [
            states.plan(s.slot, s.num_cached, work.num_tokens, len(work.draft), s.num_prompt)
            for work in works
            for s in (work.sequence,)
        ]
    )


def _make_decode_batch(
    sequence: Sequence,
    block_tables: tuple[NDArray[np.int32], ...],
    reads: NDArray[np.int32],
    writes: NDArray[np.int32],
) -> Batch:
    """The same for one token whose logits are wanted: most steps there are, and each array costs microseconds."""
    at = sequence.num_cached
    return Batch(
        token_ids=np.array([sequence.token_ids[at]], np.int32),
        positions=np.array([at], np.int64),
        sequences=np.array([sequence.slot], np.int32),
        block_tables=block_tables,
        logit_rows=_FIRST_ROW,
        hidden_rows=_NO_ROWS,
        state_reads=reads,
        state_writes=writes,
    )


def split_logits(works: ListOf[Work], logits: NDArray[np.float32]) -> list[tuple[Work, NDArray[np.float32]]]:
    """Give each share its rows f32[n, V] of the step's logits, in the order of make_batch."""
    return _split(works, logits, num_logit_rows)


def split_hidden(works: ListOf[Work], hidden: NDArray[np.float32]) -> list[tuple[Work, NDArray[np.float32]]]:
    """Give each share its rows f32[n, E] of the step's hidden states, in the order of make_batch."""
    return _split(works, hidden, num_hidden_rows)


def _split(
    works: ListOf[Work], rows: NDArray[np.float32], count: Callable[[Work], int]
) -> list[tuple[Work, NDArray[np.float32]]]:
    shares = []
    start = 0
    for work in works:
        end = start + count(work)
        shares.append((work, rows[start:end]))
        start = end
    return shares
