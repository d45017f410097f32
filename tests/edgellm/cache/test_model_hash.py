"""The hash of a model: of every byte, made once, and made again for any file that may be another one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from edgellm.cache import model_hash
from edgellm.cache.model_hash import ModelHash, Stopped, stamp

SIZE = 5_000_000


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_hash, "PIECE_BYTES", 1 << 20)
    monkeypatch.setattr(model_hash, "_PAUSE_BYTES", 1 << 20)
    monkeypatch.setattr(model_hash, "_FRESH_NS", 0)


def make(tmp_path: Path, *names: str, sample: str = "s") -> ModelHash:
    files = []
    for number, name in enumerate(names or ("model",)):
        path = tmp_path / name
        if not path.exists():
            path.write_bytes(bytes([number + 1]) * SIZE)
        files.append((path, stamp(path.stat())))
    return ModelHash(files, lambda: sample, tmp_path / "hashes")


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    read: list[int] = []
    hash_piece: Callable[..., bytes] = model_hash._hash_piece

    def counted(path: Path, offset: int, *rest: object) -> bytes:
        read.append(offset)
        return hash_piece(path, offset, *rest)

    monkeypatch.setattr(model_hash, "_hash_piece", counted)
    return read


def test_every_byte_counts(tmp_path: Path) -> None:
    before = make(tmp_path).compute()
    data = bytearray((tmp_path / "model").read_bytes())
    for at in (0, 1_234_567, SIZE - 1):
        data[at] ^= 1
        (tmp_path / "model").write_bytes(data)
        assert make(tmp_path).compute() != before
        data[at] ^= 1
    (tmp_path / "model").write_bytes(data)
    assert make(tmp_path).compute() == before
    assert make(tmp_path, "model", "second").compute() != before


def test_a_copy_is_the_same_model(tmp_path: Path) -> None:
    first = make(tmp_path)
    (tmp_path / "copy").write_bytes((tmp_path / "model").read_bytes())
    assert make(tmp_path, "copy").compute() == first.compute()


def test_it_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = count_reads(monkeypatch)
    first = make(tmp_path)
    assert first.known() is None, "large and not remembered: not made in passing"
    found = first.compute()
    assert len(read) == 5 and first.known() == found and make(tmp_path).known() == found and len(read) == 5
    os.utime(tmp_path / "model", (1e9, 1e9))
    assert make(tmp_path).known() is None
    assert make(tmp_path, sample="t").known() is None
    assert make(tmp_path).compute() == found and len(read) == 10


def test_a_small_model_is_hashed_in_passing(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"weights")
    assert make(tmp_path, "small").known() == make(tmp_path, "small").compute()


def test_many_short_runs_come_to_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = make(tmp_path).compute()
    for path in (tmp_path / "hashes").iterdir():
        path.unlink()
    read = count_reads(monkeypatch)
    for _ in range(4):
        patience = iter([False, True])  # one piece, which here is a megabyte
        with pytest.raises(Stopped):
            make(tmp_path).compute(lambda patience=patience: next(patience))  # type: ignore[misc]
    assert make(tmp_path).compute() == expected
    assert max(read.count(offset) for offset in read) <= 2 and len(read) == 9


def test_damaged_notes_are_not_believed(tmp_path: Path) -> None:
    expected = make(tmp_path).compute()
    (note,) = (tmp_path / "hashes").iterdir()
    sound = note.read_bytes()
    for damaged in (sound[:-1], sound[:-33], sound[:40] + b"?" + sound[41:], b"", sound + sound, b"x" * len(sound)):
        note.write_bytes(damaged)
        assert make(tmp_path).known() is None and make(tmp_path).compute() == expected
        assert note.read_bytes() == sound


def test_a_file_changed_after_it_was_opened_has_no_hash(tmp_path: Path) -> None:
    model = make(tmp_path)
    with open(tmp_path / "model", "r+b") as file:
        file.write(b"other weights")
    os.utime(tmp_path / "model", (1e9, 1e9))
    with pytest.raises(Stopped):
        model.compute()
    assert not (tmp_path / "hashes").exists()
    (tmp_path / "model").unlink()
    with pytest.raises(Stopped):
        model.compute()


def test_a_fresh_file_is_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_hash, "_FRESH_NS", 3600 * 10**9)
    make(tmp_path).compute()
    assert not (tmp_path / "hashes").exists()


def test_others_get_the_machine_too(tmp_path: Path) -> None:
    pauses: list[float] = []
    make(tmp_path).compute(pause=pauses.append)
    assert len(pauses) == 4 and min(pauses) > 0
