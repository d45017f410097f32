"""A folder of records: found by tokens, read exactly, and whatever strangers put there is deleted or left alone."""

from __future__ import annotations

import itertools
import os
import stat
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stored_blocks import BLOCK_BYTES, chain, payload

from edgellm.cache import folder as folder_module
from edgellm.cache.folder import RecordFolder
from edgellm.cache.record import node_key
from edgellm.cache.tree import ROOT_KEY

IDENTITY = bytes(16)
PROMPT = list(range(150))


def make(path: Path, identity: bytes = IDENTITY) -> RecordFolder:
    return RecordFolder(path / "records", identity, BLOCK_BYTES)


def write(folder: RecordFolder, prompt: list[int], groups: tuple[int, ...] = (0, 1)) -> None:
    for parent, tokens in chain(prompt):
        for group in groups:
            folder.write(parent, tokens, group, payload(parent, tokens, group))


def read_all(folder: RecordFolder, prompt: list[int], groups: tuple[int, ...] = (0, 1)) -> int:
    """-> tokens of the prompt that are found and read, each block checked."""
    count, parent = 0, ROOT_KEY
    while (node := folder.find(parent, prompt[count:])) is not None:
        for group in groups:
            block = folder.read(node, group)
            if block is None:
                return count
            assert block == payload(node.parent, node.token_ids, group)
        pairs = zip(node.token_ids, prompt[count:], strict=False)
        shared = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))
        count += shared
        if shared < 64:
            break
        parent = node.key
    return count


def test_found_again_by_another_process(tmp_path: Path) -> None:
    write(make(tmp_path), PROMPT)
    folder = make(tmp_path)
    assert read_all(folder, PROMPT) == 150
    assert read_all(folder, [*PROMPT[:140], 7, 7, 7]) == 140
    assert read_all(folder, PROMPT[:30]) == 30
    assert folder.find(ROOT_KEY, [5]) is None and folder.find(b"x" * 16, PROMPT) is None
    assert folder.find(ROOT_KEY, []) is None


def test_the_child_that_shares_the_most_is_found(tmp_path: Path) -> None:
    folder = make(tmp_path)
    for tokens in ([1, 2, 3, 4], [1, 2, 9], [1, 7]):
        folder.write(ROOT_KEY, tokens, 0, payload(ROOT_KEY, tokens, 0))
    for wanted, found in (([1, 2, 9, 9], (1, 2, 9)), ([1, 2, 3, 5], (1, 2, 3, 4)), ([1, 7, 7], (1, 7))):
        node = make(tmp_path).find(ROOT_KEY, wanted)
        assert node is not None and node.token_ids == found and node.groups == {0}


def test_a_group_may_be_missing_and_come_later(tmp_path: Path) -> None:
    folder = make(tmp_path)
    write(folder, PROMPT, (0,))
    node = make(tmp_path).find(ROOT_KEY, PROMPT)
    assert node is not None and node.groups == {0} and folder.read(node, 1) is None
    write(folder, PROMPT, (1,))
    assert read_all(make(tmp_path), PROMPT) == 150


def test_a_longer_block_takes_the_place_of_its_beginning(tmp_path: Path) -> None:
    folder = make(tmp_path)
    for count in (10, 20, 64):
        tokens = PROMPT[:count]
        folder.write(ROOT_KEY, tokens, 0, payload(ROOT_KEY, tokens, 0))
    folder.write(ROOT_KEY, PROMPT[:5], 1, payload(ROOT_KEY, PROMPT[:5], 1))
    assert len(list(folder.path.iterdir())) == 2
    assert folder.has_longer(ROOT_KEY, PROMPT[:12], 0) and not folder.has_longer(ROOT_KEY, PROMPT[:3], 2)
    assert folder.has_longer(ROOT_KEY, PROMPT[:4], 1) and not folder.has_longer(ROOT_KEY, PROMPT[:5], 1)
    assert not folder.has_longer(ROOT_KEY, [0, 2], 0) and not folder.has_longer(ROOT_KEY, PROMPT[:64], 0)
    assert folder.has(node_key(ROOT_KEY, PROMPT[:64])) and not folder.has(node_key(ROOT_KEY, PROMPT[:10]))


