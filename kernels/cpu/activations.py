"""Kernels that put every value through a function: activations, gates, the cap of scores.

One exponential serves all of them; results go out as `elementwise._emit` says. A value that is no number stays one.
"""

from __future__ import annotations

from .elementwise import _emit
from .simd import (
    add,
    arg,
    arg_f32,
    div,
    exp,
    fill,
    fma,
    inline,
    load_f32x32,
    maximum,
    minimum,
    mul,
    splat32,
    sub,
)
from .slots import GELU, GELU_ERF, IDENTITY, RELU, SIGMOID, SOFTPLUS


@inline
def _nothing(x):
    """0 where x is a number, otherwise what it is."""
    bounded = maximum(fill(x, -1.0), minimum(fill(x, 1.0), x))
    return sub(bounded, bounded)


@inline
def _gelu_erf(x, size, e):
    """x times the normal distribution function, given |x| and e = exp(-x**2 / 2).

    For x < 0 the function is h = t P(t) e with t = 1 / (1 + 0.35 |x|), P of degree 8 fitted by us: 2.5e-7 of h. Otherwise 1 - h.
    """
    t = div(fill(x, 1.0), fma(size, fill(x, 0.35), fill(x, 1.0)))
    p = fma(t, fill(x, -0.029095206409692764), fill(x, 0.14372007548809052))
    p = fma(p, t, fill(x, -0.25518330931663513))
    p = fma(p, t, fill(x, 0.15855352580547333))
    p = fma(p, t, fill(x, -0.022671597078442574))
    p = fma(p, t, fill(x, 0.10531723499298096))
    p = fma(p, t, fill(x, 0.11988268792629242))
    p = fma(p, t, fill(x, 0.13985475897789001))
    p = fma(p, t, fill(x, 0.1396218240261078))
    return sub(maximum(fill(x, 0.0), x), mul(size, mul(mul(p, t), e)))


@inline
def _softplus(x, e):
    """max(x, 0) + log(1 + e), given e = exp(-|x|): log(1 + e) = 2 artanh(e / (2 + e)), a series in squares fitted by us: 4e-9."""
    s = div(e, add(e, fill(x, 2.0)))
    y = mul(s, s)
    p = fma(y, fill(x, 0.28178326029000444), fill(x, 0.2796060472892824))
    p = fma(p, y, fill(x, 0.40024910144830966))
    p = fma(p, y, fill(x, 0.666663146850373))
    p = fma(p, y, fill(x, 2.000000007920939))
    return fma(s, p, maximum(fill(x, 0.0), x))


@inline
def _activate(kind, x):
    """One of the activations of ops.py."""
    zero, one = fill(x, 0.0), fill(x, 1.0)
    if kind == IDENTITY:
        return x
    if kind == RELU:
        return maximum(zero, x)
    size = maximum(x, sub(zero, x))
    inner = x
    if kind == GELU:  # a sigmoid(2 u), u = sqrt(2 / pi) (a + 0.044715 a^3), since (1 + tanh u) / 2 = sigmoid(2 u)
        inner = mul(fma(mul(mul(x, x), x), fill(x, 0.044715), x), fill(x, 1.5957691216057308))
    elif kind == GELU_ERF:
        size = minimum(size, fill(x, 13.0))  # farther out there is nothing left of it
        inner = mul(mul(size, size), fill(x, 0.5))
    elif kind == SOFTPLUS:
        inner = size
    e = exp(sub(zero, inner))
    if kind == GELU_ERF:
        return _gelu_erf(x, size, e)
    if kind == SOFTPLUS:
        return _softplus(x, e)
    if kind == SIGMOID:
        return div(add(one, _nothing(x)), add(one, e))
    return div(x, add(one, e))


def gated(op, ctx, thread, chunk):
    """activation(gate) * up for some groups of 32 of one row, in place of the gate where out is the gate.

    0 gate, 1 up (0: there is none), 2 bytes of a row, 3 groups of a row, 4 groups of a chunk, 5 activation, 6.. out.
    """
    groups, some = arg(op, 3), arg(op, 4)
    blocks = (groups + some - 1) // some
    row, first = chunk // blocks, chunk % blocks * some
    for g in range(first, min(groups, first + some)):
        at = row * arg(op, 2) + 128 * g
        v = _activate(arg(op, 5), load_f32x32(arg(op, 0) + at))
        if arg(op, 1) != 0:
            v = mul(v, load_f32x32(arg(op, 1) + at))
        _emit(op, 6, ctx, thread, row, 128 * g, v, 32)


def softcap(op, ctx, thread, chunk):
    """cap * tanh(x / cap) for some groups of 32 of one row, where tanh u = 1 - 2 / (1 + exp(2 u)).

    0 x, 1 bytes of a row, 2 groups of a row, 3 groups of a chunk, 4 cap, 5.. out.
    """
    groups, some = arg(op, 2), arg(op, 3)
    blocks = (groups + some - 1) // some
    row, first = chunk // blocks, chunk % blocks * some
    cap = arg_f32(op, 4)
    for g in range(first, min(groups, first + some)):
        x = load_f32x32(arg(op, 0) + row * arg(op, 1) + 128 * g)
        e = exp(div(add(x, x), splat32(cap)))
        tanh = sub(fill(x, 1.0), div(add(fill(x, 2.0), _nothing(x)), add(e, fill(x, 1.0))))
        _emit(op, 5, ctx, thread, row, 128 * g, mul(tanh, splat32(cap)), 32)


KERNELS = {f.__name__: f for f in (gated, softcap)}
