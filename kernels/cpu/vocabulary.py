"""Look through a row of logits with compiled kernels: what `vocabulary.py` above says in NumPy, at a tenth of the time.

All threads share a row, which is 1 MB at most: a scan is a tape of one op. Results do not depend on the instruction level or
the threads. Knows addresses and values. Next hop: `scan.py` has the kernels.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from .. import vocabulary
from ..vocabulary import Floats, Ids, best, find, pick
from . import slots
from .memory import address, aligned
from .objects import CHUNK_FUNCTION
from .tape import TapeWriter
from .threads import Threads

KERNELS = ("scan_peaks", "scan_best", "scan_reaching", "scan_weights", "scan_forbid", "scan_depths", "scan_moments")
_LANES = 32
_BLOCK = 64 * _LANES  # values of a block, as scan.py has it
_EACH = 8  # blocks of a chunk: some 2 us
_SHARED = 3 * _EACH  # blocks from which calling the other threads costs less than it saves
_PARTS = 4  # of a row, whose weights by depth are added up apart


def _word(value: float) -> int:
    """A float32 as a record holds it."""
    return int.from_bytes(struct.pack("<f", value), "little")


class _Scan:
    """One kernel, ready to run over a row. fixed: its first operands, from operand 1 on. threads: None for the caller alone."""

    def __init__(
        self, kernels: Mapping[str, int], name: str, fixed: tuple[int, int], calls: int, threads: Threads | None
    ) -> None:
        writer = TapeWriter(kernels, ())
        each = 1 if name == "scan_depths" else _EACH
        writer.op(name, (0, *fixed), calls, None, (), (), each)
        self._tape, self._threads, self._calls = writer.finish(), threads, calls
        self._tape.resize((1,))
        self._kernel, self._at = CHUNK_FUNCTION(kernels[name]), address(self._tape.records)
        self._words = self._tape.records[0].data

    def run(self, row: int, operands: tuple[int, ...]) -> None:
        """Scan the row at an address. operands: from operand 3 on."""
        self._words[slots.ARG] = row
        for i, operand in enumerate(operands, slots.ARG + 3):
            self._words[i] = operand
        if self._threads is not None:
            self._threads.run(self._tape)
            if not self._threads.ctx[slots.ABORT]:
                return
        # Alone; or the chunks may have been left out, because somebody has just stopped one sequence of several.
        for call in range(self._calls):
            self._kernel(self._at, 0, 0, call)


class CpuVocabulary(vocabulary.Vocabulary):
    """Vocabulary on rows of one length. kernels: addresses of KERNELS. threads: who shares the work, None for the caller."""

    def __init__(self, kernels: Mapping[str, int], vocab_size: int, threads: Threads | None = None) -> None:
        super().__init__()
        self._size, self._whole = vocab_size, vocab_size // _LANES
        vectors = self._whole + 1
        blocks = -(-vectors * _LANES // _BLOCK)
        self._num_rest = vocab_size % _LANES
        self._rest = aligned(4 * _LANES).view(np.float32)
        self._rest.fill(-np.inf)
        self._peaks = aligned(4 * blocks * _LANES).view(np.float32)
        self._weights = aligned(4 * vectors * _LANES).view(np.float32)
        self._sums = aligned(8 * blocks).view(np.float32).reshape(blocks, 2)
        self._moments = aligned(12 * blocks).view(np.float32).reshape(blocks, 3)
        self._ids = aligned(8 * vectors * _LANES).view(np.int64)
        self._number, self._best = aligned(8).view(np.int64), aligned(4 * _LANES).view(np.float32)
        self._number_view, self._best_view = self._number.data, self._best.data
        self._peaks_at, self._number_at, self._best_at = (
            address(self._peaks),
            address(self._number),
            address(self._best),
        )
        calls = dict.fromkeys(KERNELS, blocks) | {"scan_best": 1, "scan_reaching": 1, "scan_depths": _PARTS}
        fixed, team = (self._whole, address(self._rest)), threads if blocks >= _SHARED else None
        self._scans = {n: _Scan(kernels, n, fixed, c, team if c > 1 else None) for n, c in calls.items()}
        self._ids_at, self._weights_at = address(self._ids), address(self._weights)
        self._sums_at, self._moments_at = address(self._sums), address(self._moments)
        self._vectors_of_part = -(-vectors // _PARTS)

    def read(self, row: Floats) -> float:
        assert row.shape == (self._size,) and row.dtype == np.float32
        self.row = row if row.flags.c_contiguous else np.ascontiguousarray(row)
        self._row_at = address(self.row)
        if self._num_rest:
            self._rest[: self._num_rest] = self.row[-self._num_rest :]
        self._run("scan_peaks", self._peaks_at)
        self._run("scan_best", self._peaks_at, self._best_at, self._number_at)
        top = float(self._best_view[0])
        self.top, self.best_id = float("nan") if top == np.inf else top, self._number_view[0]
        return self.top

    def top_ids(self, k: int) -> Ids:
        bound = self._bound(k)
        return super().top_ids(k) if bound == -np.inf else best(self.row, self.reaching(bound), k)

    def likely(self, k: int) -> Ids:
        bound = self._bound(k)
        return super().likely(k) if bound == -np.inf else self.reaching(bound)

    def _bound(self, k: int) -> float:
        """A value that at least k reach, and not many more: -inf if there is none, or finding it is not worth it.

        The k-th largest of the columns' peaks is at most the k-th largest value.
        """
        count = len(self._peaks)
        return float(np.partition(self._peaks, count - k)[count - k]) if k <= count // 4 else -np.inf

    def reaching(self, bound: float) -> Ids:
        word = _word(max(bound, vocabulary.LOWEST))
        self._run("scan_reaching", self._peaks_at, word, self._ids_at, self._number_at)
        return self._ids[: self._number_view[0]].astype(np.intp)

    def weigh(self, scale: float = 1.0) -> float:
        factor = _word(scale * vocabulary.LOG2_E)
        self._run("scan_weights", _word(self.top), factor, self._weights_at, self._sums_at)
        self.weights = self._weights[: self._size]
        total, moment = self._sums.sum(axis=0, dtype=np.float64)
        self.mean_depth = float(moment / total) / vocabulary.LOG2_E
        return float(total)

    def pick(self, share: float) -> int:
        sums = np.add.accumulate(self._sums[:, 0], dtype=np.float64)
        wanted = share * float(sums[-1])
        block = find(sums, wanted)
        within = wanted - (float(sums[block - 1]) if block else 0.0)
        return block * _BLOCK + pick(self._weights[block * _BLOCK : (block + 1) * _BLOCK], within)

    def depths(self, per_unit: float, count: int) -> NDArray[np.float64]:
        masses = aligned(16 * _PARTS * (count + 1)).view(np.float32)
        bound = _word(max(self.top - count / per_unit, vocabulary.LOWEST))
        places = self._weights_at, address(masses), _word(float(count)), self._vectors_of_part
        self._run("scan_depths", _word(self.top), _word(per_unit), bound, *places)
        sums: NDArray[np.float64] = masses.reshape(_PARTS, -1, 4)[:, :count].sum(axis=(0, 2), dtype=np.float64)
        return sums

    def forbid_below(self, bound: float) -> None:
        self._run("scan_forbid", self._peaks_at, _word(bound))
        for values in (self._rest, self.row[self._whole * _LANES :]):
            values[values < np.float32(bound)] = -np.inf

    def moments(self) -> tuple[int, float, float]:
        self._run("scan_moments", _word(self.top), self._moments_at)
        once, twice, count = self._moments.sum(axis=0, dtype=np.float64)
        mean = float(once / count)
        return int(count), self.top + mean, float(np.sqrt(max(twice / count - mean * mean, 0.0)))

    def _run(self, name: str, *operands: int) -> None:
        """Scan the row that `read` was given."""
        self._scans[name].run(self._row_at, operands)
