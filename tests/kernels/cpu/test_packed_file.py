"""A file of packed matrices: whole or not there at all, and never taken for another's, whatever its bytes are."""

from __future__ import annotations

import ast
import errno
import hashlib
import json
import os
import shutil
import struct
from collections import namedtuple
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import cpu_kernels as cpu
import numpy as np
import pytest

from edgellm.errors import ResourceError
from edgellm.kernels import formats
from edgellm.kernels.cpu import compile as compiling
from edgellm.kernels.cpu import isa, packed_file, sources, threads, weights
from edgellm.kernels.cpu.memory import SLACK, address, aligned

LEVEL = isa.choose().level.name
SHAPES = {"a": ("Q4_0", 24, 64), "b": ("Q8_0", 13, 96), "c": ("F32", 8, 32)}


def make_matrices() -> dict[str, weights.Matrix]:
    rng, made = np.random.default_rng(0), {}
    for name, (type_name, rows, width) in SHAPES.items():
        f = formats.get(type_name)
        raw = aligned(rows * f.row_bytes(width))
        raw[:] = rng.integers(0, 256, len(raw), np.uint8)  # packing moves bytes, whatever they mean
        made[name] = weights.Matrix(f, rows, width, raw, packed=False)
    return made


@pytest.fixture(scope="module")
def team() -> Iterator[threads.Threads]:
    made = threads.Threads(2, dict(cpu.get_kernels(LEVEL)), 4096)
    yield made
    made.close()


@pytest.fixture
def write(team: threads.Threads) -> Callable[..., Path]:
    def write(path: Path, progress: Any = None, forget: Any = lambda name: None) -> Path:
        nbytes = packed_file.write_packed(
            path, "identity", "model.gguf", make_matrices(), cpu.get_kernels(LEVEL), team, forget, progress
        )
        assert nbytes == path.stat().st_size
        return path

    return write


def expected(team: threads.Threads) -> dict[str, bytes]:
    """What packing in memory gives."""
    out = {}
    for name, matrix in make_matrices().items():
        room = aligned(weights.packed_bytes(matrix))
        weights.pack_pieces([*weights.pieces(matrix, address(room))], cpu.get_kernels(LEVEL), team)
        out[name] = room.tobytes()
    return out


# ---- writing and reading ----
def test_what_is_mapped_is_what_packing_gives(
    tmp_path: Path, write: Callable[..., Path], team: threads.Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "_PACK_PIECE_BYTES", 1)  # several pieces per matrix
    said: list[tuple[str, int, int]] = []
    forgotten: list[str] = []
    path = write(tmp_path / "new" / "m.packed", lambda *what: said.append(what), forgotten.append)
    file = packed_file.open_packed(path, "identity")
    found = file.matrices(make_matrices())
    assert {name: data.tobytes() for name, data in found.items()} == expected(team)
    for data in found.values():
        assert data.ctypes.data % 64 == 0 and not data.flags.writeable
    total = said[-1][2]
    assert said[-1] == ("pack", total, total) and [s[1] for s in said] == sorted(s[1] for s in said)
    assert list(dict.fromkeys(forgotten)) == list(SHAPES) and len(forgotten) > len(SHAPES)
    last = max(file.table.entries, key=lambda e: e.offset)
    assert path.stat().st_size >= last.offset + last.nbytes + SLACK  # prefetches run past the end
    assert [p.name for p in path.parent.iterdir()] == ["m.packed"]


def test_the_map_outlives_the_file_and_the_name(tmp_path: Path, write: Callable[..., Path]) -> None:
    path = write(tmp_path / "m.packed")
    found = packed_file.open_packed(path, "identity").matrices(make_matrices())
    before = found["a"].tobytes()
    path.unlink()
    write(path)
    assert found["a"].tobytes() == before


