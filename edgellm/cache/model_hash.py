"""The hash of all bytes of a model, made once: in the background, in pieces, and remembered.

A sample of the weights would be faster and could miss a change of a single tensor, which must never give a wrong answer; file
times alone would take a copied or touched file for another model, and could not be compared between machines. So everything
is hashed once, and what was found is remembered for exactly this file: its size, its times of change and of its inode, its
device and number, and a sample of its bytes (which is what is left to tell on systems where a program may set the times). A
file that changed less than two seconds before it was hashed is not remembered: a second change might have the same time.
Pieces are remembered one by one, so that many short runs come to an end too.

Knows paths and times, no GGUF. Next hop: `identity.py`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from .folder import make_private

PIECE_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 20
_PAUSE_BYTES = 16 << 20
_DIGEST_BYTES = 32
_FRESH_NS = 2_000_000_000
_MAGIC = b"edgellm model 1\n"


class Stopped(Exception):
    """Hashing ended before it was done, by request or because the file is not the one that was opened."""


def stamp(status: os.stat_result) -> tuple[int, ...]:
    """What changes when a file does, as far as the system tells."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev


class ModelHash:
    """SHA-256 over the SHA-256 of every piece of a model's files.

    files: the files in order, each with its `stamp` when it was opened. sample: makes a text that is another one when a sample
    of the bytes is; called once, when the hash is first wanted. folder: where to remember.
    """

    def __init__(self, files: Sequence[tuple[Path, tuple[int, ...]]], sample: Callable[[], str], folder: Path) -> None:
        self._files = list(files)
        self._sample = sample
        self._folder = folder
        self._lock = threading.Lock()
        self._result: str | None = None
        self._looked_up = False

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return sum(stamped[0] for _, stamped in self._files)

    def known(self) -> str | None:
        """Return the hash if it need not be made: it was, or is small enough not to be noticed."""
        if self._result is None and not self._looked_up:
            self._looked_up = True
            if self.nbytes <= PIECE_BYTES or len(self._remembered()) == self._num_pieces * _DIGEST_BYTES:
                with contextlib.suppress(Stopped):
                    self.compute()
        return self._result

    def compute(
        self, stopped: Callable[[], bool] = lambda: False, pause: Callable[[float], object] | None = None
    ) -> str:
        """Return the hash; makes what is not remembered.

        stopped: asked between megabytes. pause(seconds): called now and then with the time just taken, to leave the machine
        to others. Raises Stopped.
        """
        with self._lock:
            if self._result is None:
                self._result = self._compute(stopped, pause)
            return self._result

    @property
    def _num_pieces(self) -> int:
        return sum(-(-stamped[0] // PIECE_BYTES) for _, stamped in self._files)

    def _compute(self, stopped: Callable[[], bool], pause: Callable[[float], object] | None) -> str:
        known = self._remembered()
        pieces = [known[i : i + _DIGEST_BYTES] for i in range(0, len(known), _DIGEST_BYTES)]
        try:
            for path, offset, stamped in list(self._pieces())[len(pieces) :]:
                pieces.append(_hash_piece(path, offset, stamped, stopped, pause))
        finally:
            found = b"".join(pieces)
            if len(found) > len(known) and self._is_settled():
                self._remember(found)
        sizes = repr([stamped[0] for _, stamped in self._files])
        return hashlib.sha256(sizes.encode() + found).hexdigest()

    def _pieces(self) -> Iterator[tuple[Path, int, tuple[int, ...]]]:
        for path, stamped in self._files:
            yield from ((path, offset, stamped) for offset in range(0, stamped[0], PIECE_BYTES))

    def _is_settled(self) -> bool:
        last = max(max(stamped[1:3]) for _, stamped in self._files)
        return abs(time.time_ns() - last) > _FRESH_NS

    @cached_property
    def _path(self) -> Path:
        text = repr(([stamped for _, stamped in self._files], self._sample(), PIECE_BYTES))
        return self._folder / hashlib.sha256(text.encode()).hexdigest()[:32]

    def _remembered(self) -> bytes:
        """Return the digests of the first pieces, as many as are known."""
        try:
            data = self._path.read_bytes()
        except OSError:
            return b""
        body, seal = data[len(_MAGIC) : -_DIGEST_BYTES], data[-_DIGEST_BYTES:]
        sound = data.startswith(_MAGIC) and hashlib.sha256(body).digest() == seal and len(body) % _DIGEST_BYTES == 0
        return body if sound and len(body) <= self._num_pieces * _DIGEST_BYTES else b""

    def _remember(self, found: bytes) -> None:
        with contextlib.suppress(OSError):  # then it is made again next time
            make_private(self._folder.parent)
            make_private(self._folder)
            handle, temporary = tempfile.mkstemp(dir=self._folder)
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + found + hashlib.sha256(found).digest())
            os.replace(temporary, self._path)


def _hash_piece(
    path: Path,
    offset: int,
    stamped: tuple[int, ...],
    stopped: Callable[[], bool],
    pause: Callable[[float], object] | None,
) -> bytes:
    """Read instead of looking at the map: that would make pages of the whole model count as this process's memory."""
    digest = hashlib.sha256()
    buffer = bytearray(_CHUNK_BYTES)
    start, since_pause = time.perf_counter(), 0
    try:
        with open(path, "rb", buffering=0) as file:
            file.seek(offset)
            left = min(PIECE_BYTES, stamped[0] - offset)
            while left:
                if stopped():
                    raise Stopped
                count = file.readinto(memoryview(buffer)[: min(left, _CHUNK_BYTES)])
                if not count:
                    raise Stopped
                digest.update(memoryview(buffer)[:count])
                left -= count
                since_pause += count
                if pause is not None and since_pause >= _PAUSE_BYTES:
                    pause(time.perf_counter() - start)
                    start, since_pause = time.perf_counter(), 0
            if stamp(os.fstat(file.fileno())) != stamped:
                raise Stopped  # not the file that was opened, or changed since: what runs is not what lies there
    except OSError:
        raise Stopped from None
    return digest.digest()
