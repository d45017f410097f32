"""From a file to an engine: the only place that knows the concrete classes.

Order matters: everything that can be refused from the header alone is refused before memory is taken, and memory is
checked before weights are read. Next hop: `llm.py` above, `engine.py` and the backend below.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from . import models, packing, paths
from .cache.kv import KVCache, read_bytes
from .chat_template import ChatTemplate
from .config import EngineConfig
from .engine import Engine, default_max_context
from .gguf import GGUFFile, open_gguf
from .kernels.cpu.backend import CpuBackend
from .kernels.ops import CacheLayer
from .runner import Runner
from .tokenizer import Tokenizer

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run.

    template: None if the file has none. weight_bytes: what decoding one token reads of them. load_s: seconds loading took.
    """

    path: Path
    architecture: str
    engine: Engine
    tokenizer: Tokenizer
    template: ChatTemplate | None
    config: EngineConfig
    level: str
    num_threads: int
    weight_bytes: int
    cache_layers: tuple[CacheLayer, ...]
    load_s: float
    file: GGUFFile

    def cache_bytes(self, num_tokens: int) -> int:
        """Bytes of K and V that a token attends to at a depth of `num_tokens`: a layer with a window stops there."""
        return read_bytes(self.cache_layers, num_tokens)

    def close(self) -> None:
        """Stop the threads and give all memory back."""
        self.engine.close()
        self.file.close()


def load_model(path: str | Path, config: EngineConfig, progress: Progress | None = None) -> LoadedModel:
    """Open a GGUF file and make it ready. progress(stage, done, total) follows compiling and loading.

    Raises ModelFileError, UnsupportedError or ResourceError before any large memory is taken.
    """
    start = time.perf_counter()
    file = open_gguf(path)
    try:
        return _load(file, config, progress, start)
    except BaseException:
        file.close()
        raise


def _load(file: GGUFFile, config: EngineConfig, progress: Progress | None, start: float) -> LoadedModel:
    architecture = str(file.require("general.architecture"))
    program = models.get(architecture).build(file.metadata, file.tensors)
    tokenizer = Tokenizer.from_gguf(file)
    max_context = config.max_context or default_max_context(models.context_length(file.metadata))
    prefill_chunk = min(config.prefill_chunk, max_context)
    cache = KVCache(program.cache_layers, max_context, config.max_sequences, prefill_chunk)
    try:
        layout = packing.choose_layout(file, program, config.weights, cache.nbytes)
        file.forget_headers()
        backend = CpuBackend(
            program,
            file,
            cache,
            objects_folder=paths.home() / "kernels",
            num_threads=config.threads,
            max_tokens=prefill_chunk + config.max_sequences,
            max_sequences=config.max_sequences,
            max_context=max_context,
            packed=layout.packed,
            mapped=layout.mapped,
            precise=config.precise,
            progress=progress,
        )
    except BaseException:
        cache.free()
        raise
    config = replace(config, max_context=max_context, prefill_chunk=prefill_chunk)
    engine = Engine(Runner(backend, cache), cache, config, tokenizer.eog_ids)
    return LoadedModel(
        path=Path(file.path),
        architecture=architecture,
        engine=engine,
        tokenizer=tokenizer,
        template=_template(file, tokenizer),
        config=config,
        level=backend.level.name,
        num_threads=backend.threads.count,
        weight_bytes=backend.weight_bytes,
        cache_layers=program.cache_layers,
        load_s=time.perf_counter() - start,
        file=file,
    )


def _template(file: GGUFFile, tokenizer: Tokenizer) -> ChatTemplate | None:
    if file.get("tokenizer.chat_template") is None:
        return None
    return ChatTemplate.from_metadata(file.metadata, tokenizer)
