"""A kernel for each number of rows that is taken together, called by that number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .simd import inline


def by_count(make: Callable[[int], Any], counts: tuple[int, ...]) -> Any:
    """-> call(count, *operands) of make(count); `count` is one of `counts`."""
    first, rest = make(counts[0]), counts[1:]
    if not rest:

        @inline
        def last(count, *operands):
            first(*operands)

        return last
    number, others = counts[0], by_count(make, rest)

    @inline
    def call(count, *operands):
        if count == number:
            first(*operands)
        else:
            others(count, *operands)

    return call