@pytest.mark.parametrize("when", ["packing", "renaming"])
def test_an_interrupted_write_leaves_what_was_there(
    when: str, tmp_path: Path, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.packed"
    path.write_bytes(b"an older one")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    if when == "renaming":
        monkeypatch.setattr(packed_file.os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(path, interrupted if when == "packing" else None)
    assert [p.name for p in tmp_path.iterdir()] == ["m.packed"] and path.read_bytes() == b"an older one"


def test_a_full_disk_is_told_before_anything_is_written(
    tmp_path: Path, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 1000, 1000))
    with pytest.raises(ResourceError, match=r"needs .* GB, .* has 0.00 GB free; .*--output") as raised:
        write(tmp_path / "m.packed")
    assert "\n" not in str(raised.value) and not list(tmp_path.iterdir())


def test_a_disk_that_fills_up_meanwhile_leaves_nothing(
    tmp_path: Path, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(packed_file.os, "fsync", full)
    with pytest.raises(ResourceError, match=r"m.packed cannot be written \(No space left on device\).*free some space"):
        write(tmp_path / "m.packed")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be(tmp_path: Path, write: Callable[..., Path]) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(ResourceError, match="cannot be written .*--output or EDGELLM_HOME"):
        write(tmp_path / "file" / "m.packed")


# ---- files that are of no use ----
def reseal(data: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """Change the table as somebody would who knows how its checksum is made."""
    size = struct.unpack_from("<Q", data, 16)[0]
    table = json.loads(data[56 : 56 + size])
    text = json.dumps(change(table) or table).encode()
    head = data[:16] + struct.pack("<Q", len(text)) + hashlib.sha256(text).digest() + text
    return head + data[len(head) :]


def put(entry: int, field: int, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda table: table["entries"][entry].__setitem__(field, value)


BAD_FILES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda d: b"", "no packed file"),
    "foreign": (lambda d: b"GGUF" + d[4:], "no packed file"),
    "an older kind": (lambda d: d[:15] + b"0" + d[16:], "no packed file"),
    "cut in the prefix": (lambda d: d[:30], "no packed file"),
    "cut in the table": (lambda d: d[:100], "damaged"),
    "cut in a matrix": (lambda d: d[: len(d) // 2], "bytes instead of"),
    "one byte short": (lambda d: d[:-1], "bytes instead of"),
    "one byte more": (lambda d: d + b"\0", "bytes instead of"),
    "one bit of the table": (lambda d: d[:90] + bytes([d[90] ^ 1]) + d[91:], "damaged"),
    "a huge table": (lambda d: d[:16] + b"\xff" * 8 + d[24:], "damaged"),
    "zeros": (lambda d: bytes(len(d)), "no packed file"),
    "no JSON": (lambda d: d[:16] + struct.pack("<Q", 1) + hashlib.sha256(b"{").digest() + b"{" + d[57:], "no sense"),
    "a list": (lambda d: reseal(d, lambda t: [1]), "no sense"),
    "a missing field": (lambda d: reseal(d, lambda t: t.pop("identity") and None), "no sense"),
    "a field too many": (lambda d: reseal(d, lambda t: t.update(x=1)), "no sense"),
    "a number for a text": (lambda d: reseal(d, lambda t: t.update(identity=1)), "no sense"),
    "a negative place": (lambda d: reseal(d, put(0, 4, -64)), "no sense"),
    "half a row": (lambda d: reseal(d, put(0, 2, 1.5)), "no sense"),
    "a place outside": (lambda d: reseal(d, put(1, 4, 1 << 62)), "outside the file"),
    "a place at an odd address": (lambda d: reseal(d, put(1, 4, (2 << 20) + 1)), "outside the file"),
    "a length beyond the end": (lambda d: reseal(d, put(2, 5, 1 << 40)), "outside the file"),
    "a length without slack": (lambda d: reseal(d, put(2, 5, len(d) - (2 << 20))), "outside the file"),
    "another layout": (lambda d: reseal(d, lambda t: t.update(layout="0")), "another version of edgellm"),
    "another model": (lambda d: reseal(d, lambda t: t.update(identity="0")), "model has changed"),
    "another format": (lambda d: reseal(d, put(0, 1, "Q4_1")), "lacks a as the model has it"),
    "another shape": (lambda d: reseal(d, put(0, 2, 16)), "lacks a as the model has it"),
    "another name": (lambda d: reseal(d, put(0, 0, "z")), "lacks a as the model has it"),
    "a matrix cut short": (lambda d: reseal(d, put(0, 5, 64)), "wrong length"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_bad_file_is_refused_and_says_why(kind: str, tmp_path: Path, write: Callable[..., Path]) -> None:
    path = write(tmp_path / "m.packed")
    change, says = BAD_FILES[kind]
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(packed_file.UnusableError, match=says):
        packed_file.open_packed(path, "identity").matrices(make_matrices())


def test_places_that_are_no_file(tmp_path: Path) -> None:
    with pytest.raises(packed_file.UnusableError, match="not a file"):
        packed_file.open_packed(tmp_path, "identity")
    with pytest.raises(packed_file.UnusableError, match="cannot be read"):
        packed_file.read_table(tmp_path / "nothing")


# ---- when a layout changes ----
def test_the_layout_does_not_depend_on_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    before = packed_file.layout_version()
    monkeypatch.setenv("EDGELLM_ISA", "generic")
    assert packed_file.layout_version() == before
    matrices, results = make_matrices(), set()
    for level in cpu.LEVEL_NAMES:
        made = threads.Threads(1, dict(cpu.get_kernels(level)), 4096)
        room = aligned(weights.packed_size(matrices))
        for name, place in weights._cut(room, matrices).items():
            weights.pack_pieces([*weights.pieces(matrices[name], address(place))], cpu.get_kernels(level), made)
        made.close()
        results.add(room.tobytes())
    assert len(results) == 1


def test_the_layout_changes_with_every_source_that_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    before, real = packed_file.layout_version(), Path.read_bytes
    for changed in ("q4_k.py", "base.py", "simd.py", "weights.py", "matmul.py"):
        with monkeypatch.context() as patch:
            patch.setattr(Path, "read_bytes", lambda p: real(p) + b"#" * (p.name == changed))  # noqa: B023
            assert packed_file.layout_version() != before, changed
            with pytest.raises(packed_file.UnusableError):
                packed_file.open_packed(Path("nothing"), "identity")


def test_all_sources_that_pack_are_known() -> None:
    """The kernel that packs, the words that a format's pack(words) is given, and all that these are made of here."""
    prefix = f"{sources.__package__}."
    wanted = {compiling._source("pack_matrix")[0].__module__, f"{prefix}simd"}
    seen: set[str] = set()
    while wanted - seen:
        name = (wanted - seen).pop()
        seen.add(name)
        for node in ast.walk(ast.parse(Path(str(import_module(name).__file__)).read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level == 1:
                wanted |= {f"{prefix}{node.module}"} if node.module else {f"{prefix}{a.name}" for a in node.names}
    assert {name.removeprefix(prefix) for name in seen} <= set(sources.LAYOUT_FILES)
    assert {"matmul", "simd", "vector", "slots"} <= {name.removeprefix(prefix) for name in seen}
