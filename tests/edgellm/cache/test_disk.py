"""The disk cache as an engine uses it: kept for the next process, bounded, quiet, and no harm to anything when it fails."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import disk_writer
import pytest
from stored_blocks import BLOCK_BYTES, chain, make_identity, payload

from edgellm.cache import disk as disk_module
from edgellm.cache import model_hash
from edgellm.cache.disk import DiskCache
from edgellm.cache.folder import RecordFolder
from edgellm.cache.tree import ROOT_KEY

LIMIT = 1 << 20
PROMPT = list(range(200))


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert "edgellm-disk-cache" not in [thread.name for thread in threading.enumerate()]


def open_cache(tmp_path: Path, limit: int = LIMIT, model: bytes = b"a model", **settings: object) -> DiskCache:
    identity = make_identity(tmp_path, model, **settings)  # type: ignore[arg-type]
    return DiskCache(tmp_path / "home" / "cache", identity, limit)


def write(cache: DiskCache, prompt: Sequence[int]) -> list[bool]:
    return [
        cache.write(parent, tokens, {group: payload(parent, tokens, group) for group in (0, 1)})
        for parent, tokens in chain(prompt)
    ]


def num_kept(cache: DiskCache, prompt: Sequence[int]) -> int:
    """-> tokens of the first blocks of the prompt that can be read; every block read is checked."""
    count = 0
    for parent, tokens in chain(prompt):
        node = cache.find(parent, tokens)
        if node is None or node.token_ids != tokens:
            break
        for group in (0, 1):
            assert cache.read(node, group) == payload(parent, tokens, group)
        count += len(tokens)
    return count


def held_bytes(tmp_path: Path) -> int:
    return sum(path.stat().st_size for path in (tmp_path / "home").rglob("*.kv"))


def test_the_next_process_finds_what_this_one_had(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    assert cache.find(ROOT_KEY, PROMPT) is None and cache._thread is None
    assert write(cache, PROMPT) == [True] * 4
    cache.close()
    cache = open_cache(tmp_path)
    assert num_kept(cache, PROMPT) == 200 and cache._thread is None, "reading needs no thread"
    cache.close()
    cache.close()
    assert not cache.write(ROOT_KEY, [1], {0: bytes(5000)})


@pytest.mark.parametrize(
    "other",
    [{"model": b"b model"}, {"formats": ("f16", "q8_0")}, {"formats": ("q8_0", "f16")}, {"window": 99}],
    ids=lambda other: next(iter(other)),
)
def test_other_models_and_settings_share_nothing(tmp_path: Path, other: dict[str, object]) -> None:
    cache = open_cache(tmp_path)
    write(cache, PROMPT)
    cache.close()
    cache = open_cache(tmp_path, **other)  # type: ignore[arg-type]
    assert cache.find(ROOT_KEY, PROMPT) is None
    write(cache, PROMPT)
    cache.close()
    assert len(list((tmp_path / "home" / "cache").iterdir())) == 2


def test_two_models_share_one_limit(tmp_path: Path) -> None:
    limit = 40 * 8192
    for turn in range(12):
        cache = open_cache(tmp_path, limit, b"ab"[turn % 2 : turn % 2 + 1])
        write(cache, [turn, *range(500, 800)])
        assert cache.flush()
        assert held_bytes(tmp_path) <= limit
        assert num_kept(cache, [turn, *range(500, 800)]) == 301, "what was written last stays"
        cache.close()
    assert held_bytes(tmp_path) > limit // 3
    cache = open_cache(tmp_path, limit, b"a")
    assert num_kept(cache, [0, *range(500, 800)]) < 301
    cache.close()


def test_what_is_used_stays(tmp_path: Path) -> None:
    limit = 40 * 8192
    for turn in range(12):
        cache = open_cache(tmp_path, limit)
        if turn:
            assert num_kept(cache, PROMPT) == 200
        write(cache, PROMPT if turn == 0 else [turn, *range(500, 800)])
        assert cache.flush()
        for path in (tmp_path / "home").rglob("*.kv"):  # time passes
            os.utime(path, (path.stat().st_mtime - 1000,) * 2)
        cache.close()


def test_a_block_larger_than_the_limit_is_not_kept(tmp_path: Path) -> None:
    cache = open_cache(tmp_path, 100)
    assert write(cache, PROMPT) == [True] * 4
    cache.close()
    assert held_bytes(tmp_path) == 0


def test_what_finds_no_room_in_the_queue_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, write_record = threading.Event(), RecordFolder.write

    def slow_write(self: RecordFolder, *args: object) -> int:
        assert gate.wait(20)
        return write_record(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(RecordFolder, "write", slow_write)
    monkeypatch.setattr(disk_module, "QUEUE_BYTES", 3 * sum(BLOCK_BYTES))
    cache = open_cache(tmp_path)
    assert write(cache, PROMPT) == [True, True, True, False]
    assert not cache.flush(0.01)
    gate.set()
    assert cache.flush() and num_kept(cache, PROMPT) == 192
    parent, tokens = chain(PROMPT)[3]
    assert cache.write(parent, tokens, {group: payload(parent, tokens, group) for group in (0, 1)})
    assert cache.flush() and num_kept(cache, PROMPT) == 200
    cache.close()


def test_closing_waits_no_longer_than_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow_write(self: RecordFolder, *args: object) -> int:
        time.sleep(0.05)
        return 0

    monkeypatch.setattr(RecordFolder, "write", slow_write)
    cache = open_cache(tmp_path)
    write(cache, PROMPT)
    cache.close(timeout_s=0.0)
    assert len(cache._queue) >= 6 and cache._thread is not None and not cache._thread.is_alive()


def test_a_block_whose_parent_is_gone_is_not_written(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    parent, tokens = chain(PROMPT)[1]
    assert cache.write(parent, tokens, {0: payload(parent, tokens, 0)})
    cache.close()
    assert held_bytes(tmp_path) == 0


def test_a_large_model_is_hashed_in_the_background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_hash, "PIECE_BYTES", 1000)
    cache = open_cache(tmp_path, model=bytes(5000))
    write(cache, PROMPT)
    assert cache.flush()
    assert num_kept(cache, PROMPT) == 200
    cache.close()


def test_a_model_that_changed_while_it_ran_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_hash, "PIECE_BYTES", 1000)
    identity = make_identity(tmp_path, bytes(5000))
    (path,) = tmp_path.glob("*.gguf")
    path.write_bytes(b"1" * 5000)
    os.utime(path, (1e9, 1e9))
    cache = DiskCache(tmp_path / "home" / "cache", identity, LIMIT)
    write(cache, PROMPT)
    assert cache.flush() and cache.find(ROOT_KEY, PROMPT) is None
    cache.close()
    assert held_bytes(tmp_path) == 0


def test_a_place_that_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("no folder")
    cache = open_cache(tmp_path)
    assert cache.write(ROOT_KEY, [1], {0: payload(ROOT_KEY, [1], 0)})
    assert cache.flush()
    assert not cache.write(ROOT_KEY, [1], {0: payload(ROOT_KEY, [1], 0)})
    with pytest.warns(RuntimeWarning, match="no longer kept in .*EDGELLM_HOME"):
        assert cache.find(ROOT_KEY, [1]) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not cache.write(ROOT_KEY, [1], {0: payload(ROOT_KEY, [1], 0)})
        assert cache.find(ROOT_KEY, [1]) is None
        cache.close()


def test_a_read_only_folder_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused by the system where a file is made: a folder's mode would not stop the superuser, who may run this."""
    cache = open_cache(tmp_path)
    write(cache, PROMPT)
    cache.close()

    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("edgellm.cache.folder.os.open", refuse)
    cache = open_cache(tmp_path)
    cache.write(ROOT_KEY, [9], {0: payload(ROOT_KEY, [9], 0)})
    assert cache.flush()
    with pytest.warns(RuntimeWarning, match="Permission denied"):
        assert num_kept(cache, PROMPT) == 200
    cache.close()


