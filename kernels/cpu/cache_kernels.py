"""The kernels of a cache format: their names, operands and sources. Attention calls them by address and knows no format.

All operands are int64. A tile is 64 tokens of one kv head; F is the format's name; K's and V's formats are chosen apart.

- `store_k_F(x, tile, slot, dim)`, `store_v_F(x, tile, slot, dim)`: put f32[dim] at x into slot 0..63 of a tile. What exceeds
  the format's range becomes its largest; a NaN stays visible.
- `ready_F(src, src_stride, scale, shared, dim, rows, to)`: rows of queries times a factor (f32 bits), as `score` reads them,
  `query_bytes` each: row i is head i % shared of token i // shared.
- `score_F(k_tile, n, q, rows, dim, scores, ahead)`: q.k of every row with tokens 0..n-1 into f32[rows, 64]; other tokens get
  any bits. Prefetches the tile at `ahead`.
- `weigh_F(v_tile, n, weights, rescales, rows, dim, sums, ahead)`: sums[r] = sums[r] * rescales[r] + weights[r] @ V over tokens
  0..n-1: f32[rows, dim padded to 32], with weights f32[rows, 64] and rescales f32[rows]. Weights may be overwritten. Those out
  of a row's reach are 0 and must not change its bits; neither may other rows.

`ready` takes room for HALF more floats than it says; so does every operand that it reads. Next hop: `cache_floats.py` and
`cache_integers.py` write them.
"""

from __future__ import annotations

from collections.abc import Callable

from .. import cache_formats

OPERANDS = {"store_k": 4, "store_v": 4, "ready": 7, "score": 7, "weigh": 8}
_OF_K, _OF_V = ("store_k", "ready", "score"), ("store_v", "weigh")
_FLOATS = ("f16", "bf16", "e4m3", "e5m2")
_INTEGERS = ("i16", "q8_0", "q4_h")
FORMATS = (*_FLOATS, *_INTEGERS)


def names(k_format: str, v_format: str) -> dict[str, str]:
    """Part -> name of the kernel, for a cache of these formats."""
    return {part: f"{part}_{k_format}" for part in _OF_K} | {part: f"{part}_{v_format}" for part in _OF_V}


def query_bytes(k_format: str, dim: int) -> int:
    """Bytes of one row that `ready` writes."""
    return cache_formats.get(k_format).query_bytes(dim)


def find(name: str) -> tuple[str, str] | None:
    """-> (part, format) of a kernel's name, None if it is none of these."""
    for part in OPERANDS:
        if name.startswith(f"{part}_"):
            return part, name[len(part) + 1 :]
    return None


def make(part: str, format: str) -> Callable[..., None]:
    """Source of a kernel."""
    from . import cache_floats, cache_integers

    kernel: Callable[..., None] = (cache_integers if format in _INTEGERS else cache_floats).make(part, format)
    return kernel
