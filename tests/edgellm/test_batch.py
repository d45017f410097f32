"""Batches: flat, in order, and logits find their way back."""

from __future__ import annotations

import numpy as np

from edgellm.batch import make_batch, split_logits
from edgellm.scheduler import Work
from edgellm.sequence import Sequence


def make_work(ids: list[int], cached: int, count: int, slot: int, keep_logits: bool = False) -> Work:
    sequence = Sequence(ids, keep_logits=keep_logits)
    sequence.start(slot)
    sequence.advance(cached)
    return Work(sequence, count)


WORKS = [
    make_work([10, 11, 12, 13], 1, 2, slot=2),  # in the middle of its prompt
    make_work([20, 21, 22], 2, 1, slot=0),  # decoding, or the last of a prompt
    make_work([30, 31, 32, 33], 1, 2, slot=1, keep_logits=True),
    make_work([40, 41], 0, 2, slot=3),  # a whole prompt
]
TABLES = (np.zeros((4, 7), np.int32), np.ones((4, 7), np.int32))


def test_a_batch_is_flat() -> None:
    batch = make_batch(WORKS, TABLES)
    assert batch.token_ids.tolist() == [11, 12, 22, 31, 32, 40, 41]
    assert batch.positions.tolist() == [1, 2, 2, 1, 2, 0, 1]
    assert batch.sequences.tolist() == [2, 2, 0, 1, 1, 3, 3]
    assert batch.logit_rows.tolist() == [2, 3, 4, 6]
    types = [str(array.dtype) for array in (batch.token_ids, batch.positions, batch.sequences, batch.logit_rows)]
    assert types == ["int32", "int64", "int32", "int32"]
    assert batch.block_tables is TABLES


def test_logits_go_back_to_their_sequences() -> None:
    logits = np.arange(8, dtype=np.float32).reshape(4, 2)
    shares = split_logits(WORKS, logits)
    assert [work for work, _ in shares] == WORKS
    assert [rows.tolist() for _, rows in shares] == [[], [[0, 1]], [[2, 3], [4, 5]], [[6, 7]]]


def test_a_batch_may_want_no_logits() -> None:
    batch = make_batch(WORKS[:1], TABLES)
    assert batch.logit_rows.tolist() == [] and batch.logit_rows.dtype == np.int32
