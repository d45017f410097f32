"""The order of float operations of formats with short codes, in NumPy: what their `tile` docstrings say.

The weights' integers come from the gguf package, with every scale d set to one; only Q1_0 is not known to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Expected = Callable[[Bytes, Any], Floats]
Fma = Callable[..., Floats]


def half_places(name: str, rows: Bytes) -> tuple[Floats, Bytes]:
    """-> the scales d f32[N, groups] of raw rows, and the rows with every d set to one."""
    groups = rows.reshape(len(rows), -1, GGML_QUANT_SIZES[GGMLQuantizationType[name]][1]).copy()
    if name == "IQ1_M":  # d lies in the top four bits of four words
        words = groups[..., 48:].view("<u2")
        parts = (words >> 12) << np.array([0, 4, 8, 12], np.uint16)
        d = np.bitwise_or.reduce(parts, axis=-1)
        words[:] = words & 0x0FFF | np.array([0x0000, 0x0000, 0xC000, 0x3000], np.uint16)
    else:
        at = slice(-2, None) if name.startswith("TQ") else slice(0, 2)
        d = np.ascontiguousarray(groups[..., at]).view("<u2")[..., 0]
        groups[..., at] = np.array([0x00, 0x3C], np.uint8)
    return d.view(np.float16).astype(np.float32), groups.reshape(rows.shape)


def _weights(name: str, rows: Bytes) -> Floats:
    if name == "Q1_0":
        bits = np.unpackbits(rows.reshape(len(rows), -1, 18)[..., 2:], axis=-1, bitorder="little")
        return np.where(bits.reshape(len(rows), -1), np.float32(1), np.float32(-1))
    return quants.dequantize(rows, GGMLQuantizationType[name]).reshape(len(rows), -1)


def _sums(integers: Floats, acts: Any, size: int) -> NDArray[np.int64]:
    """Integer sums i64[T, N, K / size]."""
    w = integers.astype(np.int64)
    assert np.array_equal(w, integers)
    x = acts.values.reshape(len(acts.values), -1, size).astype(np.int64)
    return np.einsum("ngk,tgk->tng", w.reshape(len(w), -1, size), x)


def _coded(name: str, fma: Fma, factor: float, groups: int = 8) -> Expected:
    """Per group of 32: s = fma(sum, activation scale, s). Per `groups` of them: acc = fma(d * factor, s, acc)."""

    def expected(raw: Bytes, acts: Any) -> Floats:
        d, ones = half_places(name, raw)
        sums = _sums(_weights(name, ones) / np.float32(factor), acts, 32)
        acc = np.zeros((len(acts.values), len(raw)), np.float32)
        for i in range(d.shape[1]):
            s = np.zeros_like(acc)
            for g in range(groups * i, groups * i + groups):
                s = fma(sums[:, :, g], acts.scales[:, g : g + 1], s)
            acc = fma(d[:, i] * np.float32(factor), s, acc)
        return acc

    return expected


def _nvfp4(fma: Fma) -> Expected:
    """Per 16 columns: acc = fma(sum, d * activation scale, acc)."""

    def expected(raw: Bytes, acts: Any) -> Floats:
        groups = raw.reshape(len(raw), -1, 36).copy()
        d = quants.NVFP4.ue4m3_to_fp32(groups[..., :4]).astype(np.float32).reshape(len(raw), -1)
        groups[..., :4] = 0x40  # one
        sums = _sums(_weights("NVFP4", groups.reshape(raw.shape)), acts, 16)
        acc = np.zeros((len(acts.values), len(raw)), np.float32)
        for g in range(d.shape[1]):
            acc = fma(sums[:, :, g], d[:, g] * acts.scales[:, g // 2, None], acc)
        return acc

    return expected


def make_expected(fma: Fma) -> dict[str, Expected]:
    """-> {format: expected(raw, activations)}. fma: the float32 multiply-add that rounds once."""
    factors = {"TQ1_0": 1.0, "TQ2_0": 1.0, "IQ3_XXS": 1 / 2, "IQ3_S": 1.0}
    factors |= dict.fromkeys(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S"), 1 / 8)
    coded = {name: _coded(name, fma, factor) for name, factor in factors.items()}
    return coded | {"Q1_0": _coded("Q1_0", fma, 1.0, groups=4), "NVFP4": _nvfp4(fma)}
