"""What products with quantised matrices must be, in NumPy, down to the last bit: each format's order of float operations.

Integer sums are exact. Float operations follow the order that the `tile` of the format's file documents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from expected_tables import make_expected
from numpy.typing import NDArray

from edgellm.kernels import formats

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Activations:
    """What a row of activations becomes: values i8[T, G, 32], scales f32[T, G], scaled sums f32[T, G]."""

    values: NDArray[np.int8]
    scales: Floats
    sums: Floats


def quantised(x: Floats) -> Activations:
    """The definition: per group of 32 d = max|x| / 127, values rint(x * (1 / d)), sum d * sum of values; all float32."""
    groups = x.reshape(len(x), -1, 32)
    d = np.abs(groups).max(axis=-1) / np.float32(127)
    usable = d > np.float32(1e-38)
    inverse = np.where(usable, np.float32(1) / np.where(usable, d, 1), np.float32(0)).astype(np.float32)
    values = np.rint(np.minimum(groups * inverse[..., None], np.float32(127))).astype(np.int8)
    return Activations(values, d, d * values.sum(axis=-1, dtype=np.int32).astype(np.float32))


def fma(x: NDArray[Any], y: NDArray[Any], z: NDArray[Any]) -> Floats:
    """x * y + z of float32, rounded once.

    The product is exact in float64. The sum is rounded to odd there (its error, by Knuth's two-sum, says whether it was
    exact), which makes the second rounding, to float32, the only one that counts (Boldo and Melquiond 2008).
    """
    p, z = np.broadcast_arrays(np.float64(x) * np.float64(y), np.float64(z))
    s = p + z
    part = s - p
    error = (p - (s - part)) + (z - part)
    even = (s.view(np.int64) & 1) == 0
    odd = np.nextafter(s, np.where(error > 0, np.inf, -np.inf))
    result: Floats = np.where((error != 0) & even, odd, s).astype(np.float32)
    return result


def expected_product(name: str, raw: Bytes, x: Floats) -> Floats:
    """x times a raw matrix in the order of float operations that the format's `tile` documents. -> f32[T, N]."""
    if formats.get(name).packed.activation == "f32":
        weights = formats.get(name).dequantize(raw)
        even, odd = np.zeros((2, len(x), len(raw)), np.float32)
        for k in range(0, x.shape[1] - 1, 2):
            even = fma(weights[:, k], x[:, k : k + 1], even)
            odd = fma(weights[:, k + 1], x[:, k + 1 : k + 2], odd)
        if x.shape[1] % 2:
            even = fma(weights[:, -1], x[:, -1:], even)
        total: Floats = even + odd
        return total
    return _EXPECTED[name](raw, quantised(x))


def _half(field: Bytes) -> Floats:
    return np.ascontiguousarray(field).view("<f2")[..., 0].astype(np.float32)


def _dots(q: NDArray[Any], acts: Activations) -> NDArray[np.int64]:
    """Integer sums i64[T, N, G] of weights [N, G, 32] and activations."""
    return np.einsum("ngk,tgk->tng", q.astype(np.int64), acts.values.astype(np.int64))


def _nibbles(qs: Bytes) -> Bytes:
    return np.concatenate([qs & 15, qs >> 4], axis=-1)


def _simple(
    take: Callable[[Bytes], tuple[Any, Floats, Floats | None]], size: int
) -> Callable[[Bytes, Activations], Floats]:
    """Formats of one scale d per 32, and maybe an offset m: [fma(m, sum, acc)], then fma(integer sum, d * scale, acc)."""

    def expected(raw: Bytes, acts: Activations) -> Floats:
        q, d, m = take(raw.reshape(len(raw), -1, size))
        dots, acc = _dots(q, acts), np.zeros((len(acts.values), len(raw)), np.float32)
        for g in range(q.shape[1]):
            if m is not None:
                acc = fma(m[:, g], acts.sums[:, g : g + 1], acc)
            acc = fma(dots[:, :, g], d[:, g] * acts.scales[:, g : g + 1], acc)
        return acc

    return expected


def _take_q5_0(b: Bytes) -> tuple[Any, Floats, Floats | None]:
    high = np.unpackbits(b[..., 2:6], axis=-1, bitorder="little")
    return _nibbles(b[..., 6:]).astype(np.int8) + 16 * high.astype(np.int8) - 16, _half(b[..., :2]), None


