"""Kernels of cache formats that hold integers and scales: i16, q8_0, q4_h. See cache_kernels.py for what they must do.

Queries and weights become int16 too, so that products are int16's two by two and sums of a group exact int32: a score is the
sum over groups of sum * (scale of token * scale of query), groups in order. Weights of a tile times its values' scales become
int16 once per group, by a factor that lets no sum overflow; a weight of 0 stays 0 whatever the scale, so a token out of reach
changes nothing. Meaning and layout: ../cache_formats; words: pair_words.py, cache_codes.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..cache_formats import i16, integers, q4_h, q8_0
from . import pair_words
from .cache_codes import (
    absolute,
    holds,
    larger_magnitude,
    putters,
    room,
    store_i16x8,
    store_products,
    times_unless_zero,
)
from .rotate import rotate
from .row_counts import by_count
from .simd import (
    add,
    f32_of_bits,
    fill,
    fma,
    function,
    inline,
    keep,
    largest_magnitude,
    load_f16,
    load_f16x32,
    load_f32x8,
    load_f32x32,
    maximum,
    minimum,
    mul,
    reduce_add,
    rint,
    splat8,
    splat32,
    sqrt,
    store_f16,
    store_f32,
    store_f32x32,
)

Kernel = Callable[..., None]
_SMALLEST_SCALE = np.float32(1e-38)
_STRIPE = 16
_FACTORS = 6 * 128  # in the room of weights: six rows of 64 int16, then their factors


@dataclass(frozen=True)
class _Kind:
    """A format: its layout, the magnitude that its scale can still keep, the range of its codes, what is rotated."""

    layout: integers.Layout
    largest: float
    low: float
    high: float
    turns: tuple[int, int] = (0, 0)


_KINDS = {
    "i16": _Kind(i16.LAYOUT, float(i16.LARGEST), -32767.0, 32767.0),
    "q8_0": _Kind(q8_0.LAYOUT, float(q8_0.LARGEST), -127.0, 127.0, q8_0.TURNS),
    "q4_h": _Kind(q4_h.LAYOUT, float(q4_h.LARGEST), -8.0, 7.0, q4_h.TURNS),
}


def make(part: str, format: str) -> Kernel:
    """Source of one kernel of a format."""
    makers: dict[str, Callable[[_Kind], Kernel]] = {
        "store_k": _make_store_k,
        "store_v": _make_store_v,
        "ready": _make_ready,
        "score": _make_score,
        "weigh": _make_weigh,
    }
    return makers[part](_KINDS[format])


# ---- a head as floats, and as codes ----
@inline
def _inverse(scale):
    return np.float32(1) / scale if absolute(scale) > _SMALLEST_SCALE else np.float32(0)


@inline
def _codes(v, by, low, high):
    """v * by as whole numbers low..high; what is not a number becomes `high`."""
    return rint(maximum(minimum(mul(v, by), fill(v, high)), fill(v, low)))


def _make_head(kind: _Kind, of_keys: bool) -> Any:
    largest, turns = kind.largest, kind.turns[0 if of_keys else 1]

    @inline
    def head(x, by, dim, to):
        """f32[dim] at x times `by` to f32[dim padded with zeros to 32], as the format rotates it."""
        zero = splat32(np.float32(0))
        for d in range(0, dim, 32):
            v = keep(mul(load_f32x32(x + 4 * d), splat32(by)), 0, dim - d, zero)
            store_f32x32(to + 4 * d, maximum(fill(v, -largest), minimum(fill(v, largest), v)))
        if turns > 0:
            rotate(to, dim, turns)
            for d in range(0, dim, 32):
                v = load_f32x32(to + 4 * d)
                store_f32x32(to + 4 * d, maximum(fill(v, -largest), minimum(fill(v, largest), v)))

    return head


@inline
def _largest(x, dim):
    v = load_f32x32(x)
    for d in range(32, dim, 32):
        v = larger_magnitude(v, load_f32x32(x + 4 * d))
    return largest_magnitude(v)


@inline
def _length(x, dim):
    acc = splat32(np.float32(0))
    for d in range(0, dim, 32):
        v = load_f32x32(x + 4 * d)
        acc = fma(v, v, acc)
    return sqrt(reduce_add(acc))


def _make_scale(kind: _Kind, of_keys: bool) -> Any:
    """-> put the scale of f32[dims] at x where it belongs; returns its inverse."""
    high, bits = np.float32(kind.high), kind.layout.bits

    @inline
    def scale_i16(x, dims, to):
        scale = (_length(x, dims) if of_keys else _largest(x, dims)) / high
        store_f32(to, scale)
        return _inverse(scale)

    @inline
    def scale_q8_0(x, dims, to):
        store_f16(to, _largest(x, dims) / high)
        return _inverse(load_f16(to))

    @inline
    def scale_q4_h(x, dims, to):
        size = _largest(x, dims)
        size = -size if holds(load_f32x32(x), size) else size
        store_f16(to, size / np.float32(8))
        return _inverse(load_f16(to))

    return {16: scale_i16, 8: scale_q8_0, 4: scale_q4_h}[bits]


# ---- storing ----
def _make_store_k(kind: _Kind) -> Kernel:
    layout, head, scale_of = kind.layout, _make_head(kind, True), _make_scale(kind, True)
    group, put_k, low, high = layout.group, putters(layout.bits).put_k, kind.low, kind.high
    step, one, width = pair_words.step_bytes(layout.bits), max(2, layout.bits // 4), layout.scale_bytes(1)
    stripe_bytes = _stripe_bytes(kind)

    def store_k(x, tile, slot, dim):
        values, at, lane = room(), tile + slot // _STRIPE * stripe_bytes(dim), slot % _STRIPE
        head(x, np.float32(1), dim, values)
        every = group if group > 0 else dim
        for first in range(0, dim, every):
            dims = min(every, dim - first)
            scales = at + dims // 8 * step
            by = splat8(scale_of(values + 4 * first, dims, scales + lane * width))
            for d in range(first, first + dims, 8):
                put_k(at + lane * one, _codes(load_f32x8(values + 4 * d), by, low, high))
                at += step
            at += _STRIPE * width

    return store_k


def _make_store_v(kind: _Kind) -> Kernel:
    layout, head, scale_of = kind.layout, _make_head(kind, False), _make_scale(kind, False)
    group, put_v, low, high = layout.group, putters(layout.bits).put_v, kind.low, kind.high
    pair, one, width = 4 * layout.bits, max(1, layout.bits // 8), layout.scale_bytes(1)

    def store_v(x, tile, slot, dim):
        values, at = room(), tile
        head(x, np.float32(1), dim, values)
        every = group if group > 0 else dim
        for first in range(0, dim, every):
            dims = min(every, dim - first)
            by = splat8(scale_of(values + 4 * first, dims, at + slot * width))
            at += 64 * width
            for d in range(first, first + dims, _STRIPE):
                u, v = load_f32x8(values + 4 * d), load_f32x8(values + 4 * d + 32)
                to = at + slot // 2 * pair + slot % 2 * one
                put_v(to, _codes(u, by, low, high), _codes(v, by, low, high))
                at += 32 * pair

    return store_v


def _stripe_bytes(kind: _Kind) -> Any:
    """-> bytes of a stripe of a K tile."""
    group, step, scales = kind.layout.group, pair_words.step_bytes(kind.layout.bits), kind.layout.scale_bytes(_STRIPE)

    @inline
    def stripe_bytes(dim):
        return dim // 8 * step + ((dim + group - 1) // group if group > 0 else 1) * scales

    return stripe_bytes


# ---- queries, and q.k ----
@inline
def _query_bytes(dim):
    """As integers.query_bytes: int16[dim], scale f32, padding."""
    return (2 * dim + 4 + 63) // 64 * 64


def _make_ready(kind: _Kind) -> Kernel:
    head, by_length = _make_head(kind, True), kind.layout.group == 0

    def ready(src, src_stride, scale, shared, dim, rows, to):
        values = room()
        for i in range(rows):
            head(src + i // shared * src_stride + 4 * (i % shared) * dim, f32_of_bits(scale), dim, values)
            factor = (_length(values, dim) if by_length else _largest(values, dim)) / np.float32(32767)
            by = splat8(_inverse(factor))
            for d in range(0, dim, 8):
                store_i16x8(to + 2 * d, _codes(load_f32x8(values + 4 * d), by, -32767.0, 32767.0))
            store_f32(to + 2 * dim, factor)
            to += _query_bytes(dim)

    return ready


def _words(kind: _Kind, of_values: bool, rows: int) -> Any:
    scale = pair_words.scale_f32 if kind.layout.scale is np.float32 else pair_words.scale_f16
    return pair_words.stripe_words(kind.layout.bits, of_values, rows, scale)


_COUNTS = (6, 4, 3, 2, 1)


@inline
def _at_once(left):
    """How many rows to take next, one of _COUNTS: six use every register, and one alone wastes most."""
    if left == 7 or left == 8:
        return 4
    return 6 if left >= 6 else (3 if left == 5 else left)


def _make_score(kind: _Kind) -> Kernel:
    layout, stripe_bytes = kind.layout, _stripe_bytes(kind)
    step, scales, group = pair_words.step_bytes(layout.bits), layout.scale_bytes(_STRIPE), layout.group

    def strip_of(rows: int) -> Any:
        w = _words(kind, False, rows)

        @function
        def strip(p, x, stride, dim, to, ahead):
            every = group if group > 0 else dim
            for first in range(0, dim, every):
                acc = w.zero()
                for d in range(first, min(first + every, dim), 8):
                    w.fetch(ahead)
                    acc = w.mac(acc, p, x + 2 * d, stride)
                    p, ahead = p + step, ahead + step
                w.scores(acc, p, x + 2 * dim, stride, to, first)
                p, ahead = p + scales, ahead + scales

        return strip

    strip = by_count(strip_of, _COUNTS)

    def score(k_tile, n, q, rows, dim, scores, ahead):
        stride, p = _query_bytes(dim), k_tile
        for to in range(scores, scores + 4 * n, 4 * _STRIPE):
            i = 0
            while i < rows:
                count = _at_once(rows - i)
                strip(count, p, q + i * stride, stride, dim, to + 256 * i, ahead + (p - k_tile))
                i += count
            p += stripe_bytes(dim)

    return score


# ---- weights @ V ----
def _make_weights(kind: _Kind) -> Any:
    """-> one row's weights times the scales of a group as int16[64], and the factor that makes floats of sums."""
    by_sum, load = kind.layout.group == 0, load_f32x32 if kind.layout.scale is np.float32 else load_f16x32
    width = kind.layout.scale_bytes(1)

    @inline
    def scaled_weights(weights, scales, to, factor):
        a = times_unless_zero(load_f32x32(weights), load(scales))
        b = times_unless_zero(load_f32x32(weights + 128), load(scales + 32 * width))
        if by_sum:  # 32000 and the rounding of 64 weights, times 32767, fit an int32
            size, end = reduce_add(add(a, b)), np.float32(32000)
        else:
            size, end = largest_magnitude(larger_magnitude(a, b)), np.float32(32767)
        scale = size / end
        by = splat32(_inverse(scale))
        store_products(to, a, by)
        store_products(to + 64, b, by)
        store_f32(factor, scale)

    return scaled_weights


