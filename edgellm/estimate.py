"""What a model would need and how fast it would be on this machine, before it is loaded: `LLM.estimate`.

Asks where the decisions are made, as `doctor.py` does; reads the header, a moment of memory, and compiles nothing.
Next hops: `packing.py` for weights, `cache/memory.py` for the cache, `kernels/cpu/cores.py` for threads.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import models, packing
from .cache.memory import available_bytes, needed_bytes, read_bytes
from .cache.states import record_layout, state_bytes
from .config import EngineConfig
from .doctor import BANDWIDTH_SHARE, missing_kernels
from .errors import DownloadError
from .gguf import GGUFFile, open_gguf
from .hub import list_local
from .kernels.cpu import backend, cores, objects, weights
from .kernels.ops import Program
from .kernels.windowed import with_window
from .loader import settle

DEPTH = 512
"""Tokens in the cache for which decoding is reckoned: a short conversation."""
# Operations per cycle and thread that prefill reaches: measured on AVX2, on other levels by what their instructions do.
_OPS_PER_CYCLE = {"avx512vnni": 200, "avxvnni": 110, "avx2": 58, "i8mm": 90, "dotprod": 45, "generic": 8}
_USUAL_HZ = 2.5e9  # where the system does not say
_READ_BYTES = 1 << 26
_READINGS = 4


@dataclass(frozen=True, slots=True)
class Estimate:
    """What loading a model would take and give here.

    layout: how the weights would be had: "packed" and "raw" (see EngineConfig), "mapped" from a file made before.
    weight_bytes: memory of the weights; those that are mapped can be given back under pressure.
    cache_bytes: of keys and values that max_sequences sequences of max_context tokens come to use; twice as much is taken
    for what earlier ones leave, where there is the memory and no cache_memory is set. peak_bytes: weights, cache and
    everything else. available_bytes: what this process may still take. max_context: tokens of a sequence, None for no end.
    decode_tps, prefill_tps: tokens per second to expect, roughly: of an answer with 512 tokens in the cache, of a prompt.
    num_missing_kernels: kernels that the first load would compile, a second or two each.
    """

    path: str
    architecture: str
    layout: str
    weight_bytes: int
    cache_bytes: int
    peak_bytes: int
    available_bytes: int
    max_context: int | None
    threads: int
    decode_tps: float
    prefill_tps: float
    num_missing_kernels: int

    @property
    def fits(self) -> bool:
        """True if it can be loaded as things are."""
        needed = self.peak_bytes if self.layout == "packed" else self.peak_bytes - self.weight_bytes
        return needed <= self.available_bytes


def estimate(model: str, config: EngineConfig) -> Estimate:
    """Reckon what loading `model`, a path or the name of a model that is here, would take and give.

    Raises DownloadError if it is not here, ModelFileError or UnsupportedError if it cannot be run.
    """
    with open_gguf(find(model)) as file:
        return _reckon(file, config)


def find(model: str) -> Path:
    """The file of a model that is on this machine. Raises DownloadError if it is not."""
    path = Path(model).expanduser()
    if path.is_file():
        return path
    for local in list_local():
        if local.name == model:
            return local.path
    raise DownloadError(f"{model} is no file, and no model of that name is here; fetch it first: edgellm pull {model}")


def _reckon(file: GGUFFile, config: EngineConfig) -> Estimate:
    architecture = str(file.require("general.architecture"))
    program = models.get(architecture).build(file.metadata, file.tensors)
    config = settle(config, models.context_length(file.metadata))
    if config.window is not None:
        program = with_window(program, config.window, config.sinks)
    raw, formats = weights.raw_matrices(program, file), config.cache_formats
    cache_bytes = config.cache_memory or needed_bytes(
        program.cache_layers, config.max_context, config.max_sequences, config.prefill_chunk, formats
    ) + state_bytes(program.state_layers, config.max_sequences)
    layout = _layout(file, raw, config, cache_bytes)
    weight_bytes = weights.packed_size(raw)
    threads = config.threads or cores.choose_threads().count
    token_bytes = weights.decode_bytes(program, raw) + read_bytes(program.cache_layers, DEPTH, formats)
    token_bytes += 2 * record_layout(program.state_layers)[0]  # one is read, another written
    return Estimate(
        path=str(file.path),
        architecture=architecture,
        layout=layout,
        weight_bytes=weight_bytes,
        cache_bytes=cache_bytes,
        peak_bytes=packing.needed_bytes(weight_bytes, cache_bytes),
        available_bytes=available_bytes(),
        max_context=config.max_context,
        threads=threads,
        decode_tps=BANDWIDTH_SHARE * _read_bandwidth(threads) / token_bytes,
        prefill_tps=_operations_per_second(threads) / _operations_per_token(program, raw) / (1 + config.precise),
        num_missing_kernels=len(missing_kernels(backend.kernel_names(program, file, formats))),
    )


def _layout(file: GGUFFile, raw: dict[str, weights.Matrix], config: EngineConfig, cache_bytes: int) -> str:
    if config.weights in ("raw", "packed"):
        return config.weights
    packed, problem = packing.find_packed(file, raw)
    if config.weights != "auto" or (packed and not problem):
        return "mapped"
    return "packed" if packing.needed_bytes(weights.packed_size(raw), cache_bytes) <= available_bytes() else "raw"


def _operations_per_token(program: Program, raw: dict[str, weights.Matrix]) -> int:
    """Multiplications and additions that a token of a prompt takes: every matrix but the last."""
    parts = weights.parts_read(program.without_logits())
    return round(2 * sum(raw[name].rows * raw[name].width * part for name, part in parts.items()))


def _operations_per_second(threads: int) -> float:
    import psutil  # type: ignore[import-untyped,unused-ignore]

    try:
        clock = psutil.cpu_freq()
        mhz = max(clock.max, clock.current) if clock else 0.0
    except (AttributeError, OSError, NotImplementedError, RuntimeError):
        mhz = 0.0
    hz = mhz * 1e6 if mhz > 100 else _USUAL_HZ
    return threads * hz * _OPS_PER_CYCLE.get(objects.choose_level().level.name, _OPS_PER_CYCLE["generic"])


def _read_bandwidth(num_threads: int) -> float:
    """Bytes per second that threads read together, by NumPy's quickest pass over memory: the best of a few."""
    parts = np.array_split(np.ones(_READ_BYTES // 4, np.float32), num_threads)
    best = 0.0
    for _ in range(_READINGS):
        threads = [threading.Thread(target=part.max) for part in parts]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        best = max(best, _READ_BYTES / (time.perf_counter() - start))
    return best
