"""Look through a row of logits with compiled kernels: what `vocabulary.py` above says in NumPy, at a tenth of the time.

One thread, no tape: a row is 1 MB at most and needs 50 us. Results do not depend on the instruction level. Knows addresses and
values. Next hop: `scan.py` has the kernels.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from .. import vocabulary
from ..vocabulary import Floats, Ids, best, pick
from . import slots
from .memory import address, aligned
from .objects import CHUNK_FUNCTION

KERNELS = ("scan_peaks", "scan_reaching", "scan_weights", "scan_forbid", "scan_depths", "scan_moments")
_LANES = 32
_BLOCK = 64 * _LANES  # values of a block, as scan.py has it


def _word(value: float) -> int:
    """A float32 as a record holds it."""
    return int.from_bytes(struct.pack("<f", value), "little")


class CpuVocabulary(vocabulary.Vocabulary):
    """Vocabulary on rows of one length. kernels: addresses of KERNELS."""

    def __init__(self, kernels: Mapping[str, int], vocab_size: int) -> None:
        super().__init__()
        self._size, self._whole = vocab_size, vocab_size // _LANES
        vectors = self._whole + 1
        blocks = -(-vectors * _LANES // _BLOCK)
        self._rest = aligned(4 * _LANES).view(np.float32)
        self._peaks = aligned(4 * blocks * _LANES).view(np.float32)
        self._weights = aligned(4 * vectors * _LANES).view(np.float32)
        self._sums = aligned(8 * blocks).view(np.float32).reshape(2, blocks)
        self._moments = aligned(8 * blocks).view(np.float32).reshape(-1, 2)
        self._ids = aligned(8 * vectors * _LANES).view(np.int64)
        self._number, self._poison = aligned(8).view(np.int64), aligned(4).view(np.float32)
        self._record = aligned(8 * slots.OP_WORDS).view(np.int64)
        self._words, self._at = self._record.data, address(self._record)
        self._calls = {name: CHUNK_FUNCTION(kernels[name]) for name in KERNELS}
        self._words[slots.ARG + 1], self._words[slots.ARG + 2] = self._whole, address(self._rest)
        where = (self._peaks, self._ids, self._weights, self._sums, self._moments, self._number, self._poison)
        self._addresses = {id(array): address(array) for array in where}

    def read(self, row: Floats) -> float:
        assert row.shape == (self._size,) and row.dtype == np.float32
        self.row = row if row.flags.c_contiguous else np.ascontiguousarray(row)
        self._rest.fill(-np.inf)
        self._rest[: self._size - self._whole * _LANES] = self.row[self._whole * _LANES :]
        self._words[slots.ARG] = address(self.row)
        self._run("scan_peaks", self._to(self._peaks), self._to(self._poison))
        self.top = float("nan") if self._poison[0] != self._poison[0] else float(self._peaks.max())
        return self.top

    def top_ids(self, k: int) -> Ids:
        bound = self._bound(k)
        return super().top_ids(k) if bound == -np.inf else best(self.row, self.reaching(bound), k)

    def likely(self, k: int) -> Ids:
        bound = self._bound(k)
        return super().top_ids(k) if bound == -np.inf else self.reaching(bound)

    def _bound(self, k: int) -> float:
        """A value that at least k reach, and not many more: -inf if there is none, or finding it is not worth it.

        The k-th largest of the columns' peaks is at most the k-th largest value.
        """
        count = len(self._peaks)
        return float(np.partition(self._peaks, count - k)[count - k]) if k <= count // 4 else -np.inf

    def reaching(self, bound: float) -> Ids:
        word = _word(max(bound, vocabulary.LOWEST))
        self._run("scan_reaching", self._to(self._peaks), word, self._to(self._ids), self._to(self._number))
        return self._ids[: int(self._number[0])].astype(np.intp)

    def weigh(self, scale: float = 1.0) -> float:
        factor = _word(scale * vocabulary.LOG2_E)
        self._run("scan_weights", _word(self.top), factor, self._to(self._weights), self._to(self._sums))
        self.weights = self._weights[: self._size]
        total, moment = self._sums.sum(axis=1, dtype=np.float64)
        self.mean_depth = float(moment / total) / vocabulary.LOG2_E
        return float(total)

    def pick(self, share: float) -> int:
        sums = np.cumsum(self._sums[0], dtype=np.float64)
        block = pick(self._sums[0], share * sums[-1])
        within = share * sums[-1] - (sums[block - 1] if block else 0.0)
        return block * _BLOCK + pick(self._weights[block * _BLOCK : (block + 1) * _BLOCK], within)

    def depths(self, per_unit: float, count: int) -> NDArray[np.float64]:
        masses = aligned(32 * (count + 1)).view(np.float32)
        bound = _word(max(self.top - count / per_unit, vocabulary.LOWEST))
        places = self._to(self._weights), address(masses)
        self._run("scan_depths", _word(self.top), _word(per_unit), bound, *places, _word(float(count)))
        return masses.reshape(-1, 8)[:count].sum(axis=1, dtype=np.float64)

    def forbid_below(self, bound: float) -> None:
        self._run("scan_forbid", self._to(self._peaks), _word(bound))
        for values in (self._rest, self.row[self._whole * _LANES :]):
            values[values < np.float32(bound)] = -np.inf

    def moments(self) -> tuple[int, float, float]:
        self._run("scan_moments", _word(self.top), self._to(self._moments), self._to(self._number))
        count = int(self._number[0])
        mean, square = self._moments.sum(axis=0, dtype=np.float64) / count
        return count, self.top + float(mean), float(np.sqrt(max(square - mean * mean, 0.0)))

    def _to(self, array: NDArray[np.generic]) -> int:
        return self._addresses[id(array)]

    def _run(self, name: str, *arguments: int) -> None:
        """Call a kernel on the row that `read` was given."""
        at = slots.ARG + 3
        for i, argument in enumerate(arguments):
            self._words[at + i] = argument
        self._calls[name](self._at, 0, 0, 0)
