"""bf16: the upper half of a float32, to nearest even: any size of value, 8 bits of precision."""

from __future__ import annotations

import numpy as np

from .base import Floats
from .floats import Numbers, make

_LARGEST = np.uint32(0x7F7F0000).view(np.float32)


def _encode(x: Floats) -> Numbers:
    bits = np.ascontiguousarray(np.clip(x, -_LARGEST, _LARGEST)).view(np.uint32)
    rounded = bits + (np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)))
    kept: Numbers = (np.where(np.isnan(x), bits | np.uint32(0x400000), rounded) >> np.uint32(16)).astype(np.uint16)
    return kept


FORMAT = make("bf16", np.uint16, _encode, lambda bits: (bits.astype(np.uint32) << np.uint32(16)).view(np.float32))
