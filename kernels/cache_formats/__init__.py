"""Formats of cached keys and values, one file each: sizes, layout and meaning. `get` finds one by its name.

To add one: write its file, then import it here and list it in `_MODULES`. Kernels: ../cpu/cache_kernels.py.
"""

from __future__ import annotations

from ...errors import UnsupportedError
from . import bf16, e4m3, e5m2, f16, i16, q4_h, q8_0
from .base import CacheFormat

_MODULES = (f16, bf16, i16, q8_0, q4_h, e4m3, e5m2)
FORMATS: dict[str, CacheFormat] = {module.FORMAT.name: module.FORMAT for module in _MODULES}

__all__ = ["FORMATS", "CacheFormat", "get"]


def get(name: str) -> CacheFormat:
    """Find a format by its name, such as "q8_0"; UnsupportedError names those there are."""
    try:
        return FORMATS[name]
    except KeyError:
        raise UnsupportedError(f"no cache format is called {name}; there are: {', '.join(FORMATS)}") from None
