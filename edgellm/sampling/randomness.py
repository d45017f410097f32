"""Random numbers by place: what is drawn at a position of an answer depends on the seed and that position alone.

So ids that are forced, taken back or guessed change nothing of what follows. Philox (Salmon et al. 2011) is a function of a
key and a counter, which is just that. Knows no distribution.
"""

from __future__ import annotations

from numpy.random import Philox


def uniforms(seed: int, position: int) -> tuple[float, float]:
    """Return two numbers from 0 to 1, 1 excluded, for a position of an answer: one to choose by, one for chances."""
    first, second = Philox(key=seed, counter=[position, 0, 0, 0]).random_raw(2)
    return (int(first) >> 11) * 2.0**-53, (int(second) >> 11) * 2.0**-53
