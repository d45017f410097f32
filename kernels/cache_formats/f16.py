"""f16: half precision, to nearest even; the reference that other formats' losses are counted from."""

from __future__ import annotations

import numpy as np

from .base import Floats
from .floats import Numbers, make

_LARGEST = np.float32(65504)


def _encode(x: Floats) -> Numbers:
    return np.clip(x, -_LARGEST, _LARGEST).astype(np.float16).view(np.uint16)


FORMAT = make("f16", np.uint16, _encode, lambda bits: bits.view(np.float16).astype(np.float32))
