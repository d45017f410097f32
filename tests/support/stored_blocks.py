"""Made-up blocks for tests of what is kept on disk: their bytes follow from their tokens, so that any reader can check them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from edgellm.cache.identity import Identity
from edgellm.cache.model_hash import ModelHash, stamp
from edgellm.cache.record import node_key
from edgellm.cache.tree import ROOT_KEY
from edgellm.kernels.cache_layout import BLOCK_SIZE
from edgellm.kernels.ops import Builder, CacheLayer, Program

BLOCK_BYTES = (5000, 3000)


def payload(parent: bytes, token_ids: Sequence[int], group: int, nbytes: int | None = None) -> bytes:
    """What the block of these tokens holds."""
    seed = parent + repr((list(token_ids), group)).encode()
    return hashlib.shake_128(seed).digest(BLOCK_BYTES[group] if nbytes is None else nbytes)


def chain(token_ids: Sequence[int]) -> list[tuple[bytes, tuple[int, ...]]]:
    """-> (parent, tokens) of each block of a prompt, from the first."""
    found, parent = [], ROOT_KEY
    for start in range(0, len(token_ids), BLOCK_SIZE):
        tokens = tuple(token_ids[start : start + BLOCK_SIZE])
        found.append((parent, tokens))
        parent = node_key(parent, tokens)
    return found


def make_program(window: int | None = None) -> Program:
    """A network of one attention layer."""
    builder = Builder()
    x = builder.embed("table", 32)
    return builder.finish(builder.attention(x, x, x, 1, CacheLayer(1, 32, window), 1.0))


def make_identity(
    folder: Path,
    model: bytes = b"a model",
    formats: tuple[str, str] = ("f16", "f16"),
    window: int | None = None,
    block_bytes: tuple[int, ...] = BLOCK_BYTES,
) -> Identity:
    """The identity of a made-up model, whose file is written to `folder`."""
    path = folder / f"{hashlib.sha256(model).hexdigest()[:8]}.gguf"
    if not path.exists():
        path.write_bytes(model)
    return Identity(
        make_program(window), formats, False, block_bytes, ModelHash([(path, stamp(path.stat()))], str, folder)
    )
