"""Bits laid over logits: every pattern of a byte, sizes that fit no byte, more logits than tokens."""

from __future__ import annotations

import numpy as np
import pytest

from edgellm.structured.bitmask import LogitMask, bits_of, make_bits


@pytest.mark.parametrize("size", [1, 7, 8, 33, 256, 4096 * 8, 4096 * 8 + 5, 100_003])
@pytest.mark.parametrize("more", [0, 9])
def test_a_bit_decides_on_its_logit(size: int, more: int) -> None:
    rng = np.random.default_rng(size)
    flags = rng.random(size) < rng.random()
    logits = rng.normal(size=size + more).astype(np.float32)
    expected = np.where(np.concatenate([flags, np.zeros(more, bool)]), logits, -np.inf)
    LogitMask().apply(bits_of(np.flatnonzero(flags), size), size, logits)
    assert np.array_equal(logits, expected)


def test_every_byte() -> None:
    logits = np.zeros(2048, np.float32)
    LogitMask().apply(np.arange(256, dtype=np.uint8), 2048, logits)
    expected = np.unpackbits(np.arange(256, dtype=np.uint8), bitorder="little") == 1
    assert np.array_equal(logits == 0.0, expected)


def test_what_is_no_number_stays_so_where_it_is_allowed_and_warns_of_nothing() -> None:
    logits = np.array([np.nan, np.inf, -np.inf, np.inf], np.float32)
    LogitMask().apply(bits_of([0, 1, 2], 4), 4, logits)
    assert np.isnan(logits[0]) and logits[1] == np.inf and logits[2] == logits[3] == -np.inf


def test_bits_have_room_in_words_of_32() -> None:
    assert [make_bits(size).nbytes for size in (1, 32, 33, 700)] == [4, 4, 8, 88]
    assert bits_of([0, 9], 33).tolist() == [1, 2, 0, 0, 0, 0, 0, 0]
