"""Number formats, one file each: byte layout and meaning. `get` finds one by the name GGML gives it.

To add one: write its file, then import it here and list it in `_MODULES`.
"""

from __future__ import annotations

from ...errors import UnsupportedError
from . import (
    bf16,
    f16,
    f32,
    iq1_m,
    iq1_s,
    iq2_s,
    iq2_xs,
    iq2_xxs,
    iq3_s,
    iq3_xxs,
    iq4_nl,
    iq4_xs,
    mxfp4,
    nvfp4,
    q1_0,
    q2_k,
    q3_k,
    q4_0,
    q4_1,
    q4_k,
    q5_0,
    q5_1,
    q5_k,
    q6_k,
    q8_0,
    tq1_0,
    tq2_0,
)
from .base import Format

_PLAIN = (f32, f16, bf16)
_SIMPLE = (q4_0, q4_1, q5_0, q5_1, q8_0, iq4_nl, mxfp4, nvfp4)
_SUPERS = (q2_k, q3_k, q4_k, q5_k, q6_k, iq4_xs)
_SHORT_CODES = (q1_0, tq1_0, tq2_0, iq1_s, iq1_m, iq2_xxs, iq2_xs, iq2_s, iq3_xxs, iq3_s)
_MODULES = (*_PLAIN, *_SIMPLE, *_SUPERS, *_SHORT_CODES)
FORMATS: dict[str, Format] = {module.FORMAT.name: module.FORMAT for module in _MODULES}

__all__ = ["FORMATS", "Format", "get"]


def get(type_name: str) -> Format:
    """Find a format by GGML's name for it, such as "Q4_1"; UnsupportedError names those there are."""
    try:
        return FORMATS[type_name]
    except KeyError:
        known = ", ".join(sorted(FORMATS))
        raise UnsupportedError(
            f"weights in the format {type_name} are not supported; get the model in one of: {known}"
        ) from None
