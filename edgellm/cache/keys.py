"""Names of token prefixes: a node's key says all tokens up to its end, so equal keys mean equal keys and values."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

KEY_BYTES = 16
ROOT_KEY = bytes(KEY_BYTES)
"""The key of no tokens at all."""


def node_key(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """Return the key of the node that holds `token_ids` after what `parent` stands for."""
    return hashlib.blake2b(parent + np.asarray(token_ids, "<i4").tobytes(), digest_size=KEY_BYTES).digest()
