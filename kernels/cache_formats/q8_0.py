"""q8_0: int8 in groups of 32 dims with a scale f16 each, as GGML's weights of that name: 0.53 of f16's bytes.

Groups of keys are rotated (rotation.py), which spreads a large value over its group: KL divergence from f16 0.0002 nats
instead of 0.0005 on SmolLM2-135M. Values lose a tenth of that as they are. Codes are rounded by the scale as it is stored, not
as it was before it was made a half.
"""

from __future__ import annotations

import numpy as np

from .base import Floats
from .integers import Codes, Layout, make
from .rounding import largest, to_codes

LARGEST = np.float32(65504 * 127)
LAYOUT = Layout(8, 32, np.float16)
TURNS = (32, 0)


def quantise(x: Floats) -> tuple[Codes, np.float32]:
    """f32[up to 32] -> codes -127..127 and their scale, a half."""
    scale = np.float32((largest(x) / np.float32(127)).astype(np.float16))
    return to_codes(x, scale, -127, 127)


FORMAT = make("q8_0", LAYOUT, LARGEST, quantise, quantise, turns=TURNS)
