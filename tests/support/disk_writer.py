"""A process that writes to a disk cache until it is killed: blocks that follow from its number, and a line for each that is kept.

Run as `python disk_writer.py <folder> <round>`; it says "ready" first, and `kept <prompt> <block>` once a block is in its place.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from stored_blocks import chain, make_identity, payload

from edgellm.cache.disk import DiskCache

KILL_BLOCK_BYTES = (200_000,)


def prompt_of(number: int) -> list[int]:
    """A prompt of three blocks and a bit."""
    return [number, *range(1000, 1210)]


def open_cache(folder: Path) -> DiskCache:
    """The cache that writer and reader share."""
    return DiskCache(folder / "cache", make_identity(folder, block_bytes=KILL_BLOCK_BYTES), 1 << 30)


def main(folder: Path, first: int) -> None:
    """Write prompts `first`, `first` + 1 ... for ever."""
    cache = open_cache(folder)
    print("ready", flush=True)
    for number in itertools.count(first):
        for index, (parent, tokens) in enumerate(chain(prompt_of(number))):
            cache.write(parent, tokens, {0: payload(parent, tokens, 0, KILL_BLOCK_BYTES[0])})
            cache.flush()
            print(f"kept {number} {index}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