def test_another_identity_reads_nothing(tmp_path: Path) -> None:
    write(make(tmp_path), PROMPT)
    assert make(tmp_path, bytes(15) + b"1").find(ROOT_KEY, PROMPT) is None


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes of files")
def test_only_the_owner_may_look(tmp_path: Path) -> None:
    folder = make(tmp_path)
    write(folder, PROMPT)
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.path.iterdir()} == {0o600}


def test_files_that_vanish_are_not_there(tmp_path: Path) -> None:
    folder = make(tmp_path)
    write(folder, PROMPT)
    node = folder.find(ROOT_KEY, PROMPT)
    assert node is not None
    for path in list(folder.path.iterdir()):
        path.unlink()
    assert folder.read(node, 0) is None and folder.read(node, 1) is None
    assert folder.find(ROOT_KEY, PROMPT) is None
    write(folder, PROMPT)
    assert read_all(folder, PROMPT) == 150


def test_what_another_process_adds_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "_RELIST_S", 0.0)
    folder = make(tmp_path)
    assert read_all(folder, PROMPT) == 0
    write(make(tmp_path), PROMPT)
    assert read_all(folder, PROMPT) == 150


def test_a_use_is_noted(tmp_path: Path) -> None:
    folder = make(tmp_path)
    write(folder, PROMPT)
    for path in folder.path.iterdir():
        os.utime(path, (1e9, 1e9))
    assert read_all(folder, PROMPT[:64], (0,)) == 64
    used = [path for path in folder.path.iterdir() if path.stat().st_mtime > 2e9 - 1e9 + 1]
    assert [path.name[-4:] for path in used] == ["0.kv"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damage_is_never_read_and_never_an_error(tmp_path: Path, data: st.DataObject) -> None:
    tmp_path = Path(tempfile.mkdtemp(dir=tmp_path))  # a new one for each example
    folder = make(tmp_path)
    write(folder, PROMPT)
    paths = sorted(folder.path.iterdir())
    path = data.draw(st.sampled_from(paths))
    sound = path.read_bytes()
    at = data.draw(st.integers(0, len(sound) - 1))
    kind = data.draw(st.sampled_from(["flip", "cut", "extend", "swap", "rename", "folder"]))
    if kind == "flip":
        path.write_bytes(sound[:at] + bytes([sound[at] ^ data.draw(st.integers(1, 255))]) + sound[at + 1 :])
    elif kind == "cut":
        path.write_bytes(sound[:at])
    elif kind == "extend":
        path.write_bytes(sound + bytes(at + 1))
    elif kind == "swap":  # a sound record under another's name
        path.write_bytes(data.draw(st.sampled_from([p for p in paths if p != path])).read_bytes())
    elif kind == "rename":
        digit = data.draw(st.integers(0, len(path.name) - 1))
        path.rename(path.with_name(path.name[:digit] + "3" + path.name[digit + 1 :]))
    else:
        path.unlink()
        path.mkdir()
    reader = make(tmp_path)
    count = read_all(reader, PROMPT)  # checks every block that is read
    assert count in (0, 64, 128, 150)
    if kind == "folder":
        path.rmdir()
    write(reader, PROMPT)
    assert read_all(make(tmp_path), PROMPT) == 150, "what was damaged can be written again"


def test_strange_files_are_left_alone(tmp_path: Path) -> None:
    folder = make(tmp_path)
    write(folder, PROMPT)
    strange = [folder.path / name for name in ("notes.txt", f"{'0' * 32}-{'1' * 32}-99-0.kv", "x.kv")]
    for path in strange:
        path.write_text("mine")
    assert read_all(make(tmp_path), PROMPT) == 150
    assert all(path.read_text() == "mine" for path in strange)
