"""Bad GGUF files (cases O20, O27): each is refused at once, within little memory, by one line that names the fault."""

from __future__ import annotations

import contextlib
import struct
import time
import tracemalloc
from pathlib import Path

import gguf_bytes as gb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgellm.errors import EdgeLLMError, ModelFileError, UnsupportedError
from edgellm.gguf import open_gguf
from edgellm.gguf_header import load_header

HUGE = 1 << 63
# An array in an array in an array ...: as a reader would meet them one inside the other.
NESTED = gb.head(0, 1) + gb.string("a") + struct.pack("<I", gb.ARRAY) + struct.pack("<IQ", gb.ARRAY, 1) * 5000

BAD: dict[str, tuple[bytes, type[EdgeLLMError], str]] = {
    "kvcount": (gb.head(0, HUGE), ModelFileError, f"{HUGE} metadata keys cannot fit"),
    "tcount": (gb.head(HUGE, 0), ModelFileError, f"{HUGE} tensors cannot fit"),
    "keylen": (
        gb.head(0, 1) + struct.pack("<Q", 1 << 40) + bytes(8),
        ModelFileError,
        "key 0 is declared 1099511627776",
    ),
    "strlen": (gb.whole([gb.pair("a", gb.STRING, struct.pack("<Q", HUGE))]), ModelFileError, f"'a' is declared {HUGE}"),
    "arrlen": (
        gb.whole([gb.pair("a", gb.ARRAY, struct.pack("<IQ", gb.U8, HUGE))]),
        ModelFileError,
        f"{HUGE} items in 'a' cannot fit",
    ),
    "nested": (NESTED, ModelFileError, "'a' is an array of arrays"),
    "offoob": (
        gb.whole(tensors=[gb.tensor("t", (8,), 0, 1 << 50)], data=bytes(32)),
        ModelFileError,
        r"\d{16} bytes are",
    ),
    "ndims9": (gb.whole(tensors=[gb.tensor("t", (1 << 40,) * 9)], data=bytes(32)), ModelFileError, "'t' has 9 dim"),
    "type99": (
        gb.whole(tensors=[gb.tensor("t", (32,), 99)], data=bytes(32)),
        UnsupportedError,
        "'t' .*type 99; known are F32",
    ),
    "v99": (gb.head(version=99), UnsupportedError, "GGUF version 99; edgellm reads versions 2 and 3"),
    "v1": (gb.head(version=1), UnsupportedError, "GGUF version 1; .*convert the model again"),
    "big_endian": (struct.pack(">4sIQQ", b"GGUF", 3, 0, 0), UnsupportedError, "big-endian"),
    "removed_type": (
        gb.whole(tensors=[gb.tensor("t", (32,), 31)], data=bytes(32)),
        UnsupportedError,
        "Q4_0_4_4 .*Q4_0 file",
    ),
    "no_dims": (gb.whole(tensors=[gb.tensor("t", ())], data=bytes(64)), ModelFileError, "0 dimensions"),
    "empty_dim": (gb.whole(tensors=[gb.tensor("t", (32, 0))], data=bytes(32)), ModelFileError, r"shape \(0, 32\)"),
    "overflow": (
        gb.whole(tensors=[gb.tensor("t", (1 << 33, 1 << 33))], data=bytes(32)),
        ModelFileError,
        "impossible shape",
    ),
    "half_group": (
        gb.whole(tensors=[gb.tensor("t", (48, 2), 2)], data=bytes(96)),
        ModelFileError,
        "48, not a multiple of 32",
    ),
    "crooked": (
        gb.whole(tensors=[gb.tensor("t", (4,), 0, 8)], data=bytes(64)),
        ModelFileError,
        "8, not a multiple of 32",
    ),
    "same_key": (gb.whole([gb.scalar("k", 4, 1), gb.scalar("k", 4, 2)]), ModelFileError, "key 'k' appears twice"),
    "same_tensor": (
        gb.whole(tensors=[gb.tensor("t", (4,))] * 2, data=bytes(64)),
        ModelFileError,
        "tensor 't' appears twice",
    ),
    "key_text": (gb.whole([gb.pair(b"\xff", gb.U32, bytes(4))]), ModelFileError, "key 0 is not UTF-8"),
    "value_text": (gb.whole([gb.text("k", b"\xff")]), ModelFileError, "value of 'k' is not UTF-8"),
    "value_type": (gb.whole([gb.pair("k", 13, bytes(8))]), ModelFileError, "unknown value type 13"),
    "item_type": (gb.whole([gb.pair("k", 9, struct.pack("<IQ", 77, 0))]), ModelFileError, "unknown item type 77"),
    "long_name": (gb.whole([gb.scalar("k" * 5000, gb.U32, 1)]), ModelFileError, "5000 bytes long, the limit is 4096"),
    "string_in_array": (
        gb.whole([gb.pair("k", 9, struct.pack("<IQQ", gb.STRING, 1, 1 << 62) + bytes(32))]),
        ModelFileError,
        "a string in 'k' reaches past the end",
    ),
    "two_lines": (
        gb.whole(tensors=[gb.tensor("t\nu", (4,) * 5)], data=bytes(64)),
        ModelFileError,
        r"tensor 't\\nu' has 5",
    ),
    "empty": (b"", ModelFileError, "is not a GGUF file: it is empty"),
    "html": (b"<!DOCTYPE html><html>", ModelFileError, "is not a GGUF file: it is a web page"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\n", ModelFileError, "is not a GGUF file: .*Git LFS"),
    "plain": (b"hello\nworld", ModelFileError, r"is not a GGUF file: it is text that starts b'hello\\nworld'"),
    "binary": (bytes(range(200, 256)), ModelFileError, "is not a GGUF file: it starts with the bytes c8 c9 ca cb"),
    "ggml": (b"tjgg" + bytes(32), ModelFileError, "is not a GGUF file: it is a GGML file"),
    "zip": (b"PK\x03\x04" + bytes(32), ModelFileError, "is not a GGUF file: it is a zip"),
    "safetensors": (struct.pack("<Q", 64) + b'{"__metadata__":', ModelFileError, "is not a GGUF file: .*safetensors"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_by_name_at_once_and_cheaply(tmp_path: Path, name: str) -> None:
    content, kind, message = BAD[name]
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    tracemalloc.start()
    started = time.perf_counter()
    try:
        with pytest.raises(kind, match=message) as caught:
            open_gguf(path)
        taken, (_, peak) = time.perf_counter() - started, tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert type(caught.value) is kind
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    assert taken < 1.0 and peak < 100e6


@pytest.mark.parametrize("value", [0, 7, 12, 1 << 21])
def test_alignment_must_be_sane(value: int) -> None:
    with pytest.raises(ModelFileError, match=f"alignment is {value}; it must be a power of two from 8"):
        load_header(gb.whole([gb.scalar("general.alignment", gb.U32, value)]), "x")
    with pytest.raises(ModelFileError, match="alignment is True"):
        load_header(gb.whole([gb.scalar("general.alignment", gb.BOOL, 1)]), "x")
    with pytest.raises(ModelFileError, match="alignment is str"):
        load_header(gb.whole([gb.text("general.alignment", "32")]), "x")


def test_every_cut_of_a_sound_file_is_called_truncated() -> None:
    content = gb.small_model()
    last_byte_used = len(content) - 96 + 64 + 18  # where the last tensor ends; the rest is padding
    load_header(content[:last_byte_used], "x")
    for cut in range(1, last_byte_used):
        with pytest.raises(ModelFileError, match="x is truncated") as caught:
            load_header(content[:cut], "x")
        if cut >= len(content) - 96:
            assert f" {last_byte_used - cut} bytes are missing" in str(caught.value)


def test_three_kinds_of_message_stay_apart() -> None:
    content = gb.small_model()
    messages = []
    for bad in (b"<html>", content[:-40], content.replace(struct.pack("<IQ", 2, 64), struct.pack("<IQ", 99, 64))):
        with pytest.raises(EdgeLLMError) as caught:
            load_header(bad, "x")
        messages.append(str(caught.value))
    words = ("not a GGUF file", "truncated", "unknown tensor type")
    assert [[word in message for word in words] for message in messages] == [
        [True, False, False],
        [False, True, False],
        [False, False, True],
    ]


def try_to_read(content: bytes) -> None:
    """Read a header and everything it names. Nothing but our own errors may come out."""
    try:
        header = load_header(content, "x")
        for value in header.metadata.values():
            if not isinstance(value, (int, float, str)):
                list(value)
        assert all(0 < t.offset < t.offset + t.nbytes <= len(content) for t in header.tensors.values())
    except EdgeLLMError as error:
        assert "\n" not in str(error)


FUZZ = settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))


@FUZZ
@given(st.lists(st.tuples(st.integers(0, len(gb.small_model()) - 1), st.integers(0, 255)), min_size=1, max_size=8))
def test_changed_bytes_give_only_our_errors(changes: list[tuple[int, int]]) -> None:
    content = bytearray(gb.small_model())
    for at, value in changes:
        content[at] = value
    try_to_read(bytes(content))


@FUZZ
@given(
    st.integers(0, 320), st.sampled_from([0, 1, 7, 255, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1]), st.integers(0, 400)
)
def test_changed_words_and_cuts_give_only_our_errors(at: int, value: int, cut: int) -> None:
    content = bytearray(gb.small_model())
    content[at : at + 8] = struct.pack("<Q", value)
    try_to_read(bytes(content[: len(content) - cut]))


@FUZZ
@given(st.integers(0, 4), st.integers(0, 4), st.binary(max_size=200))
def test_random_bytes_behind_a_header_give_only_our_errors(tensors: int, pairs: int, rest: bytes) -> None:
    try_to_read(gb.head(tensors, pairs) + rest)


@FUZZ
@given(st.binary(max_size=80))
def test_random_files_give_only_our_errors(content: bytes) -> None:
    try_to_read(content)
    try_to_read(b"GGUF" + content)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=64))
def test_strange_files_on_disk_give_only_our_errors(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGUF\3\0\0\0" + content)
    with contextlib.suppress(EdgeLLMError):
        open_gguf(path).close()
