"""Aligned buffers. Untouched pages of a large one cost nothing until they are written."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SLACK = 4096
"""Bytes behind every buffer that kernels may read: prefetches and whole vectors run past the end."""
_MADV_DONTNEED = 4


def aligned(nbytes: int) -> NDArray[np.uint8]:
    """Zeroed u8[nbytes], aligned to 64 bytes, with SLACK readable bytes behind it."""
    room = np.zeros(nbytes + 64 + SLACK, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + nbytes]


def arena(nbytes: int) -> NDArray[np.uint8]:
    """Zeroed u8[nbytes] for what is read from end to end at every step: on large pages where the system has them.

    With pages of 4 KB, looking up addresses costs some per cent of reading.
    """
    if hasattr(mmap, "MAP_PRIVATE"):  # Python's default is a shared map, which Linux gives no large pages
        pages = mmap.mmap(-1, nbytes + SLACK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    else:
        pages = mmap.mmap(-1, nbytes + SLACK)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # advice: nothing is wrong when the system does not take it
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.uint8, nbytes)


def aligned_f32(values: NDArray[Any]) -> NDArray[np.float32]:
    """A float32 copy of `values`, flat and aligned."""
    copy = aligned(values.size * 4).view(np.float32)
    copy[:] = values.reshape(-1)
    return copy


def address(array: NDArray[Any]) -> int:
    """Where the array's first byte lies."""
    return int(array.ctypes.data)


def release_code(library: str) -> None:
    """Give back the memory of a library's machine code; what is called again is mapped again. Linux only.

    Starting LLVM touches 30 MB of its code, most of it for the last time. Code is never written to, so nothing is lost.
    """
    with contextlib.suppress(OSError, AttributeError):
        madvise = ctypes.CDLL(None).madvise
        for line in Path("/proc/self/maps").read_text().splitlines():
            if " r-xp " in line and library in line:
                start, end = (int(place, 16) for place in line.split()[0].split("-"))
                madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED)


def release_heap() -> None:
    """Give back what was freed on the heap, where the C library keeps it (glibc): after loading that is some megabytes."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