def _q4_k(raw: Bytes, acts: Activations) -> Floats:
    from edgellm.kernels.formats.q4_k import scales_and_mins

    b = raw.reshape(len(raw), -1, 144)
    n, supers, _ = b.shape
    pairs = [scales_and_mins(b[:, i, 4:16]) for i in range(supers)]
    scale, minimum = (np.stack([pair[j] for pair in pairs], 1).reshape(n, -1).astype(np.int64) for j in (0, 1))
    dots = _dots(_nibbles(b[..., 16:].reshape(n, -1, 32)).reshape(n, -1, 32), acts) * scale
    acc = np.zeros((len(acts.values), n), np.float32)
    for i in range(supers):
        s, u = np.zeros_like(acc), np.zeros_like(acc)
        for g in range(8 * i, 8 * i + 8):
            s = fma(dots[:, :, g], acts.scales[:, g : g + 1], s)
            u = fma(minimum[:, g], acts.sums[:, g : g + 1], u)
        acc = fma(_half(b[:, i, 0:2]), s, acc)
        acc = fma(-_half(b[:, i, 2:4]), u, acc)
    return acc


def _symmetric(q: NDArray[Any], scale: NDArray[Any], d: Floats, acts: Activations) -> Floats:
    """Superblocks of integer weights and scales [N, runs, 16] and one d: s = fma(integer sum, scale, s), then fma(d, s, acc)."""
    n, supers = d.shape
    dots = _dots((q.astype(np.int64) * scale).reshape(n, -1, 32), acts)
    acc = np.zeros((len(acts.values), n), np.float32)
    for i in range(supers):
        s = np.zeros_like(acc)
        for g in range(8 * i, 8 * i + 8):
            s = fma(dots[:, :, g], acts.scales[:, g : g + 1], s)
        acc = fma(d[:, i], s, acc)
    return acc


def _pairs(field: Bytes, n: int) -> Bytes:
    """Bit pairs of each 32 bytes, the lowest ones first. -> u8[n, runs, 16]"""
    return np.stack([field.reshape(n, -1, 32) >> shift & 3 for shift in (0, 2, 4, 6)], 2).reshape(n, -1, 16)


def _q6_k(raw: Bytes, acts: Activations) -> Floats:
    b = raw.reshape(len(raw), -1, 210)
    low = _nibbles(b[..., :128].reshape(len(raw), -1, 64)).reshape(len(raw), -1, 16)
    q = (low | _pairs(b[..., 128:192], len(raw)) << 4).astype(np.int64) - 32
    scale = np.ascontiguousarray(b[..., 192:208]).view(np.int8).reshape(len(raw), -1, 1).astype(np.int64)
    return _symmetric(q, scale, _half(b[..., 208:210]), acts)


def _q3_k(raw: Bytes, acts: Activations) -> Floats:
    b, n = raw.reshape(len(raw), -1, 110), len(raw)
    high = np.stack([b[..., :32] >> g & 1 for g in range(8)], 2).reshape(n, -1, 16)
    q = (_pairs(b[..., 32:96], n) | high << 2).astype(np.int64) - 4
    top = np.concatenate([b[..., 104:108] >> shift & 3 for shift in (0, 2, 4, 6)], axis=-1)
    scale = (_nibbles(b[..., 96:104]) | top << 4).reshape(n, -1, 1).astype(np.int64) - 32
    return _symmetric(q, scale, _half(b[..., 108:110]), acts)


def _q2_k(raw: Bytes, acts: Activations) -> Floats:
    b, n = raw.reshape(len(raw), -1, 84), len(raw)
    scale, minimum = (part.reshape(n, -1, 1).astype(np.int64) for part in (b[..., :16] & 15, b[..., :16] >> 4))
    dots = _dots((_pairs(b[..., 16:80], n) * scale).reshape(n, -1, 32), acts)
    mins = _dots(np.broadcast_to(-minimum, (*minimum.shape[:2], 16)).reshape(n, -1, 32), acts)
    acc = np.zeros((len(acts.values), n), np.float32)
    for i in range(b.shape[1]):
        s, u = np.zeros_like(acc), np.zeros_like(acc)
        for g in range(8 * i, 8 * i + 8):
            s = fma(dots[:, :, g], acts.scales[:, g : g + 1], s)
            u = fma(mins[:, :, g], acts.scales[:, g : g + 1], u)
        acc = fma(_half(b[:, i, 80:82]), s, acc)
        acc = fma(_half(b[:, i, 82:84]), u, acc)
    return acc


_IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])
_E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12])  # doubled


def _take_iq4_xs(b: Bytes) -> tuple[Any, Floats, Floats | None]:
    n = len(b)
    high = np.ascontiguousarray(b[..., 2:4]).view("<u2") >> (2 * np.arange(8, dtype=np.uint16)) & 3
    low = np.stack([b[..., 4:8] & 15, b[..., 4:8] >> 4], -1).reshape(n, -1, 8)
    d = _half(b[..., :2])[..., None] * (low + 16 * high.astype(np.int32) - 32).astype(np.float32)
    return _IQ4[_nibbles(b[..., 8:].reshape(n, -1, 16))], d.reshape(n, -1), None


def _q5_1(raw: Bytes, acts: Activations) -> Floats:
    b = raw.reshape(len(raw), -1, 24)
    q = _nibbles(b[..., 8:]).astype(np.int64) + 16 * np.unpackbits(b[..., 4:8], axis=-1, bitorder="little") - 16
    d, m, dots = _half(b[..., :2]), _half(b[..., 2:4]), _dots(q, acts)
    acc = np.zeros((len(acts.values), len(raw)), np.float32)
    for g in range(q.shape[1]):
        acc = fma(m[:, g], acts.sums[:, g : g + 1], acc)
        acc = fma(16 * d[:, g], acts.sums[:, g : g + 1], acc)
        acc = fma(dots[:, :, g], d[:, g] * acts.scales[:, g : g + 1], acc)
    return acc


def _q5_k(raw: Bytes, acts: Activations) -> Floats:
    from edgellm.kernels.formats.q4_k import scales_and_mins

    b = raw.reshape(len(raw), -1, 176)
    n, supers, _ = b.shape
    pairs = [scales_and_mins(b[:, i, 4:16]) for i in range(supers)]
    scale, minimum = (np.stack([pair[j] for pair in pairs], 1).reshape(n, -1).astype(np.int64) for j in (0, 1))
    high = np.stack([b[..., 16:48] >> g & 1 for g in range(8)], 2).reshape(n, -1, 32).astype(np.int64)
    q = _nibbles(b[..., 48:].reshape(n, -1, 32)).reshape(n, -1, 32) + 16 * high - 16
    dots = _dots(q, acts) * scale
    acc = np.zeros((len(acts.values), n), np.float32)
    for i in range(supers):
        s, u = np.zeros_like(acc), np.zeros_like(acc)
        for g in range(8 * i, 8 * i + 8):
            s = fma(16 * scale[:, g], acts.sums[:, g : g + 1], s)
            s = fma(dots[:, :, g], acts.scales[:, g : g + 1], s)
            u = fma(minimum[:, g], acts.sums[:, g : g + 1], u)
        acc = fma(_half(b[:, i, 0:2]), s, acc)
        acc = fma(-_half(b[:, i, 2:4]), u, acc)
    return acc


_EXPECTED = {
    "Q4_0": _simple(lambda b: (_nibbles(b[..., 2:]).astype(np.int8) - 8, _half(b[..., :2]), None), 18),
    "Q5_1": _q5_1,
    "Q5_K": _q5_k,
    "Q4_1": _simple(lambda b: (_nibbles(b[..., 4:]), _half(b[..., :2]), _half(b[..., 2:4])), 20),
    "Q5_0": _simple(_take_q5_0, 22),
    "Q8_0": _simple(lambda b: (b[..., 2:].view(np.int8), _half(b[..., :2]), None), 34),
    "Q4_K": _q4_k,
    "Q6_K": _q6_k,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "IQ4_NL": _simple(lambda b: (_IQ4[_nibbles(b[..., 2:])], _half(b[..., :2]), None), 18),
    "IQ4_XS": _simple(_take_iq4_xs, 136),
    "MXFP4": _simple(
        lambda b: (_E2M1[_nibbles(b[..., 1:])], np.ldexp(np.float32(1), b[..., 0].astype(int) - 128), None), 17
    ),
    **make_expected(fma),
}
_WANTED = {name for name, format in formats.FORMATS.items() if format.packed.activation == "q8"}
assert set(_EXPECTED) == _WANTED, "a new format needs its order of float operations here"
