"""Turn a GGUF's pieces and scores into a `sentencepiece` model, and keep it on disk: Gemma's takes half a second.

Knows sentencepiece's protobuf (sentencepiece_model.proto, field numbers below) and the cache folder, not how text is
cut. A cache that is damaged, foreign or cannot be written means building again, never an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import ModelFileError
from ..gguf import StringArray
from ..paths import home
from . import vocab

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

# Below this a model is built in a few hundredths of a second, and a file would cost more than it saves.
MIN_CACHED_PIECES = 16384
_FORMAT = b"edgellm-spm-1"
_DIGEST_BYTES = 32

# Field 3 of a piece. User-defined pieces count as normal: `special.py` has cut out all of them that stand in the text.
_TYPE_FIELD = {
    vocab.UNKNOWN: b"\x18\x02",
    vocab.CONTROL: b"\x18\x03",
    vocab.UNUSED: b"\x18\x05",
    vocab.BYTE: b"\x18\x06",
}


def load_processor(metadata: Mapping[str, Any], types: vocab.Types) -> SentencePieceProcessor:
    """Return a processor whose ids are the GGUF's. Raises ModelFileError where the pieces contradict each other."""
    count = len(types)
    scores = vocab.get_numbers(metadata, "tokenizer.ggml.scores", count)
    if scores is None:
        raise ModelFileError("the metadata lacks tokenizer.ggml.scores, which a SentencePiece vocabulary needs")
    scores = np.ascontiguousarray(scores, np.float32)
    unknown = vocab.get_id(metadata, "unknown_token_id", count, 0)
    assert unknown is not None
    path = None
    if count >= MIN_CACHED_PIECES:
        path = _cache_path(_digest(metadata, scores, types, unknown))
        if (kept := _read(path)) is not None and (processor := _make_processor(kept)) is not None:
            return processor
    model = make_model(vocab.raw_texts(metadata, "tokenizer.ggml.tokens"), scores, types, unknown)
    processor = _make_processor(model)
    if processor is None or processor.get_piece_size() != count:
        raise ModelFileError("the vocabulary's pieces contradict each other (a text twice, or bytes missing)")
    if path is not None:
        _write(path, model)
    return processor


def make_model(texts: list[bytes], scores: npt.NDArray[np.float32], types: vocab.Types, unknown: int) -> bytes:
    """Return a serialised ModelProto: the pieces, then TrainerSpec and NormalizerSpec that add nothing of their own."""
    vocab.decode_texts(texts, "tokenizer.ggml.tokens")
    lengths = [_varint(i) for i in range(max(map(len, texts)) + 64)]
    packed = scores.tobytes()
    # sentencepiece wants exactly one unknown piece, and all bytes or none.
    never_made = (vocab.UNKNOWN,) if _has_all_bytes(types) else (vocab.UNKNOWN, vocab.BYTE)
    parts = []
    for i, (text, kind) in enumerate(zip(texts, types.tolist(), strict=True)):
        text = text or b"[EMPTY_%d]" % i
        kind = vocab.UNKNOWN if i == unknown else vocab.CONTROL if kind in never_made else kind
        piece = b"\x0a" + lengths[len(text)] + text + b"\x15" + packed[4 * i : 4 * i + 4] + _TYPE_FIELD.get(kind, b"")
        parts.append(b"\x0a" + lengths[len(piece)] + piece)
    parts.append(_message(2, _trainer(types, unknown)))
    parts.append(_message(3, _message(1, b"identity") + b"".join(_number(field, 0) for field in (3, 4, 5))))
    return b"".join(parts)


def _trainer(types: vocab.Types, unknown: int) -> bytes:
    """TrainerSpec: model_type (3) is BPE, byte_fallback (35) where all 256 bytes are there, unk_id (40), no other."""
    fields = [(3, 2), (35, int(_has_all_bytes(types))), (40, unknown), (41, -1), (42, -1), (43, -1)]
    return b"".join(_number(field, value) for field, value in fields)


def _has_all_bytes(types: vocab.Types) -> bool:
    return int(np.count_nonzero(types == vocab.BYTE)) == 256


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _make_processor(model: bytes) -> SentencePieceProcessor | None:
    from sentencepiece import SentencePieceProcessor

    processor = SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
    except RuntimeError:
        return None
    return processor


def _digest(metadata: Mapping[str, Any], scores: npt.NDArray[np.float32], types: vocab.Types, unknown: int) -> str:
    tokens: Any = metadata.get("tokenizer.ggml.tokens")
    content = hashlib.blake2b(_FORMAT, digest_size=_DIGEST_BYTES)
    content.update(struct.pack("<QQ", len(types), unknown))
    content.update(scores.data)
    content.update(types.data)
    if isinstance(tokens, StringArray):
        with tokens.view() as stored:
            content.update(stored)
    else:
        texts = vocab.raw_texts(metadata, "tokenizer.ggml.tokens")
        content.update(np.fromiter(map(len, texts), np.int64, len(texts)).data)
        content.update(b"".join(texts))
    return content.hexdigest()


def _cache_path(digest: str) -> Path:
    return home() / "tokenizers" / f"{digest}.spm"


def _read(path: Path) -> bytes | None:
    """Return a kept model, or None where there is none or its bytes are not those that were written."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    check, model = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return model if hashlib.blake2b(model, digest_size=_DIGEST_BYTES).digest() == check else None


def _write(path: Path, model: bytes) -> None:
    """Keep a model; other processes see all of it or none."""
    name = None
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as file:
            name = file.name
            file.write(hashlib.blake2b(model, digest_size=_DIGEST_BYTES).digest() + model)
        os.replace(name, path)
        name = None
    if name is not None:
        with contextlib.suppress(OSError):
            os.unlink(name)
