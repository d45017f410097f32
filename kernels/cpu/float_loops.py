"""Loops of the cache's float formats: any number of rows of factors times lines of a tile. Words: float_rows.py."""

from __future__ import annotations

from typing import Any

from ..cache_layout import BLOCK_SIZE
from .float_elements import Element
from .float_rows import row_words
from .row_counts import by_count
from .simd import function, inline, prefetch

ROW_BYTES = 4 * BLOCK_SIZE  # one row's scores or weights of a tile
HALF_LINE = 64  # bytes of a line of 16-bit elements


@inline
def next_rows(left):
    """How many rows are taken together: six at a time, then what fills registers best."""
    if left >= 9 or left == 6:
        return 6
    if left == 5:
        return 5
    return min(left, 4)


def _make_block(form: Element, rows: int, vectors: int, begin: str, of_keys: bool) -> Any:
    """-> out[rows, 32] = begin + f[rows, n] @ lines[n, 32], `vectors` of eight at a time. Lines are of 16-bit elements.

    Factors lie as `ready` puts queries, or as weights; the first `skip` are passed over. Fetches n lines at `ahead`, evenly.
    """
    part = 16 * vectors
    gap, step = (4, 4 * rows) if of_keys else (ROW_BYTES, 4)
    w = row_words(rows, vectors, 2, gap, form.read)
    start = getattr(w, begin)

    @function
    def block(p, n, f, skip, out, out_stride, ahead, rescales):
        f += step * skip
        for first in range(0, HALF_LINE, part):
            to, following = out + 2 * first, ahead + first * n
            acc = start(to, out_stride, rescales)
            for i in range(n):
                prefetch(following + part * i)
                acc = w.step(acc, p + first + HALF_LINE * i, f + step * i)
            w.store(to, out_stride, acc)

    return block


def make_lines(form: Element, begin: str, of_keys: bool) -> Any:
    """The same for any number of rows; the factors of the next row lie `f_row` bytes on.

    begin: "zero", "scaled" (what is there, times rescales) or "loaded" (what is there).
    """
    block = by_count(lambda rows: _make_block(form, rows, 2 if rows > 3 else 4, begin, of_keys), (6, 5, 4, 3, 2, 1))

    @inline
    def lines(p, n, f, f_row, skip, out, out_stride, ahead, rescales, rows):
        i = 0
        while i < rows:
            count = next_rows(rows - i)
            block(count, p, n, f + i * f_row, skip, out + i * out_stride, out_stride, ahead, rescales + 4 * i)
            i += count
            ahead = p  # it is there now

    return lines
