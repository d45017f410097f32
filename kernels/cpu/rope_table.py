"""Cosines and sines of the positions of a batch: constant memory however far a sequence has come.

Pages of 64 positions are computed when first needed and kept while there is room; each batch's rows are copied from them
to where the `rope` kernel looks. Knows no batch but its positions. Next hop: `../rope.py` for the angles.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from .. import rope as rope_math
from ..ops import Rope
from .memory import aligned

PAGE = 64  # positions
_LEAST_PAGES = 64
_MORE_PAGES = 2  # of each sequence of a batch: its tokens may begin and end inside one


class RopeTable:
    """values: f32[rows, 2, dim], per token of the batch the cosines, then the sines with the sign that the partner gets.

    Tokens beyond `last_position` turn as if they were there. Pages are always computed whole, so that a row does not
    depend on who asked first.
    """

    def __init__(
        self,
        rope: Rope,
        factors: NDArray[np.float32] | None,
        last_position: int | None = None,
        *,
        rows: int = 1,
        max_sequences: int = 1,
    ) -> None:
        self._rope, self._factors, self._last = rope, factors, last_position
        self._pages: dict[int, NDArray[np.float32]] = {}
        self._max_pages = max(_LEAST_PAGES, rows // PAGE + _MORE_PAGES * max_sequences)
        self.values = aligned(rows * rope.dim * 8).view(np.float32).reshape(rows, 2, rope.dim)
        self._first = self.values[0]

    def take_one(self, position: int) -> None:
        """Make row 0 that of `position`: a decode step, in well under a microsecond."""
        self._first[:] = self._page(position // PAGE)[position % PAGE]

    def take(self, positions: NDArray[np.int64]) -> None:
        """Make the first rows those of positions i64[T]."""
        pages, at = positions // PAGE, positions % PAGE
        edges = [0, *(np.flatnonzero(pages[1:] != pages[:-1]) + 1).tolist(), len(pages)]
        if len(edges) > len(pages):  # a step of many sequences: no slices, whose cost is all there is
            for row, (number, i) in enumerate(zip(pages.tolist(), at.tolist(), strict=True)):
                self.values[row] = self._page(number)[i]
            return
        for begin, end in itertools.pairwise(edges):
            self.values[begin:end] = self._page(int(pages[begin]))[at[begin:end]]

    def _page(self, number: int) -> NDArray[np.float32]:
        page = self._pages.get(number)
        if page is None:
            if len(self._pages) >= self._max_pages:
                del self._pages[next(iter(self._pages))]  # the one made first
            page = self._pages[number] = self._make(number)
        return page

    def _make(self, number: int) -> NDArray[np.float32]:
        half = self._rope.dim // 2
        if self._rope.pairs == "halves":
            first, second = slice(0, half), slice(half, 2 * half)
        else:
            first, second = slice(0, None, 2), slice(1, None, 2)
        page = np.empty((PAGE, 2, self._rope.dim), np.float32)
        at = np.arange(number * PAGE, (number + 1) * PAGE, dtype=np.int64)
        cos, sin = rope_math.cos_sin(self._rope, at, self._factors, self._last)
        page[:, 0, first] = page[:, 0, second] = cos
        page[:, 1, first], page[:, 1, second] = -sin, sin
        return page
