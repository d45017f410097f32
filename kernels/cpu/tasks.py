"""Share out a batch's attention: which queries attend to which splits of the cache, and where partial results go.

Few tokens of a sequence (decode, drafts) make one task per split, so that threads have work; many (prefill) make one task
per block of tokens over all its splits. Both give the same bits: see `fold` in attention.py.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from .slots import SPLIT

FEW = 8
"""At most this many tokens of a sequence are shared out by splits."""


def max_partial_rows(max_tokens: int, max_sequences: int, reach: int) -> int:
    """Partial rows that any batch needs. reach: positions that a batch's tokens look back on."""
    splits = -(-reach // SPLIT) + 2
    return max_tokens + min(max_tokens, FEW * max_sequences) * splits


def max_tasks(max_tokens: int, max_sequences: int, reach: int) -> int:
    """Tasks that any batch needs: one per split and sequence and one for sink tokens, or one per token."""
    return max_tokens + max_sequences * (-(-reach // SPLIT) + 2)


def runs(sequences: NDArray[np.int32]) -> list[tuple[int, int]]:
    """(first token, end) of each sequence's tokens in the batch."""
    if len(sequences) == 1:
        return [(0, 1)]
    edges = np.flatnonzero(sequences[1:] != sequences[:-1]) + 1
    return list(itertools.pairwise([0, *edges.tolist(), len(sequences)]))


def share_out(
    tasks: memoryview | NDArray[np.int64],
    where: memoryview | NDArray[np.int64],
    positions: NDArray[np.int64],
    sequences: NDArray[np.int32],
    window: int | None,
    num_sink_tokens: int,
    block: int,
    is_causal: bool = True,
) -> int:
    """Write tasks i64[n, TASK_WORDS], and per token (first partial row, rows, step) into where i64[T, 3]. -> n.

    window, num_sink_tokens, is_causal: the layers' reach. block: most tokens of a prefill task.
    """
    count = row = 0
    for start, end in runs(sequences):
        table = int(sequences[start])
        few = end - start <= FEW
        step = end - start if few else block
        for first in range(start, end, step):
            n = min(step, end - first)
            low = 0 if window is None else max(0, int(positions[first]) - window + 1)
            last = int(positions[first + n - 1])
            if not is_causal:
                ahead = int(positions[end - 1])  # the sequence's last: all of it is in the batch
                last = ahead if window is None else min(ahead, last + window - 1)
            splits = range(low // SPLIT, last // SPLIT + 1)
            sinks = int(window is not None and num_sink_tokens > 0 and last >= window)  # some have left a window
            pieces = [(s, s + 1, 0) for s in splits] if few else [(splits.start, splits.stop, sinks)]
            if few and sinks:
                pieces.insert(0, (splits.start, splits.start, 1))
            for token in range(n):
                where[first + token, 0], where[first + token, 1], where[first + token, 2] = row + token, len(pieces), n
            for begin, stop, sink in pieces:
                for word, value in enumerate((first, n, begin, stop, row, table, sink, last)):  # FIRST_TOKEN to LAST
                    tasks[count, word] = value
                count += 1
                row += n
    return count
