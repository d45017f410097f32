"""How much the disk cache holds, and what goes when that is too much: of all models together, the least recently used first.

A record is of use only with all those before it, so a node is never deleted before what hangs on it; a node whose parent is
gone goes first. Works on names, sizes and times of use alone: it reads no file. Other processes may do the same at once.
Next hop: `folder.py` for the names.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .folder import PART_PREFIX, parse_name
from .tree import ROOT_KEY

MAX_RECORDS = 1 << 14
"""So many files at most, however small: listing them stays a matter of milliseconds."""
_LEFTOVER_S = 3600.0  # a part that nobody has written to for so long was left by a process that was killed
_PAGE = 4096
_KEEP = 0.9  # of the limit stays, so that not every record that is written has to make its own room
_IDENTITY = re.compile(r"[0-9a-f]{32}")


@dataclass(slots=True)
class _Stored:
    """All records of one node. used: seconds since 1970 of the last use."""

    parent: tuple[str, bytes]
    used: float = 0.0
    nbytes: int = 0
    paths: list[str] = field(default_factory=list)


def make_room(root: Path, limit_bytes: int, wanted_bytes: int = 0, in_use: tuple[str, bytes] | None = None) -> int:
    """Delete what exceeds the limit when `wanted_bytes` are added, and what killed processes left. -> bytes still held.

    root: the folder of the folders of all identities. in_use: folder and key of a node that is as good as used now.
    """
    nodes, held = _list(root)
    if in_use in nodes:
        nodes[in_use].used = math.inf
    most = MAX_RECORDS
    if held + wanted_bytes > limit_bytes or sum(len(node.paths) for node in nodes.values()) > MAX_RECORDS:
        most = int(_KEEP * MAX_RECORDS)
        room = held - sum(node.nbytes for node in nodes.values())  # parts that are being written
        for key in _by_use(nodes):
            node = nodes[key]
            room += node.nbytes
            most -= len(node.paths)
            if room + wanted_bytes > _KEEP * limit_bytes or most < 0:
                room = limit_bytes  # nothing after the first one that goes may stay: it may hang on it
                held -= _delete(node)
    for folder in _folders(root):
        with contextlib.suppress(OSError):
            os.rmdir(folder)  # succeeds on empty ones only
    return held


def _list(root: Path) -> tuple[dict[tuple[str, bytes], _Stored], int]:
    """-> the nodes by folder and key, and the bytes of all files. Deletes leftovers."""
    nodes: dict[tuple[str, bytes], _Stored] = {}
    held = 0
    for folder in _folders(root):
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # it went away meanwhile
                    status = entry.stat(follow_symlinks=False)
                    nbytes = -(-status.st_size // _PAGE) * _PAGE
                    named = parse_name(entry.name)
                    if named is not None:
                        node = nodes.setdefault((folder, named[1]), _Stored((folder, named[0])))
                        node.used = max(node.used, status.st_mtime)
                        node.nbytes += nbytes
                        node.paths.append(entry.path)
                    elif entry.name.startswith(PART_PREFIX) and time.time() - status.st_mtime > _LEFTOVER_S:
                        os.unlink(entry.path)
                        continue
                    held += nbytes
    return nodes, held


def _folders(root: Path) -> list[str]:
    try:
        with os.scandir(root) as entries:
            return [e.path for e in entries if _IDENTITY.fullmatch(e.name) and e.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _by_use(nodes: dict[tuple[str, bytes], _Stored]) -> Iterator[tuple[str, bytes]]:
    """Yield every node after its parent, the most recently used leaf's way from the root first, orphans at the end."""
    seen: set[tuple[str, bytes]] = set()
    rooted: set[tuple[str, bytes]] = set()
    orphans: list[tuple[str, bytes]] = []
    for key in sorted(nodes, key=lambda key: nodes[key].used, reverse=True):
        way: list[tuple[str, bytes]] = []
        at = key
        while at in nodes and at not in seen:
            seen.add(at)
            way.append(at)
            at = nodes[at].parent
        if at[1] == ROOT_KEY or at in rooted:
            rooted.update(way)
            yield from reversed(way)
        else:
            orphans += reversed(way)
    yield from orphans


def _delete(node: _Stored) -> int:
    """-> bytes that are gone."""
    for path in node.paths:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass  # another process was faster
        except OSError:
            return 0
    return node.nbytes
