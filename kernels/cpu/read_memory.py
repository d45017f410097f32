"""A kernel that only reads memory: the yardstick that decode is measured against."""

from __future__ import annotations

import numpy as np

from .simd import add, arg, load_f32x32, prefetch, splat32, store_f32x32


def read_memory(op, ctx, thread, chunk):
    """Read one piece. 0 memory, 1 bytes of a piece (a multiple of 512), 2 where 128 bytes per chunk may be written."""
    p, n = arg(op, 0) + chunk * arg(op, 1), arg(op, 1)
    a = b = c = d = splat32(np.float32(0))
    for i in range(0, n, 512):
        q = p + i
        for line in range(8):
            prefetch(q + 1024 + 64 * line)
        a, b = add(a, load_f32x32(q)), add(b, load_f32x32(q + 128))
        c, d = add(c, load_f32x32(q + 256)), add(d, load_f32x32(q + 384))
    store_f32x32(arg(op, 2) + 128 * chunk, add(add(a, b), add(c, d)))


KERNELS = {f.__name__: f for f in (read_memory,)}