def test_a_full_disk_ends_writing_not_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = open_cache(tmp_path)
    write(cache, PROMPT)
    assert cache.flush()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("edgellm.cache.folder._write_all", full)
    cache.write(ROOT_KEY, [9], {0: payload(ROOT_KEY, [9], 0)})
    assert cache.flush()
    with pytest.warns(RuntimeWarning, match="No space left on device"):
        assert num_kept(cache, PROMPT) == 200
    cache.close()
    assert not list((tmp_path / "home").rglob(".part-*")), "nothing half written is left"


def test_a_program_that_ends_without_closing_keeps_what_it_had(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom disk_writer import KILL_BLOCK_BYTES, open_cache\n"
        "cache = open_cache(Path(sys.argv[1]))\n"
        "assert all(cache.write(bytes(16), [i], {0: bytes(KILL_BLOCK_BYTES[0])}) for i in range(20))"
    )
    path = os.pathsep.join([str(Path(disk_writer.__file__).parent), *sys.path])
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], env={**os.environ, "PYTHONPATH": path}, check=True)
    assert len(list(tmp_path.rglob("*.kv"))) == 20


def test_two_caches_on_one_folder(tmp_path: Path) -> None:
    """As two processes: both write the same and other things, one deletes what the other has found."""
    limit = 60 * 8192
    caches = [open_cache(tmp_path, limit), open_cache(tmp_path, limit)]
    threads = [
        threading.Thread(target=lambda c=cache, n=n: [write(c, [i * (1 + n), *PROMPT]) for i in range(8)])  # type: ignore[misc]
        for n, cache in enumerate(caches)
    ]
    for thread in threads:
        thread.start()
    for turn in range(40):
        for parent, tokens in chain([turn % 8, *PROMPT]):
            node = caches[turn % 2].find(parent, tokens)
            if node is not None and node.token_ids == tokens:  # and may be gone by now
                assert caches[turn % 2].read(node, 0) in (None, payload(parent, tokens, 0))
    for thread in threads:
        thread.join()
    for cache in caches:
        cache.close()
    assert held_bytes(tmp_path) <= limit * 17 // 16
