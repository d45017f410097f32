"""What formats of short codes share: a code of one to four bits stands for an int8 value, groups have small integer
scales, and float scales d come per row. Packed layout, tile and expand kernels.

Knows no format: each gives its table of values and unpacks its own bytes. The codes' places are those of cpu/unpack.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base import Bytes, Codes, Floats, Kernel, Packed
from .places import code_at

_KINDS = {1: "one_bit", 2: "two_bits", 3: "three_bits", 4: "nibbles"}


@dataclass(frozen=True, slots=True)
class Coded:
    """Packed: `groups` groups of 32 columns, each 32 bytes per bit of a code and `scales` int8 per row; then d f16[8].

    values: what each code means. scales: of a row's group, none, one, or two (one per 16 columns). factor: a power of two
    that d is multiplied with. A weight is d * factor * scale * value.
    """

    values: tuple[int, ...]
    bits: int
    scales: int = 0
    factor: float = 1.0
    groups: int = 8

    @property
    def group_bytes(self) -> int:
        return 32 * self.bits + 8 * self.scales

    def meaning(self, d: Floats, scale: NDArray[Any], codes: Bytes) -> Floats:
        """Values f32[n, K] of codes u8[n, K] under d f32[n, 1] and integers scale[n, runs]; every product is exact."""
        step = d * np.float32(self.factor) * scale.astype(np.float32)
        runs = np.array(self.values, np.float32)[codes].reshape(*step.shape, -1)
        values: Floats = (step[:, :, None] * runs).reshape(codes.shape)
        return values

    def packed(self, pack: Callable[[Any], Kernel]) -> Packed:
        codes = Codes(_KINDS[self.bits], unsigned_table(self.values))
        return Packed(32 * self.groups, codes, 8 * self.scales, self.tile, pack, self.expand, tail=16)

    def tile(self, w: Any) -> Kernel:
        """Integer sums of scale * value * activation are exact. Per group: s = fma(sum, activation scale, s).
        Per `groups`: acc = fma(d * factor, s, acc).
        """
        dot, times, groups = w.dot_codes(self.values, self.scales), w.times(self.factor), self.groups

        def kernel(p, x, units, y, stride, flags, ahead):
            acc = w.zero()
            for _ in range(units):
                s = w.zero()
                for _ in range(groups):
                    w.fetch(p + ahead)
                    s = w.fma_x(s, dot(p, x), x)
                    p, x = p + w.STRIDE, x + w.GROUP
                acc = w.fma_d(acc, times(w.half(p)), s)
                p += w.TAIL
            w.store(y, stride, acc, flags)

        return kernel

    def expand(self, w: Any) -> Kernel:
        code, value = code_at(w, self.bits), w.table(self.values)
        groups, group_bytes, scales, at = self.groups, self.group_bytes, self.scales, 32 * self.bits
        factor = np.float32(self.factor)

        def kernel(p, lane, out, units):
            for _ in range(units):
                d = w.load_f16(p + groups * group_bytes + 2 * lane) * factor
                for _ in range(groups):
                    for i in range(32):
                        v = value(code(p + 4 * lane, i))
                        if scales > 0:
                            v *= w.load_s8(p + at + lane * scales + i * scales // 32)
                        w.store_f32(out + 4 * i, d * w.to_f32(v))
                    p, out = p + group_bytes, out + 128
                p += 16

        return kernel


def offset_of(values: Sequence[int]) -> int:
    """Bits of the power of two that makes all values unsigned."""
    return max(0, -min(values) - 1).bit_length()


def unsigned_table(values: Sequence[int]) -> tuple[int, ...]:
    """The values plus that power of two, as a table of sixteen; none if the codes are these already."""
    table = [v + (1 << offset_of(values)) for v in values]
    assert min(table) >= 0 and max(table) <= 127, "kernels take unsigned weights of up to 127"
    return () if table == list(range(len(table))) else (*table, *[0] * (16 - len(table)))
