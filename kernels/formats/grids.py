"""The tables of the IQ formats: grids of four or eight values that an index stands for, and signs from seven bits.

They are thousands of chosen numbers, so they come from the gguf package, when a kernel is compiled or a format's meaning is
asked for: a warm start reads none. What this adds is their form: codes (numbers of a grid's distinct values), one a byte.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base import Bytes


@cache
def grid(name: str) -> NDArray[np.uint8]:
    """Codes u8[entries, 4 or 8] of a format's grid: 0 stands for its lowest value."""
    from gguf import quants

    kind: Any = getattr(quants, name)
    kind.init_grid()
    codes: NDArray[np.uint8] = np.searchsorted(kind.grid_map, kind.grid.reshape(kind.grid_shape)).astype(np.uint8)
    codes.flags.writeable = False
    return codes


def grid_words(name: str) -> list[int]:
    """The grid's entries as integers, one code a byte, the first lowest."""
    codes = grid(name)
    numbers: list[int] = codes.view(f"<u{codes.shape[1]}")[:, 0].tolist()
    return numbers


def signs_of_seven(index: NDArray[Any]) -> Bytes:
    """Sign bits u8[...]: seven as they are; the eighth makes their number even, as the quantiser chose them."""
    seven = index.astype(np.uint8) & np.uint8(127)
    parity = seven ^ seven >> 4
    parity = parity ^ parity >> 2
    parity = (parity ^ parity >> 1) & np.uint8(1)
    signs: Bytes = seven | parity << np.uint8(7)
    return signs


def with_signs(codes: Bytes, signs: Bytes, bit: int) -> Bytes:
    """Codes u8[n, ..., 4 or 8] of a group's values in order, with their signs (eight to a byte, u8[n, ...]) as bit `bit`."""
    n = len(codes)
    each = np.unpackbits(signs.reshape(n, -1), axis=1, bitorder="little")
    signed: Bytes = codes.reshape(n, -1) | each << np.uint8(bit)
    return signed


def nibble_pairs(field: Bytes) -> Bytes:
    """u8[n, m] -> u8[n, 2 m]: each byte's low nibble, then its high one."""
    return np.stack([field & np.uint8(15), field >> np.uint8(4)], axis=2).reshape(len(field), -1)


def sign_spreader(w: Any) -> Any:
    """A helper of pack kernels: the signs of a seven-bit index, each as the lowest bit of a byte of a word."""
    each = np.unpackbits(signs_of_seven(np.arange(128))[:, None], axis=1, bitorder="little")
    return w.table(each.view("<u8")[:, 0].tolist(), 64)
