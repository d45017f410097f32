"""Which layers see a window of tokens only: what a file's metadata say of it.

Next hop: `blocks.py`, whose attention takes a window.
"""

from __future__ import annotations

import numpy as np

from ..errors import ModelFileError
from .hparams import HParams


def read_windows(h: HParams, num_layers: int, period: int, default: int = 0) -> list[int | None]:
    """Per layer its window in tokens, the current one included; None for a layer that sees everything.

    period: the last of as many layers sees everything, 0: none does; unless the file says otherwise. default: tokens, if the
    file does not say; 0: everything. Raises ModelFileError.
    """
    window = h.integer("attention.sliding_window", default, low=0)
    if window == 0:
        return [None] * num_layers
    pattern = h.get("attention.sliding_window_pattern", period)
    if isinstance(pattern, np.ndarray):
        if len(pattern) != num_layers or pattern.dtype.kind not in "biu":
            raise ModelFileError(
                f"{h.architecture}.attention.sliding_window_pattern holds {len(pattern)} values of {pattern.dtype},"
                f" but must say yes or no for each of {num_layers} layers"
            )
        return [window if is_local else None for is_local in pattern]
    period = h.integer("attention.sliding_window_pattern", period, low=0)
    return [None if period and i % period == period - 1 else window for i in range(num_layers)]
