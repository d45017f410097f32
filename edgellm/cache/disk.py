"""Prefixes that outlive the process: a bounded folder of blocks, read at once, written by a thread of its own.

Reading is on the way to the first token and happens where it is asked for. Writing is on nobody's way: blocks are queued as
copies, up to QUEUE_BYTES, and what finds no room there is not kept. A folder that cannot be written is said once and left
alone. Knows keys, ids and bytes; no sequence and no array. Next hops: `folder.py` for the files, `room.py` for the limit,
`identity.py` for what a folder is of.
"""

from __future__ import annotations

import atexit
import threading
import time
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from .folder import FoundNode, RecordFolder, make_private
from .identity import Identity, digest
from .model_hash import Stopped
from .room import make_room
from .storage import StoredNode
from .tree import ROOT_KEY

QUEUE_BYTES = 128 << 20
"""Most bytes that wait to be written: about a second of a slow disk."""
FLUSH_S = 5.0
"""So long does closing wait for what is queued."""
_LISTINGS = 16  # the folder is measured again after every limit / _LISTINGS bytes: other processes write too


class _Block(NamedTuple):
    parent: bytes
    token_ids: tuple[int, ...]
    group: int
    payload: bytes


class DiskCache:
    """The storage of one engine. `find`, `read` and `write` are for one thread, the engine's.

    root: the folder of all models' folders. identity: what the blocks are of. limit_bytes: most bytes of all folders together.
    """

    def __init__(self, root: Path, identity: Identity, limit_bytes: int) -> None:
        self._root = root
        self.identity = identity
        self._limit = limit_bytes
        self._folder: RecordFolder | None = None
        self._changed = threading.Condition()
        self._queue: deque[_Block] = deque()
        self._queued_bytes = 0
        self._closing = threading.Event()
        self._deadline_s = 0.0
        self._thread: threading.Thread | None = None
        self._problem: str | None = None
        self._is_broken = False
        self._held: int | None = None  # bytes in the root, as far as is known
        self._unmeasured = 0  # of them written since it was measured
        if identity.model.known() is None:
            self._start()  # the hash takes long: the sooner it begins, the sooner it is there

    def find(self, parent_key: bytes, token_ids: Sequence[int]) -> FoundNode | None:
        """Return the stored child of a node that begins with the most of `token_ids`, None if none shares the first."""
        self._tell()
        folder = self._get_folder()
        return None if folder is None else folder.find(parent_key, token_ids)

    def read(self, node: StoredNode, group: int) -> bytes | None:
        """Return a block of a found node exactly as it was written; None if it is missing or damaged."""
        assert isinstance(node, FoundNode), "not a node that `find` gave"
        folder = self._get_folder()
        return None if folder is None else folder.read(node, group)

    def write(self, parent_key: bytes, token_ids: Sequence[int], groups: Mapping[int, bytes]) -> bool:
        """Queue a node's blocks, one per group that has one. -> False if there is no room for them, or no disk to write to."""
        nbytes = sum(map(len, groups.values()))
        with self._changed:
            if self._is_broken or self._closing.is_set() or self._queued_bytes + nbytes > QUEUE_BYTES:
                return False
            for group, payload in groups.items():
                self._queue.append(_Block(parent_key, tuple(token_ids), group, payload))
            self._queued_bytes += nbytes
            self._changed.notify_all()
        self._start()
        return True

    def flush(self, timeout_s: float = FLUSH_S) -> bool:
        """Wait until all that is queued is written. -> False if that takes longer than `timeout_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue or self._is_broken, timeout_s)

    def close(self, timeout_s: float = FLUSH_S) -> None:
        """Write what is queued, for at most `timeout_s`, and end the thread; harmless when repeated."""
        with self._changed:
            self._deadline_s = time.monotonic() + timeout_s
            self._closing.set()
            self._changed.notify_all()
        if self._thread is not None:
            atexit.unregister(self.close)
            self._thread.join(timeout_s + 1.0)  # a write that hangs cannot be interrupted
        self._tell()

    # ---- the thread ----
    def _start(self) -> None:
        if self._thread is None and not self._is_broken:
            self._thread = threading.Thread(target=self._run, name="edgellm-disk-cache", daemon=True)
            try:
                # Not closed by the program's end, it is closed by it: the interpreter stops daemons in mid-air after that.
                atexit.register(self.close)
                self._thread.start()
            except RuntimeError:  # the interpreter is about to end
                self._thread = None
                self._give_up(None)

    def _run(self) -> None:
        try:
            self.identity.model.compute(self._is_late, self._closing.wait)
            folder = self._get_folder()
            assert folder is not None
            while (block := self._next()) is not None:
                self._write(folder, block)
                with self._changed:
                    if self._queue:
                        self._queue.popleft()
                    self._queued_bytes -= len(block.payload)
                    self._changed.notify_all()
        except Stopped:
            self._give_up(None)
        except OSError as error:
            self._give_up(
                f"beginnings of prompts are no longer kept in {self._root} ({error.strerror or error}); "
                "free some space there, set EDGELLM_HOME to a folder you can write to, or use disk_cache=0"
            )

    def _next(self) -> _Block | None:
        with self._changed:
            while not self._queue and not self._closing.is_set():
                self._changed.wait()
            return self._queue[0] if self._queue and not self._is_late() else None

    def _is_late(self) -> bool:
        return self._closing.is_set() and time.monotonic() > self._deadline_s

    def _write(self, folder: RecordFolder, block: _Block) -> None:
        nbytes = len(block.payload) + 4096
        # One that is there already is written again: who could read it would not have made it anew.
        if nbytes > self._limit or folder.has_longer(block.parent, block.token_ids, block.group):
            return
        if self._held is None:
            make_private(self._root)
        if self._held is None or self._held + nbytes > self._limit or self._unmeasured > self._limit // _LISTINGS:
            self._held = make_room(self._root, self._limit, nbytes, (str(folder.path), block.parent))
            self._unmeasured = 0
        if block.parent != ROOT_KEY and not folder.has(block.parent):
            return  # nobody could find it
        folder.write(block.parent, block.token_ids, block.group, block.payload)
        self._held += nbytes
        self._unmeasured += nbytes

    def _give_up(self, problem: str | None) -> None:
        with self._changed:
            self._is_broken = True
            self._problem = problem
            self._queue.clear()
            self._queued_bytes = 0
            self._changed.notify_all()

    def _tell(self) -> None:
        """Warn of what went wrong in the thread, in the thread that a user's program listens to.

        Called where a warning that was made an error leaves nothing half done: not from `write`.
        """
        problem, self._problem = self._problem, None
        if problem is not None:
            warnings.warn(problem, RuntimeWarning, stacklevel=3)

    def _get_folder(self) -> RecordFolder | None:
        if self._folder is None:
            model = self.identity.model.known()
            if model is not None:
                name = digest(self.identity.parts(model))
                with self._changed:
                    if self._folder is None:
                        self._folder = RecordFolder(self._root / name.hex(), name, self.identity.block_bytes)
        return self._folder
