"""Records: what was written comes back, and whatever is done to the bytes, nothing else ever does."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.cache.record import MAX_HEAD_BYTES, is_whole, make_head, node_key, parse_head
from edgellm.cache.tree import ROOT_KEY

IDENTITY = bytes(range(16))
TOKENS = st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=64)


def read(data: bytes) -> tuple[bytes, bytes, tuple[int, ...], int, bytes] | None:
    """What a reader takes `data` for."""
    head = parse_head(data[:MAX_HEAD_BYTES])
    if head is None or not is_whole(head, data[head.nbytes :]):
        return None
    return head.identity, head.parent, head.token_ids, head.group, data[head.nbytes :]


@given(TOKENS, st.integers(0, 999), st.binary(max_size=300), st.binary(min_size=16, max_size=16))
def test_what_is_written_comes_back(tokens: list[int], group: int, payload: bytes, parent: bytes) -> None:
    data = make_head(IDENTITY, parent, tokens, group, payload) + payload
    assert read(data) == (IDENTITY, parent, tuple(tokens), group, payload)
    head = parse_head(data)
    assert head is not None and head.key == node_key(parent, tokens)
    assert len(data) == head.nbytes + len(payload)


@settings(max_examples=300)
@given(st.data())
def test_changed_bytes_are_never_taken_for_a_record(data: st.DataObject) -> None:
    payload = bytes(range(200))
    sound = make_head(IDENTITY, ROOT_KEY, list(range(64)), 1, payload) + payload
    at = data.draw(st.integers(0, len(sound) - 1))
    kind = data.draw(st.sampled_from(["flip", "cut", "extend", "zeros", "repeat"]))
    changed = {
        "flip": sound[:at] + bytes([sound[at] ^ data.draw(st.integers(1, 255))]) + sound[at + 1 :],
        "cut": sound[:at],
        "extend": sound + bytes(at + 1),
        "zeros": sound[:at] + bytes(len(sound) - at),  # what a power cut leaves
        "repeat": sound[:at] + sound,
    }[kind]
    assert read(changed) is None or changed == sound


@pytest.mark.parametrize("count", [0, 65, 2**31, 2**32 - 1])
def test_a_number_of_tokens_that_cannot_be_is_refused(count: int) -> None:
    sound = make_head(IDENTITY, ROOT_KEY, [1, 2, 3], 0, b"x")
    assert parse_head(sound[:44] + struct.pack("<I", count) + sound[48:]) is None


def test_the_key_says_all_tokens_before_and_where_blocks_end() -> None:
    keys = {node_key(ROOT_KEY, [1]), node_key(ROOT_KEY, [1, 0]), node_key(node_key(ROOT_KEY, [1]), [0])}
    assert len(keys) == 3 and all(len(key) == 16 for key in keys)
