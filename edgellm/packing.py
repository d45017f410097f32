"""Packed files of models: where they lie, whether one fits, and how weights are to be laid out at a load.

A model's packed file is named after the place of the model, so that a changed model finds the old file and can say so.
What decides is the identity in the file. Next hop: `kernels/cpu/packed_file.py` for the bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from . import models, paths
from .cache.memory import available_bytes
from .config import PACKED_SUFFIX, WEIGHT_LAYOUTS
from .errors import EdgeLLMError, ModelFileError, OptionError
from .gguf import GGUFFile, open_gguf
from .kernels.cpu import objects, packed_file, threads, weights
from .kernels.ops import Program

Progress = Callable[[str, int, int], None]
WORK_BYTES = 150_000_000
"""The interpreter, libraries, vocabulary and work space of a running model, at most."""
_LEFTOVER_S = 3600  # a part that nobody has written to for so long was left by a process that was killed


@dataclass(frozen=True, slots=True)
class Layout:
    """How a model's weights are to lie in memory. mapped: all matrices, packed before; packed: else, pack them at load."""

    packed: bool
    mapped: dict[str, NDArray[np.uint8]] | None = None


@dataclass(frozen=True, slots=True)
class PackedModel:
    """A packed file in the usual place. model: where its model lies. problem: why it is of no use, None if it may be."""

    path: Path
    model: str | None
    nbytes: int
    problem: str | None


def folder() -> Path:
    """Where packed files are kept; it may not exist yet."""
    return paths.home() / "packed"


def usual_path(file: GGUFFile) -> Path:
    """Where the packed file of a model is looked for."""
    place = os.path.realpath(file.parts[0])
    return folder() / f"{file.parts[0].stem}-{hashlib.sha256(os.fsencode(place)).hexdigest()[:12]}{PACKED_SUFFIX}"


def choose_layout(file: GGUFFile, program: Program, wanted: str, cache_bytes: int) -> Layout:
    """Decide how to lay out the weights, for EngineConfig.weights = `wanted`; a warning says so where a user may wonder.

    cache_bytes: what the cache may come to use. Raises ModelFileError for a packed file that was asked for by name and does
    not fit.
    """
    if wanted == "raw":
        return Layout(packed=False)
    raw = weights.raw_matrices(program, file)
    if wanted not in WEIGHT_LAYOUTS:
        try:
            return Layout(packed=True, mapped=_open(Path(wanted).expanduser(), file, raw))
        except packed_file.UnusableError as error:
            raise ModelFileError(_refusal(wanted, file, error)) from None
    path = usual_path(file)
    if os.path.exists(path):
        try:
            return Layout(packed=True, mapped=_open(path, file, raw))
        except packed_file.UnusableError as error:
            warnings.warn(_refusal(path, file, error), RuntimeWarning, stacklevel=2)
    if wanted == "packed":
        return Layout(packed=True)
    needed, available = needed_bytes(weights.packed_size(raw), cache_bytes), available_bytes()
    if needed > available:
        warnings.warn(
            f"packing the weights would take {needed / 1e9:.2f} GB of memory with the cache, {available / 1e9:.2f} GB are "
            f"available: they are used from {file.path} as they are, which is slower (--weights packed packs them all "
            f"the same; `edgellm pack {file.path}` packs them on the disk)",
            RuntimeWarning,
            stacklevel=2,
        )
    return Layout(packed=needed <= available)


def find_packed(file: GGUFFile, raw: Mapping[str, weights.Matrix]) -> tuple[Path | None, str | None]:
    """-> the packed file of a model in the usual place, if there is one, and why it would not be used, None if it would."""
    path = usual_path(file)
    if not os.path.exists(path):
        return None, None
    try:
        _open(path, file, raw)
    except packed_file.UnusableError as error:
        return path, str(error)
    return path, None


def needed_bytes(packed_bytes: int, cache_bytes: int) -> int:
    """Memory of a model that is packed at load."""
    return packed_bytes + cache_bytes + WORK_BYTES


def pack_model(
    path: str | Path, output: Path | None = None, num_threads: int | None = None, progress: Progress | None = None
) -> tuple[Path, int]:
    """Write the packed file of a model. -> where it lies, and its bytes.

    Raises ModelFileError, UnsupportedError, ResourceError for lack of room, OptionError for an output without the suffix.
    """
    if output is not None and output.suffix != PACKED_SUFFIX:
        raise OptionError(f"--output must end in {PACKED_SUFFIX}, not {output.name!r}")
    with open_gguf(path) as file:
        program = models.get(str(file.require("general.architecture"))).build(file.metadata, file.tensors)
        matrices, to = weights.raw_matrices(program, file), output or usual_path(file)
        _remove_leftovers(to.parent)
        names = [*threads.KERNELS, *weights.kernel_names(program, file)]
        names = [n for n in names if n in threads.KERNELS or n.startswith("pack_")]
        kernels = objects.addresses(names, objects.choose_level().level, paths.home() / "kernels", progress)
        team = threads.Threads(num_threads or threads.default_threads(), kernels, 4096)
        try:
            place = os.path.realpath(file.parts[0])
            nbytes = packed_file.write_packed(
                to, file.identity(), place, matrices, kernels, team, file.forget, progress
            )
        finally:
            team.close()
        return to, nbytes


def list_packed() -> list[PackedModel]:
    """Describe the packed files in the usual place."""
    found = []
    for path in sorted(folder().glob(f"*{PACKED_SUFFIX}")):
        with contextlib.suppress(FileNotFoundError):
            found.append(describe(path))
    return found


def describe(path: Path) -> PackedModel:
    """Say what a packed file is, and whether it would be used. Raises FileNotFoundError."""
    nbytes = path.stat().st_size
    try:
        table = packed_file.read_table(path)
    except packed_file.UnusableError as error:
        return PackedModel(path, None, nbytes, str(error))
    problem = None
    try:
        with open_gguf(table.model) as file:
            packed_file.open_packed(path, file.identity())
    except EdgeLLMError:
        problem = "its model is not there any more"
    except packed_file.UnusableError as error:
        problem = str(error)
    return PackedModel(path, table.model, nbytes, problem)


def remove_packed(path: str | Path) -> Path | None:
    """Delete the packed file of a model in the usual place. -> where it was, None if there was none."""
    with open_gguf(path) as file:
        to = usual_path(file)
    try:
        to.unlink()
    except FileNotFoundError:
        return None
    return to


def _open(path: Path, file: GGUFFile, raw: Mapping[str, weights.Matrix]) -> dict[str, NDArray[np.uint8]]:
    return packed_file.open_packed(path, file.identity()).matrices(raw)


def _refusal(path: str | Path, file: GGUFFile, error: Exception) -> str:
    return f"the packed file {path} is not used: {error}; it is made anew by `edgellm pack {file.path}`"


def _remove_leftovers(place: Path) -> None:
    with contextlib.suppress(OSError):
        for part in place.glob(f".*{packed_file.PART_SUFFIX}"):
            if time.time() - part.stat().st_mtime > _LEFTOVER_S:
                part.unlink()
