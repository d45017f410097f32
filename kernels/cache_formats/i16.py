"""i16: int16 with one float32 scale per token and head: finer than f16 for all but tiny values, and multiplied faster.

A key's largest possible code stands for its length: with |k| and |q| at most 32767 in the Euclidean sense, the sum of their
products fits an int32 whatever the head size (Cauchy and Schwarz). A value's stands for its largest magnitude.
"""

from __future__ import annotations

import numpy as np

from .base import Floats
from .integers import Codes, Layout, make
from .rounding import largest, length, to_codes

LARGEST = np.float32(2.0**59)  # beyond, the square of a head's length would exceed float32
LAYOUT = Layout(16, 0, np.float32)


def quantise_k(x: Floats) -> tuple[Codes, np.float32]:
    """Also for queries."""
    return to_codes(x, length(x) / np.float32(32767), -32767, 32767)


def quantise_v(x: Floats) -> tuple[Codes, np.float32]:
    return to_codes(x, largest(x) / np.float32(32767), -32767, 32767)


FORMAT = make("i16", LAYOUT, LARGEST, quantise_k, quantise_v)
