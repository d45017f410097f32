"""Number formats, one file each: byte layout and meaning. `get` finds one by the name GGML gives it.

To add one: write its file, then import it here and list it in `_MODULES`.
"""

from __future__ import annotations

from ...errors import UnsupportedError
from . import bf16, f16, f32, iq4_nl, iq4_xs, mxfp4, q2_k, q3_k, q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0
from .base import Format

_MODULES = (f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, iq4_xs, mxfp4)
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
