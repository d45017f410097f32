"""What keys and values depend on beside the tokens: the weights, the program, the formats, the kernels' arithmetic.

Two engines share what they keep only if all of it is the same. Threads, chunks, the layout of weights in memory and the
instruction level change no bit and have no part in it. Next hops: `model_hash.py` for the weights, `disk.py`, `state.py`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence

from ..kernels.cache_layout import BLOCK_SIZE
from ..kernels.numerics import NUMERICS_VERSION
from ..kernels.ops import Program
from .model_hash import ModelHash
from .tree import KEY_BYTES

NAMES = {
    "model": "the model's weights",
    "cache_type_k": "cache_type_k",
    "cache_type_v": "cache_type_v",
    "precise": "precise",
    "program": "the window, the first tokens kept or the way positions are turned",
    "numerics": "the version of edgellm's arithmetic",
    "blocks": "the layout of blocks",
}
"""What people call the parts."""


class Identity:
    """The parts of an identity; the hash of the weights is made when it is first needed, and may take seconds.

    block_bytes: per cache group, what a block measures.
    """

    def __init__(
        self, program: Program, formats: tuple[str, str], precise: bool, block_bytes: Sequence[int], model: ModelHash
    ) -> None:
        self.block_bytes = tuple(block_bytes)
        self.model = model
        self._parts = {
            "cache_type_k": formats[0],
            "cache_type_v": formats[1],
            "precise": str(precise),
            "program": _digest(repr((program.ops, program.output, program.cache_layers))),
            "numerics": str(NUMERICS_VERSION),
            "blocks": f"{BLOCK_SIZE} {sys.byteorder} {' '.join(map(str, block_bytes))}",
        }

    def parts(self, model: str) -> dict[str, str]:
        """Return all parts by name. model: what `ModelHash` found."""
        return {"model": model, **self._parts}


def digest(parts: Mapping[str, str]) -> bytes:
    """Return the KEY_BYTES that stand for the parts in records and names of folders."""
    text = json.dumps(dict(parts), sort_keys=True).encode()
    return hashlib.blake2b(text, digest_size=KEY_BYTES).digest()


def differing(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Name the parts that differ, for people, the most telling first."""
    found = [name for name in NAMES if ours.get(name) != theirs.get(name)]
    found += sorted(name for name in theirs if name not in NAMES)
    return [_describe(name, ours.get(name), theirs.get(name)) for name in found]


def _describe(name: str, ours: str | None, theirs: str | None) -> str:
    words = NAMES.get(name, name[:64])
    if name in ("model", "program", "blocks") or name not in NAMES or ours is None or theirs is None:
        return words
    return f"{words} ({theirs[:32]} there, {ours} here)"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
