"""A kernel that only reads memory: the yardstick that decode is measured against."""

from __future__ import annotations

import numpy as np

from .simd import add, arg, load_f32x32, prefetch, splat32, store_f32x32


def read_memory(op, ctx, thread, chunk):
    """Read one piece, in one stream or two.

    0 memory, 1 bytes of a piece (a multiple of 1024), 2 where 128 bytes per chunk may be written, 3 bytes from one stream to
    the other: 256 makes one stream of both, half a piece makes two. 4 bytes to go on after each step: 512 or 256.
    """
    p, n, apart, step = arg(op, 0) + chunk * arg(op, 1), arg(op, 1), arg(op, 3), arg(op, 4)
    a = b = c = d = splat32(np.float32(0))
    for i in range(0, n, 512):
        q = p + i // 512 * step
        r = q + apart
        for line in range(4):
            prefetch(q + 1024 + 64 * line)
            prefetch(r + 1024 + 64 * line)
        a, b = add(a, load_f32x32(q)), add(b, load_f32x32(q + 128))
        c, d = add(c, load_f32x32(r)), add(d, load_f32x32(r + 128))
    store_f32x32(arg(op, 2) + 128 * chunk, add(add(a, b), add(c, d)))


KERNELS = {f.__name__: f for f in (read_memory,)}
