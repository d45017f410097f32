"""What goes when the disk cache is full: the least recently used, leaves before parents, of all models together."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgellm.cache import room
from edgellm.cache.room import make_room
from edgellm.cache.tree import ROOT_KEY


def key(number: int) -> bytes:
    return ROOT_KEY if number == 0 else number.to_bytes(16, "big")


def put(
    root: Path, number: int, parent: int, used: float, model: str = "a", group: int = 0, nbytes: int = 4096
) -> Path:
    path = root / (model * 32) / f"{key(parent).hex()}-{key(number).hex()}-64-{group}.kv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(nbytes))
    os.utime(path, (used, used))
    return path


def left(root: Path) -> dict[str, set[int]]:
    return {
        folder.name[0]: {int(path.name[33:65], 16) for path in folder.iterdir()}
        for folder in root.iterdir()
        if any(folder.iterdir())
    }


def test_nothing_goes_while_there_is_room(tmp_path: Path) -> None:
    assert make_room(tmp_path / "none", 0) == 0
    for number in range(1, 5):
        put(tmp_path, number, number - 1, number, nbytes=1000)
    assert make_room(tmp_path, 4 * 4096) == 4 * 4096
    assert left(tmp_path) == {"a": {1, 2, 3, 4}}
    assert make_room(tmp_path, 5 * 4096, 4096) == 4 * 4096


def test_the_least_recently_used_goes_first_whatever_model_it_is_of(tmp_path: Path) -> None:
    for number in range(1, 11):
        put(tmp_path, number, 0, 100 + number, "ab"[number % 2])
    assert make_room(tmp_path, 6 * 4096) <= 6 * 4096
    assert left(tmp_path) == {"a": {6, 8, 10}, "b": {7, 9}}
    assert make_room(tmp_path, 0) == 0
    assert not list(tmp_path.iterdir()), "empty folders go"


def test_a_node_used_by_its_child_is_as_good_as_used(tmp_path: Path) -> None:
    put(tmp_path, 1, 0, 1.0)  # old, but what hangs on it was used last
    put(tmp_path, 2, 1, 2.0)
    put(tmp_path, 3, 2, 500.0)
    put(tmp_path, 4, 0, 400.0)
    put(tmp_path, 5, 4, 300.0)
    put(tmp_path, 9, 8, 999.0)  # its parent is gone: of no use
    make_room(tmp_path, 6 * 4096, 1)
    assert left(tmp_path) == {"a": {1, 2, 3, 4, 5}}
    make_room(tmp_path, 4 * 4096)
    assert left(tmp_path) == {"a": {1, 2, 3}}
    make_room(tmp_path, 2 * 4096)
    assert left(tmp_path) == {"a": {1}}


def test_what_is_about_to_be_continued_stays(tmp_path: Path) -> None:
    put(tmp_path, 1, 0, 1.0)
    put(tmp_path, 2, 0, 2.0)
    folder = str(tmp_path / ("a" * 32))
    make_room(tmp_path, 3 * 4096, 4097, (folder, key(1)))
    assert left(tmp_path) == {"a": {1}}


def test_the_groups_of_a_node_go_together(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        put(tmp_path, number, 0, number, group=0)
        put(tmp_path, number, 0, 1.0, group=1)
    make_room(tmp_path, 5 * 4096)
    assert left(tmp_path) == {"a": {2, 3}} and len(list((tmp_path / ("a" * 32)).iterdir())) == 4


def test_leftovers_of_killed_processes_go_when_they_are_old(tmp_path: Path) -> None:
    fresh, old = [put(tmp_path, 1, 0, 1.0).parent / f".part-{i}" for i in range(2)]
    fresh.write_bytes(b"x" * 5000)
    old.write_bytes(b"x" * 5000)
    os.utime(old, (time.time() - 4000,) * 2)
    assert make_room(tmp_path, 1 << 20) == 3 * 4096
    assert fresh.exists() and not old.exists()


def test_the_number_of_files_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MAX_RECORDS", 10)
    for number in range(1, 12):
        put(tmp_path, number, 0, number)
    make_room(tmp_path, 1 << 30)
    assert left(tmp_path) == {"a": set(range(3, 12))}


def test_other_folders_are_not_ours(tmp_path: Path) -> None:
    for name in ("hashes", "b" * 31, "A" * 32):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("mine")
    make_room(tmp_path, 0)
    assert len(list(tmp_path.glob("*/file"))) == 3


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    parents=st.lists(st.integers(0, 12), min_size=1, max_size=12),
    used=st.lists(st.integers(1, 5), min_size=12, max_size=12),
    limit=st.integers(0, 12),
)
def test_any_tree_stays_whole_and_within_the_limit(
    tmp_path_factory: pytest.TempPathFactory, parents: list[int], used: list[int], limit: int
) -> None:
    """Parents may be missing, or run in a circle: lying names."""
    root = tmp_path_factory.mktemp("room")
    links = dict(enumerate(parents, 1))
    for number, parent in links.items():
        put(root, number, parent, used[number - 1])
    held = make_room(root, limit * 4096)
    kept = left(root).get("a", set())
    assert held == len(kept) * 4096 <= limit * 4096
    if limit >= len(links):
        assert kept == set(links)

    def is_rooted(number: int, among: set[int]) -> bool:
        way = set()
        while number in among and number not in way:
            way.add(number)
            number = links[number]
        return number == 0

    for number in kept:
        if is_rooted(number, set(links)):
            assert is_rooted(number, kept), "a node went before what hangs on it"
    if any(not is_rooted(number, set(links)) for number in kept):
        assert all(number in kept for number in links if is_rooted(number, set(links))), "orphans go first"
