"""State files: what was saved comes back in order; what is damaged or of something else is refused as a whole, in one line."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stored_blocks import BLOCK_BYTES, chain, make_identity, payload

from edgellm.cache.state import StateNode, read_state, write_state
from edgellm.errors import ResourceError, StateError

PROMPT = list(range(150))


def parts_of(tmp_path: Path, model: bytes = b"a model", **settings: object) -> dict[str, str]:
    identity = make_identity(tmp_path, model, **settings)  # type: ignore[arg-type]
    return identity.parts(identity.model.compute())


def make_nodes(prompt: list[int] = PROMPT) -> list[StateNode]:
    """The second block lacks a group, as a window's block may."""
    return [
        StateNode(parent, tokens, {group: payload(parent, tokens, group) for group in ((0,) if i == 1 else (0, 1))})
        for i, (parent, tokens) in enumerate(chain(prompt))
    ]


def test_what_is_saved_comes_back_in_order(tmp_path: Path) -> None:
    parts, path = parts_of(tmp_path), tmp_path / "chat.state"
    nodes = make_nodes() + make_nodes([7] * 100)
    assert write_state(path, parts, nodes) == path.stat().st_size
    assert list(read_state(path, parts, BLOCK_BYTES)) == nodes
    assert write_state(path, parts, []) == path.stat().st_size, "the old one is replaced"
    assert list(read_state(path, parts, BLOCK_BYTES)) == []
    assert sorted(p.name for p in tmp_path.iterdir() if p.suffix != ".gguf") == ["chat.state"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes of files")
def test_only_the_owner_may_look(tmp_path: Path) -> None:
    write_state(tmp_path / "chat.state", {}, [])
    assert stat.S_IMODE((tmp_path / "chat.state").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"model": b"b model"}, "the model's weights"),
        ({"formats": ("f16", "q8_0")}, r"cache_type_v \(f16 there, q8_0 here\)"),
        ({"formats": ("q8_0", "f16")}, r"cache_type_k \(f16 there, q8_0 here\)"),
        ({"window": 99}, "the window"),
        ({"block_bytes": (1, 2)}, "the layout of blocks"),
    ],
)
def test_of_something_else(tmp_path: Path, other: dict[str, object], says: str) -> None:
    path = tmp_path / "chat.state"
    write_state(path, parts_of(tmp_path), make_nodes())
    with pytest.raises(StateError, match=f"other settings: {says}.*; load the model as it was then"):
        next(read_state(path, parts_of(tmp_path, **other), BLOCK_BYTES))  # type: ignore[arg-type]


def test_of_a_version_that_knows_more(tmp_path: Path) -> None:
    parts, path = parts_of(tmp_path), tmp_path / "chat.state"
    write_state(path, {**parts, "adapter": "x", "numerics": "99"}, [])
    with pytest.raises(StateError, match=r"arithmetic \(99 there, 1 here\), adapter"):
        next(read_state(path, parts, BLOCK_BYTES))


def test_missing_or_no_file(tmp_path: Path) -> None:
    for name in ("none", "", "model"):
        (tmp_path / "model").write_bytes(b"GGUF" * 99)
        with pytest.raises(StateError, match="none cannot be read|is not a file|is not a state"):
            next(read_state(tmp_path / name, {}, BLOCK_BYTES))
    with pytest.raises(ResourceError, match="cannot be written to"):
        write_state(tmp_path / "none" / "chat.state", {}, [])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with a name")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StateError, match="not a file"):
        next(read_state(tmp_path / "pipe", {}, BLOCK_BYTES))


def test_an_interrupted_save_leaves_what_was_there(tmp_path: Path) -> None:
    parts, path = parts_of(tmp_path), tmp_path / "chat.state"
    write_state(path, parts, make_nodes())

    def interrupted() -> Iterator[StateNode]:
        yield make_nodes()[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_state(path, parts, interrupted())
    assert list(read_state(path, parts, BLOCK_BYTES)) == make_nodes()
    assert not list(tmp_path.glob(".*"))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damage_anywhere_refuses_the_file(tmp_path: Path, data: st.DataObject) -> None:
    parts, path = parts_of(tmp_path), tmp_path / "chat.state"
    write_state(path, parts, make_nodes())
    sound = path.read_bytes()
    at = data.draw(st.integers(0, len(sound) - 1))
    kind = data.draw(st.sampled_from(["flip", "cut", "extend", "zeros", "drop"]))
    path.write_bytes(
        {
            "flip": sound[:at] + bytes([sound[at] ^ data.draw(st.integers(1, 255))]) + sound[at + 1 :],
            "cut": sound[:at],
            "extend": sound + bytes(at + 1),
            "zeros": sound[:at] + bytes(len(sound) - at),
            "drop": sound[:at] + sound[at + 1 :],
        }[kind]
    )
    with pytest.raises(StateError) as caught:
        list(read_state(path, parts, BLOCK_BYTES))
    assert "\n" not in str(caught.value)


def test_a_record_of_a_wrong_size_is_refused(tmp_path: Path) -> None:
    """Whole by its checksum, and yet not what a block of this model measures."""
    parts, path = parts_of(tmp_path), tmp_path / "chat.state"
    for group, nbytes in ((0, 10), (5, BLOCK_BYTES[0])):
        write_state(path, parts, [StateNode(bytes(16), (1,), {group: bytes(nbytes)})])
        with pytest.raises(StateError, match="wrong size"):
            list(read_state(path, parts, BLOCK_BYTES))
