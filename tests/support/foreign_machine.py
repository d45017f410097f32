"""Call kernels compiled for 64-bit ARM on any Linux, in QEMU's user mode: one process that takes calls through a pipe.

Arrays lie in an arena that both processes map at the same address, so that operands are plain addresses and nothing is
copied. Needs qemu-aarch64 and GNU's assembler and linker for ARM (Debian: qemu-user, binutils-aarch64-linux-gnu).
"""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

PROGRAMS = ("qemu-aarch64", "aarch64-linux-gnu-as", "aarch64-linux-gnu-ld")
BASE, SIZE = 0x2000_0000_0000, 1 << 28  # an address that neither Linux nor QEMU gives away by itself

# Takes records of eight words: the kernel's number and seven operands (the first record: base, size and file of the
# arena). Answers each with one byte. System calls: read 63, write 64, exit_group 94, mmap 222.
START = """
    .text
    .globl _start, sched_yield, memset, memcpy
_start:
    adrp x19, record
    add x19, x19, :lo12:record
    bl take
    ldp x0, x1, [x19]
    mov x2, 3
    mov x3, 17
    ldr x4, [x19, 16]
    mov x5, 0
    mov x8, 222
    svc 0
answer:
    mov x0, 1
    mov x1, x19
    mov x2, 1
    mov x8, 64
    svc 0
    bl take
    ldp x9, x0, [x19]
    ldp x1, x2, [x19, 16]
    ldp x3, x4, [x19, 32]
    ldp x5, x6, [x19, 48]
    adrp x10, kernels
    add x10, x10, :lo12:kernels
    ldr x10, [x10, x9, lsl 3]
    blr x10
    b answer
take:
    mov x0, 0
    mov x1, x19
    mov x2, 64
    mov x8, 63
    svc 0
    cmp x0, 64
    b.ne stop
    ret
stop:
    mov x0, 0
    mov x8, 94
    svc 0
sched_yield:
    mov w0, 0
    ret
memset:
    cbz x2, end
    sub x2, x2, 1
    strb w1, [x0, x2]
    b memset
memcpy:
    cbz x2, end
    sub x2, x2, 1
    ldrb w3, [x1, x2]
    strb w3, [x0, x2]
    b memcpy
end:
    ret
    .bss
    .align 4
record:
    .skip 64
    .data
    .align 4
kernels:
"""


def lacking() -> str:
    """-> why kernels of another machine cannot run here, "" if they can."""
    if sys.platform != "linux":
        return "QEMU's user mode is for Linux"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"{' and '.join(missing)} missing (Debian: qemu-user binutils-aarch64-linux-gnu)" if missing else ""


class Arena:
    """Memory at BASE that other processes can map. Nothing is given back."""

    def __init__(self) -> None:
        self.file = os.memfd_create("arena")
        os.ftruncate(self.file, SIZE)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        fixed_noreplace, shared = 0x100000, 1
        at = libc.mmap(BASE, SIZE, 3, shared | fixed_noreplace, self.file, 0)
        assert at == BASE, f"the arena's address is taken: {at:#x}"
        self._next = BASE

    def aligned(self, nbytes: int) -> NDArray[np.uint8]:
        """As memory.aligned: u8[nbytes], aligned to 64 bytes, zeros, with readable bytes behind it."""
        at, self._next = self._next, self._next + (nbytes + 4096 + 63 & ~63)
        assert self._next <= BASE + SIZE, "the arena is full"
        return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(at), np.uint8)

    def rewind(self) -> None:
        """Forget all arrays and clear what they held."""
        ctypes.memset(BASE, 0, self._next - BASE)
        self._next = BASE


class ForeignMachine:
    """An emulated 64-bit ARM CPU with some kernels.

    kernels: name -> what stands for its address here; addresses: where other kernels find it.
    """

    def __init__(self, objects: Mapping[str, bytes], arena: Arena, folder: Path) -> None:
        self.arena, self.kernels = arena, {name: i for i, name in enumerate(objects)}
        text = START + "".join(f"    .quad k_{name}\n" for name in objects)
        start = folder / "start.o"
        subprocess.run(["aarch64-linux-gnu-as", "-o", start, "-"], input=text, text=True, check=True)
        command = ["aarch64-linux-gnu-ld", "-o", folder / "program", start]
        for name, code in objects.items():
            (folder / f"{name}.o").write_bytes(code)
            command.append(folder / f"{name}.o")
        subprocess.run(command, check=True)
        self.addresses = self._find(folder / "program")
        self._process = subprocess.Popen(
            ["qemu-aarch64", "-cpu", "max", str(folder / "program")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[arena.file],
            bufsize=0,
        )
        self._send(BASE, SIZE, arena.file)

    def _find(self, program: Path) -> dict[str, int]:
        command = ["aarch64-linux-gnu-nm", program]
        symbols = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        places = {name: int(at, 16) for at, _, name in (line.split() for line in symbols if len(line.split()) == 3)}
        return {name: places[f"k_{name}"] for name in self.kernels}

    def close(self) -> None:
        """End the emulator."""
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()

    def _send(self, *words: int) -> None:
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(struct.pack("<8q", *words, *[0] * (8 - len(words))))
        assert process.stdout.read(1), f"the emulated CPU failed: {process.wait()}"

    # ---- what threads.py offers for this machine's kernels ----
    def tile_function(self, operands: int) -> Callable[[int], Callable[..., None]]:
        """As threads.tile_function."""
        return lambda kernel: lambda *arguments: self._send(kernel, *arguments)

    def run_chunk(
        self, kernel: int, record: NDArray[np.int64], ctx: NDArray[np.int64] | None = None, chunk: int = 0
    ) -> None:
        """As threads.run_chunk; record and context are copied into the arena."""
        at = []
        for words in (record, ctx if ctx is not None else record):
            copy = self.arena.aligned(words.nbytes).view(np.int64)
            copy[:] = words
            at.append(copy.ctypes.data)
        self._send(kernel, at[0], at[1], 0, chunk)
