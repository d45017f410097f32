"""Say what edgellm finds on this machine and what it makes of it, and what a model would do here: for `edgellm doctor`.

Asks everything where the decision itself is made, so that it cannot disagree with a load. Writes nothing but compiled
kernels. Next hops: `kernels/cpu/` isa.py, cores.py, limits.py and bandwidth.py; `packing.py`.
"""

from __future__ import annotations

import math
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from . import models, packing, paths
from .cache.memory import DEFAULT_FORMATS, Formats, available_bytes, growth_bytes, needed_bytes, read_bytes
from .cache.states import record_layout, state_bytes
from .config import DEFAULT_MAX_CONTEXT, PACKED_SUFFIX
from .errors import EdgeLLMError
from .gguf import GGUFFile
from .kernels.cpu import backend, cores, limits, objects, shipped, store, weights
from .version import __version__

BANDWIDTH_SHARE = 0.85
"""Part of the read bandwidth that decode is expected to use."""
LIBRARIES = ("numpy", "numba", "llvmlite", "gguf")


@dataclass(frozen=True, slots=True)
class Machine:
    """What is here and what edgellm makes of it. cpu_quota: CPUs' worth of time, None for no limit.

    memory_bytes: of the system. available_bytes: what may still be taken, by the container's limit where is_limited.
    """

    cpu: str
    system: str
    level: str
    level_reason: str
    physical_cores: int
    fast_cores: int
    logical_cores: int
    allowed_cpus: int
    cpu_quota: float | None
    threads: int
    threads_reason: str
    memory_bytes: int
    available_bytes: int
    is_limited: bool


@dataclass(frozen=True, slots=True)
class Home:
    """The folder for models and compiled kernels. problem: why nothing can be kept there, None if it can.

    num_kernels: those of this CPU, level and version that are kept, and how many files packed models have there.
    """

    path: str
    problem: str | None
    num_kernels: int
    num_packed: int
    packed_bytes: int


@dataclass(frozen=True, slots=True)
class ModelReport:
    """What a model would do here.

    token_bytes: weights and cache that decoding one token reads, with depth tokens in the cache. needed_bytes: memory for
    packed weights, the cache at max_context and everything else. cache_token_bytes: what a token adds to the cache, in
    layers that see all. layout: how a load would have the weights: "packed",
    "raw" or "mapped". packed_problem: why the packed file that is there is not used. num_kernels, num_missing: kernels that it
    takes, and how many of them must be compiled first. problem: why edgellm cannot run the model; the rest is then None.
    """

    path: str
    problem: str | None
    weight_bytes: int | None = None
    token_bytes: int | None = None
    depth: int | None = None
    max_context: int | None = None
    needed_bytes: int | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    cache_token_bytes: int | None = None
    layout: str | None = None
    packed_file: str | None = None
    packed_problem: str | None = None
    num_kernels: int | None = None
    num_missing: int | None = None

    def expected_tps(self, bandwidth: float) -> float | None:
        """Tokens per second to expect where so many bytes per second can be read."""
        return BANDWIDTH_SHARE * bandwidth / self.token_bytes if self.token_bytes else None


def examine_machine() -> Machine:
    """Look at the CPU, its level and threads, and memory. Raises OptionError for an EDGELLM_ISA that is not there."""
    import psutil  # type: ignore[import-untyped,unused-ignore]

    choice, found = objects.choose_level(), cores.get_cores()
    threads, memory, left = cores.choose_threads(found), psutil.virtual_memory(), limits.memory_left()
    return Machine(
        cpu=cores.cpu_name(),
        system=f"{platform.system()} {platform.machine()}",
        level=choice.level.name,
        level_reason=choice.reason,
        physical_cores=found.physical,
        fast_cores=found.fast,
        logical_cores=found.logical,
        allowed_cpus=found.allowed,
        cpu_quota=None if found.quota == math.inf else found.quota,
        threads=threads.count,
        threads_reason=threads.reason,
        memory_bytes=int(memory.total),
        available_bytes=available_bytes(),
        is_limited=left < memory.available,
    )


def examine_home() -> Home:
    """Look at the folder that EDGELLM_HOME names, or the user's cache folder."""
    kernels = paths.home() / "kernels" / objects.cache_key(objects.choose_level().level)
    packed = _list_quietly(packing.folder(), PACKED_SUFFIX)
    return Home(
        path=str(paths.home()),
        problem=_why_unwritable(paths.home()),
        num_kernels=len(_list_quietly(kernels, ".o")),
        num_packed=len(packed),
        packed_bytes=sum(p.stat().st_size for p in packed),
    )


def get_versions() -> dict[str, str | None]:
    """Versions of what takes part; None for a library that is not installed."""
    found: dict[str, str | None] = {"edgellm": __version__, "python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = getattr(sys.modules.get(name), "__version__", None)
    return found


def thread_counts(most: int) -> list[int]:
    """Numbers of threads worth a measurement: all up to four, then fewer and fewer, and `most`."""
    steps = [n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64) if n < most]
    return [*steps, most]


def examine_model(
    file: GGUFFile, depth: int, max_context: int | None = None, cache_formats: Formats = DEFAULT_FORMATS
) -> ModelReport:
    """Reckon what an open model would do with `depth` tokens in its cache. Raises nothing for what is in the file."""
    path = str(file.path)
    try:
        program = models.get(str(file.require("general.architecture"))).build(file.metadata, file.tensors)
        raw = weights.raw_matrices(program, file)
        kernels = backend.kernel_names(program, file)
    except EdgeLLMError as error:
        return ModelReport(path, str(error))
    trained = models.context_length(file.metadata)
    context = max_context or min(DEFAULT_MAX_CONTEXT, trained or DEFAULT_MAX_CONTEXT)
    cache_bytes = needed_bytes(program.cache_layers, context, 1, min(512, context), cache_formats)
    cache_bytes += state_bytes(program.state_layers, 1)
    needed = packing.needed_bytes(weights.packed_size(raw), cache_bytes)
    packed, problem = packing.find_packed(file, raw)
    weight_bytes = weights.decode_bytes(program, raw)
    return ModelReport(
        path=path,
        problem=None,
        weight_bytes=weight_bytes,
        token_bytes=weight_bytes
        + read_bytes(program.cache_layers, depth, cache_formats)
        + 2 * record_layout(program.state_layers)[0],  # one is read, another written
        depth=depth,
        max_context=context,
        needed_bytes=needed,
        cache_type_k=cache_formats[0],
        cache_type_v=cache_formats[1],
        cache_token_bytes=growth_bytes(program.cache_layers, cache_formats),
        layout="mapped" if packed and not problem else "packed" if needed <= available_bytes() else "raw",
        packed_file=None if packed is None else str(packed),
        packed_problem=problem,
        num_kernels=len(set(kernels)),
        num_missing=len(missing_kernels(kernels)),
    )


def missing_kernels(names: Sequence[str]) -> set[str]:
    """Those that are not kept, or are damaged."""
    level = objects.choose_level().level
    kept, came_with = paths.home() / "kernels" / objects.cache_key(level), shipped.read_objects(names, level)
    return {name for name in set(names) - set(came_with) if store.read_object(kept, name) is None}


def _list_quietly(folder: Path, suffix: str) -> list[Path]:
    try:
        return [p for p in folder.iterdir() if p.suffix == suffix]
    except OSError:
        return []


def _why_unwritable(folder: Path) -> str | None:
    """Try to write there, and leave it as it was."""
    made = [place for place in (folder, *folder.parents) if not os.path.lexists(place)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return error.strerror or str(error)
    finally:
        for place in made:
            try:
                place.rmdir()
            except OSError:
                break
