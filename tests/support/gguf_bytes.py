"""Build GGUF files byte by byte, right or wrong on purpose. Knows the layout only; shares no code with the reader."""

from __future__ import annotations

import struct

U8, U16, U32, I32, F32, BOOL, STRING, ARRAY, U64 = 0, 2, 4, 5, 6, 7, 8, 9, 10
CODES = {U8: "B", U16: "H", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q"}


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def pair(key: str | bytes, kind: int, payload: bytes) -> bytes:
    """A metadata entry whose value's bytes are given as they are."""
    return string(key) + struct.pack("<I", kind) + payload


def scalar(key: str, kind: int, value: float) -> bytes:
    return pair(key, kind, struct.pack("<" + CODES[kind], value))


def text(key: str, value: str | bytes) -> bytes:
    return pair(key, STRING, string(value))


def array(key: str, kind: int, values: list[float] | list[str]) -> bytes:
    items = [string(v) if isinstance(v, str) else struct.pack("<" + CODES[kind], v) for v in values]
    return pair(key, ARRAY, struct.pack("<IQ", kind, len(items)) + b"".join(items))


def tensor(name: str | bytes, dims: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    """A tensor's entry; `dims` is innermost first, as in the file."""
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def head(tensors: int = 0, pairs: int = 0, version: int = 3) -> bytes:
    return struct.pack("<4sIQQ", b"GGUF", version, tensors, pairs)


def whole(
    pairs: list[bytes] | None = None,
    tensors: list[bytes] | None = None,
    data: bytes = b"",
    *,
    version: int = 3,
    alignment: int = 32,
) -> bytes:
    """A file with honest counts: header, metadata, tensor table, padding, data."""
    pairs, tensors = pairs or [], tensors or []
    front = head(len(tensors), len(pairs), version) + b"".join(pairs) + b"".join(tensors)
    return front + bytes(-len(front) % alignment) + data


def small_model() -> bytes:
    """A sound file with every kind of value, three tensors and 96 bytes of data."""
    pairs = [
        text("general.architecture", "llama"),
        scalar("llama.block_count", U32, 2),
        scalar("llama.rope.freq_base", F32, 10000.0),
        scalar("tokenizer.ggml.add_bos_token", BOOL, 1),
        array("tokenizer.ggml.tokens", STRING, ["<s>", "a", "", "\u00e9\u4e16"]),
        array("tokenizer.ggml.scores", F32, [0.0, -1.0, -2.0, -3.5]),
        array("flags", BOOL, [1, 0, 1]),
    ]
    tensors = [tensor("a", (4, 2), 0, 0), tensor("b", (8,), 1, 32), tensor("c", (32,), 2, 64)]
    return whole(pairs, tensors, bytes(range(96)))
