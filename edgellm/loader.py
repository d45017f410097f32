"""From a file to an engine: the only place that knows the concrete classes.

Order matters: everything that can be refused from the header alone is refused before memory is taken, and memory is
checked before weights are read. Next hop: `llm.py` above, `engine.py` and the backend below.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from . import cache_advice, guessing, lora, models, packing, paths
from .cache.kv import KVCache
from .cache.memory import read_bytes
from .chat_template import ChatTemplate
from .config import EngineConfig
from .engine import Engine, default_max_context
from .errors import OptionError
from .gguf import GGUFFile, open_gguf
from .kernels.context_rope import with_context
from .kernels.cpu.backend import CpuBackend
from .kernels.cpu.memory import release_heap
from .kernels.ops import CacheLayer, Program
from .kernels.windowed import reach, with_window
from .runner import Runner
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from .cache.disk import DiskCache

Progress = Callable[[str, int, int], None]
LONGEST_TEXT = 1 << 14
TEXTS_AT_ONCE = 16
"""Texts that an encoder reads in one step, if they fit: weights are then read once for all."""

LARGE_MODEL = 32 << 20
"""Bytes of weights from which what loading has left on the heap is worth looking for: a test loads small ones by the hundred."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run.

    template: None if neither the file nor its family has one.
    config: as it runs, with max_context (None: no end), window and prefill_chunk chosen.
    storage: None without a disk cache.
    weight_bytes: what decoding one token reads of them. load_s: seconds loading took.
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
    program: Program
    cache: KVCache
    storage: DiskCache | None
    load_s: float
    file: GGUFFile
    adapters: lora.AdapterSet

    @property
    def cache_layers(self) -> tuple[CacheLayer, ...]:
        """What attention keeps."""
        return self.program.cache_layers

    def cache_bytes(self, num_tokens: int) -> int:
        """Bytes of K and V that a token attends to at a depth of `num_tokens`: a layer with a window stops there."""
        return read_bytes(self.cache_layers, num_tokens, self.config.cache_formats)

    def close(self) -> None:
        """Stop the threads, which write what is still to be kept on disk, and give all memory back."""
        self.engine.close()
        if self.storage is not None:
            self.storage.close()
        self.file.close()


_Text = tuple[Tokenizer, ChatTemplate | None]


class _Later:
    """A result that a thread of its own computes meanwhile: the vocabulary, while kernels pack the weights."""

    def __init__(self, compute: Callable[[], _Text]) -> None:
        self._compute = compute
        self._result: _Text | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="edgellm-vocabulary")
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._compute()
        except BaseException as error:  # raised again where the result is wanted
            self._error = error

    def wait(self) -> None:
        """Wait until it has ended, well or not."""
        self._thread.join()

    def get(self) -> _Text:
        """-> the result; raises what computing it raised."""
        self.wait()
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result


def load_model(path: str | Path, config: EngineConfig, progress: Progress | None = None) -> LoadedModel:
    """Open a GGUF file and make it ready. progress(stage, done, total) follows compiling and loading.

    Raises ModelFileError, UnsupportedError or ResourceError, all but a vocabulary's faults before large memory is taken.
    """
    start = time.perf_counter()
    file = open_gguf(path)
    try:
        return _load(file, config, progress, start)
    except BaseException:
        file.close()
        raise


def _load(file: GGUFFile, config: EngineConfig, progress: Progress | None, start: float) -> LoadedModel:
    lora.refuse_adapter(file)
    architecture = str(file.require("general.architecture"))
    program = models.get(architecture).build(file.metadata, file.tensors)
    adapters = lora.AdapterSet(file, program, config.lora)
    text = _Later(lambda: _read_text(file))
    try:
        config = settle(config, models.context_length(file.metadata), program)
        program = _limit(program, config)
        cache_advice.warn(config, file)
        backend, cache = _make_backend(file, program, config, adapters, progress)
    finally:
        adapters.close()
        text.wait()  # it reads the file, which may be closed next
    try:
        tokenizer, template = text.get()
        speculator = None if config.spec == "off" else guessing.make_speculator(config, file, progress)
    except BaseException:
        backend.close()
        cache.free()
        raise
    storage = _open_storage(file, program, config, cache)  # it may sample the headers
    file.forget_headers()
    if backend.weight_bytes >= LARGE_MODEL:
        release_heap()
    dropping = None if config.window is None else reach(program.cache_layers)
    is_encoder = not program.makes_logits
    engine = Engine(Runner(backend, cache), cache, config, tokenizer.eog_ids, dropping, speculator, is_encoder)
    return LoadedModel(
        path=Path(file.path),
        architecture=architecture,
        engine=engine,
        tokenizer=tokenizer,
        template=template,
        config=config,
        level=backend.level.name,
        num_threads=backend.threads.count,
        weight_bytes=backend.weight_bytes,
        program=program,
        cache=cache,
        storage=storage,
        load_s=time.perf_counter() - start,
        file=file,
        adapters=adapters,
    )


