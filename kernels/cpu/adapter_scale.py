"""The kernel between the two matrices of an adapter: each row times what its sequence wants of the adapter.

A matrix of its own follows on both sides (`linear`), so this is all that sequences of one batch differ in. Knows no file
and no name. Next hop: `adapted.py`, which writes the scales.
"""

from __future__ import annotations

import numpy as np

from .simd import arg, arg_f32, load_f32, load_f32x32, load_i64, mul, operand, splat32, store_f32x32
from .slots import ADAPTER_SCALES, LOGIT_ROWS, MAX_ADAPTERS


def adapter_scale(op, ctx, thread, chunk):
    """One row times its scale; zeros where that is 0, so that whoever does not use an adapter gets no trace of it.

    0 x, 1 out, 2 bytes of a row, 3 groups of 32, 4 adapter, 5 rows are those whose logits are wanted (0: all), 6 factor.
    """
    row = load_i64(operand(ctx, LOGIT_ROWS) + 8 * chunk) if arg(op, 5) != 0 else chunk
    scale = load_f32(operand(ctx, ADAPTER_SCALES) + 4 * (row * MAX_ADAPTERS + arg(op, 4)))
    factor = splat32(scale * arg_f32(op, 6))
    x, out = arg(op, 0) + chunk * arg(op, 2), arg(op, 1) + chunk * arg(op, 2)
    for g in range(arg(op, 3)):
        if scale == np.float32(0):
            store_f32x32(out + 128 * g, splat32(np.float32(0)))
        else:
            store_f32x32(out + 128 * g, mul(load_f32x32(x + 128 * g), factor))


KERNELS = {"adapter_scale": adapter_scale}