def _make_weigh(kind: _Kind) -> Kernel:
    layout, scaled_weights = kind.layout, _make_weights(kind)
    step, scales, group = pair_words.step_bytes(layout.bits), layout.scale_bytes(64), layout.group

    def some_of(rows: int) -> Any:
        w = _words(kind, True, rows)

        @function
        def some(p, n, weights, rescales, dim, sums, stride, ahead):
            codes = room()
            every = group if group > 0 else dim
            for first in range(0, dim, every):
                for r in range(rows):
                    scaled_weights(weights + 256 * r, p, codes + 128 * r, codes + _FACTORS + 4 * r)
                p, ahead = p + scales, ahead + scales
                for d in range(first, min(first + every, dim), _STRIPE):
                    acc = w.zero()
                    for t in range(0, n, 8):
                        w.fetch(ahead + t // 8 * step)
                        acc = w.mac(acc, p + t // 8 * step, codes + 2 * t, 128)
                    w.fold(acc, codes + _FACTORS, rescales, sums + 4 * d, stride)
                    p, ahead = p + 8 * step, ahead + 8 * step

        return some

    some = by_count(some_of, _COUNTS)

    def weigh(v_tile, n, weights, rescales, rows, dim, sums, ahead):
        stride, i = (dim + 31) // 32 * 128, 0
        while i < rows:
            count = _at_once(rows - i)
            some(count, v_tile, n, weights + 256 * i, rescales + 4 * i, dim, sums + i * stride, stride, ahead)
            i += count

    return weigh