def settle(config: EngineConfig, trained: int | None, program: Program | None = None) -> EngineConfig:
    """Fill in what was left to us: either max_context, or a window and no end of the context.

    trained: tokens the model was trained on at once, None if the file does not say. A window that begins where the context
    is full is as long as the context: until then nothing differs by a bit. program: None for one that writes text.
    Raises OptionError for what the program cannot do.
    """
    if program is not None and not program.makes_logits:
        return _settle_encoder(config, trained, program.max_positions)
    if config.window is not None:
        return config
    max_context = config.max_context or default_max_context(trained)
    if config.on_full == "window":
        return replace(config, max_context=None, window=max_context)
    return replace(config, max_context=max_context, prefill_chunk=min(config.prefill_chunk, max_context))


def _settle_encoder(config: EngineConfig, trained: int | None, most: int | None) -> EngineConfig:
    """Texts are computed in one piece, several at once, and nothing is kept of them."""
    if config.window is not None or config.on_full == "window":
        raise OptionError("this model reads a text in one piece and sees all of it: it takes no window")
    max_context = config.max_context or default_max_context(trained if most is None else most)
    if most is not None and max_context > most:
        raise OptionError(
            f"max_context is {max_context}, and this model has places for {most} tokens; choose at most {most}"
        )
    if max_context > LONGEST_TEXT:
        raise OptionError(f"max_context is {max_context}; an encoder reads at most {LONGEST_TEXT} tokens at once")
    return replace(
        config,
        max_context=max_context,
        prefill_chunk=max(config.prefill_chunk, max_context),
        max_sequences=max(config.max_sequences, TEXTS_AT_ONCE),
        spec="off",
        draft_model=None,
        spec_corpus=False,
        disk_cache=0,
    )


def _limit(program: Program, config: EngineConfig) -> Program:
    """Choose by how much a token can see, and give the layers the window that was chosen; say so if that changes none."""
    sees = config.window or config.max_context
    assert sees is not None, "settle() chose one of the two"
    program = with_context(program, sees)
    if config.window is None:
        return program
    limited = with_window(program, config.window, config.sinks)
    if limited.cache_layers == program.cache_layers and config.on_full == "stop":
        warnings.warn(
            f"window {config.window} changes nothing: no layer of this model sees more than {reach(program.cache_layers)} tokens",
            RuntimeWarning,
            stacklevel=2,
        )
    return limited


def _make_backend(
    file: GGUFFile, program: Program, config: EngineConfig, adapters: lora.AdapterSet, progress: Progress | None
) -> tuple[CpuBackend, KVCache]:
    cache = KVCache(
        program.cache_layers,
        config.max_context,
        config.max_sequences,
        config.prefill_chunk,
        config.cache_formats,
        config.cache_memory,
        state_layers=program.state_layers,
        reuses=config.prefix_caching,
    )
    try:
        layout = packing.choose_layout(file, program, config.weights, cache.nbytes)
        backend = CpuBackend(
            program,
            adapters,
            cache,
            objects_folder=paths.home() / "kernels",
            num_threads=config.threads,
            max_tokens=config.prefill_chunk + config.max_sequences,
            max_sequences=config.max_sequences,
            max_context=config.max_context,
            packed=layout.packed,
            mapped=layout.mapped,
            precise=config.precise,
            adapters=adapters.adapters,
            progress=progress,
        )
    except BaseException:
        cache.free()
        raise
    return backend, cache


def _open_storage(file: GGUFFile, program: Program, config: EngineConfig, cache: KVCache) -> DiskCache | None:
    if not config.disk_cache or program.state_layers:  # states are kept for this process alone
        return None
    from . import keeping

    return keeping.open_disk_cache(file, program, config, cache)


def _read_text(file: GGUFFile) -> _Text:
    """What turns text into ids: the vocabulary and, if the file or its family has one, the chat template."""
    tokenizer = Tokenizer.from_gguf(file)
    return tokenizer, ChatTemplate.find(file.metadata, tokenizer)
