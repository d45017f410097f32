"""Share out a batch's attention: which queries attend to which splits of the cache, and where partial results go.

Few tokens of a sequence (decode, drafts) make one task per split, so that threads have work; many (prefill) make one task
per block of tokens over all its splits. Both give the same bits: see `fold` in attention.py.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .slots import (
    END_SPLIT,
    FIRST_SPLIT,
    FIRST_TOKEN,
    NUM_TOKENS,
    PARTIAL_ROW,
    SPLIT,
    TABLE,
)

FEW = 8
"""At most this many tokens of a sequence are shared out by splits."""


def max_partial_rows(max_tokens: int, max_sequences: int, max_context: int) -> int:
    """Partial rows that any batch needs."""
    splits = -(-max_context // SPLIT) + 1
    return max_tokens + min(max_tokens, FEW * max_sequences) * splits


def max_tasks(max_tokens: int, max_sequences: int, max_context: int) -> int:
    """Tasks that any batch needs: one per split and sequence, or one per token."""
    return max_tokens + max_sequences * (-(-max_context // SPLIT) + 1)


def runs(sequences: NDArray[np.int32]) -> list[tuple[int, int]]:
    """(first token, end) of each sequence's tokens in the batch."""
    edges = np.flatnonzero(np.diff(sequences)) + 1
    bounds = [0, *edges.tolist(), len(sequences)]
    return list(zip(bounds[:-1], bounds[1:], strict=True))


def share_out(
    tasks: NDArray[np.int64],
    where: NDArray[np.int64],
    positions: NDArray[np.int64],
    sequences: NDArray[np.int32],
    window: int | None,
    block: int,
) -> int:
    """Write tasks i64[n, TASK_WORDS], and per token (first partial row, rows, step) into where i64[T, 3]. -> n.

    block: most tokens of a prefill task.
    """
    count = row = 0
    for start, end in runs(sequences):
        table = int(sequences[start])
        few = end - start <= FEW
        step = end - start if few else block
        for first in range(start, end, step):
            n = min(step, end - first)
            low = 0 if window is None else max(0, int(positions[first]) - window + 1)
            splits = range(low // SPLIT, int(positions[first + n - 1]) // SPLIT + 1)
            pieces = [(s, s + 1) for s in splits] if few else [(splits.start, splits.stop)]
            where[first : first + n, 0] = np.arange(row, row + n)
            where[first : first + n, 1:] = len(pieces), n
            for a, b in pieces:
                tasks[count, [FIRST_TOKEN, NUM_TOKENS, FIRST_SPLIT, END_SPLIT]] = first, n, a, b
                tasks[count, [PARTIAL_ROW, TABLE]] = row, table
                count += 1
                row += n
    return count


