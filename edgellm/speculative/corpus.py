"""What was said in earlier sessions: guesses from a corpus of the user's own texts, kept in a file and bounded.

Off unless asked for: the file holds the ids of prompts and answers, so only its owner may read it. Knows ids only.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Sequence as ListOf
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import ResourceError
from ..private_file import make_folder, write_whole
from .proposer import NO_GUESS, Guess

MAX_TOKENS = 1 << 18
"""Ids that are kept, the latest: 1 MB of file, 4 MB of memory with the index."""
NGRAM = 4
"""Ids of a text that must be met again before anything is guessed."""
CORPUS_KIND = 50
MAX_COMPARED = 16
LOCK_S = 5.0
_MAGIC = b"edgellm corpus 1"
_BREAK = -1  # between two texts; no id is negative
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class Corpus:
    """The texts of one vocabulary. path: where they are kept; its folder is made. Ids are below vocab_size."""

    def __init__(self, path: Path, vocab_size: int) -> None:
        self.path = path
        self._vocab_size = vocab_size
        self._new: list[NDArray[np.int32]] = []
        self._take(_read(path, vocab_size))

    def find(self, token_ids: ListOf[int]) -> int | None:
        """Return the place after the longest end of token_ids that was said before, the latest of equals."""
        if len(token_ids) < NGRAM:
            return None
        end = np.array(token_ids[-NGRAM:], np.int32)
        key = _keys(end)[0]
        first, last = np.searchsorted(self._keys, key, "left"), np.searchsorted(self._keys, key, "right")
        best, best_length = None, 0
        for place in self._places[first:last][-MAX_COMPARED:].tolist()[::-1]:  # sorted by place within a key
            length = self._match(place, token_ids)
            if length > best_length:
                best, best_length = place, length
        return best

    def after(self, place: int, count: int) -> list[int]:
        """The ids from a place on, to the end of that text."""
        part = self._ids[place : place + count]
        breaks = np.flatnonzero(part == _BREAK)
        return [int(i) for i in (part[: breaks[0]] if len(breaks) else part)]

    def add(self, token_ids: ListOf[int]) -> None:
        """Note a text; it is guessed from at once, and kept by `save`."""
        if len(token_ids) > NGRAM:
            self._new.append(np.array([*token_ids, _BREAK], np.int32))
            self._take(np.concatenate([self._ids, self._new[-1]]))

    def save(self) -> None:
        """Write what is new behind what the file has by now. Raises ResourceError if it cannot be written."""
        if not self._new:
            return
        from filelock import FileLock, Timeout

        try:
            make_folder(self.path.parent)
            with FileLock(f"{self.path}.lock", timeout=LOCK_S):
                ids = np.concatenate([_read(self.path, self._vocab_size), *self._new])[-MAX_TOKENS:]
                body = ids.astype("<i4").tobytes()
                write_whole(self.path, _head(body) + body, "the corpus of speculation")
        except (OSError, Timeout) as error:
            raise ResourceError(f"the corpus of speculation cannot be written to {self.path}: {error}") from None
        self._new.clear()

    def _take(self, ids: NDArray[np.int32]) -> None:
        self._ids = ids[-MAX_TOKENS:]
        keys = _keys(self._ids)
        order = np.argsort(keys, kind="stable")
        self._keys, self._places = keys[order], (order + NGRAM).astype(np.int32)

    def _match(self, place: int, token_ids: ListOf[int]) -> int:
        length = 0
        while length < min(place, len(token_ids), 64) and self._ids[place - 1 - length] == token_ids[-1 - length]:
            length += 1
        return length if length >= NGRAM else 0


class CorpusProposer:
    """Guesses for one sequence what followed in an earlier text; the sequence's own text joins the corpus when it ends."""

    step_s = None

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._text: ListOf[int] = []

    def propose(self, token_ids: ListOf[int], max_tokens: int) -> Guess:
        """See Proposer."""
        self._text = token_ids
        place = self._corpus.find(token_ids) if max_tokens > 0 else None
        if place is None:
            return NO_GUESS
        guess = self._corpus.after(place, max_tokens)
        return Guess(guess, [CORPUS_KIND] * len(guess))

    def close(self) -> None:
        """Add the text to the corpus; harmless when repeated."""
        self._corpus.add(self._text)
        self._text = []


def _keys(ids: NDArray[np.int32]) -> NDArray[np.uint64]:
    """u64[n - NGRAM + 1]: a number for each run of NGRAM ids."""
    count = max(len(ids) - NGRAM + 1, 0)
    keys = np.zeros(count, np.uint64)
    for offset in range(NGRAM):
        keys = (keys ^ ids[offset : offset + count].astype(np.uint64)) * _FACTOR
        keys ^= keys >> np.uint64(29)
    return keys


def _read(path: Path, vocab_size: int) -> NDArray[np.int32]:
    """The ids of a file; none if there is no file, or one that is damaged, which is said."""
    try:
        data = path.read_bytes() if path.stat().st_size <= 8 * MAX_TOKENS else b""
    except FileNotFoundError:
        return np.empty(0, np.int32)
    except OSError as error:
        raise ResourceError(f"the corpus of speculation cannot be read from {path}: {error.strerror}") from None
    body, head = data[len(_MAGIC) + 4 :], data[: len(_MAGIC) + 4]
    ids = np.frombuffer(body[: len(body) // 4 * 4], "<i4").astype(np.int32)
    is_sound = (
        len(body) % 4 == 0 and head == _head(body) and _BREAK <= ids.min(initial=0) <= ids.max(initial=0) < vocab_size
    )
    if not is_sound:
        warnings.warn(f"the corpus of speculation at {path} is damaged and begins anew", RuntimeWarning, stacklevel=2)
        return np.empty(0, np.int32)
    return ids


def _head(body: bytes) -> bytes:
    return _MAGIC + zlib.crc32(body).to_bytes(4, "little")
