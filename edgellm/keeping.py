"""What a model's cache keeps beyond the process: the disk cache on its own, and states that an application saves and loads.

Puts together what is kept (`cache/restore.py`), what it is of (`cache/identity.py`) and where (`cache/disk.py`,
`cache/state.py`); knows none of them from inside. Imported only where something is kept: starting a model waits for nothing here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from . import paths
from .cache.disk import DiskCache
from .cache.identity import Identity
from .cache.kv import KVCache
from .cache.model_hash import ModelHash, Stopped, stamp
from .cache.restore import Restorer, list_nodes, read_node
from .cache.state import StateNode, read_state, write_state
from .cache.tree import Node
from .config import EngineConfig
from .errors import StateError
from .gguf import GGUFFile
from .kernels.ops import Program
from .shared_engine import SharedEngine

if TYPE_CHECKING:
    from .loader import LoadedModel


def folder() -> Path:
    """Where the disk cache of all models lies; it may not exist yet."""
    return paths.home() / "cache"


def make_identity(file: GGUFFile, program: Program, config: EngineConfig, cache: KVCache) -> Identity:
    """Say what the cache's keys and values are of."""
    files = [(path, stamp(status)) for path, status in zip(file.parts, file.statuses, strict=True)]
    model = ModelHash(files, file.identity, folder() / "hashes")
    return Identity(program, config.cache_formats, config.precise, cache.block_bytes_of_group, model)


def open_disk_cache(file: GGUFFile, program: Program, config: EngineConfig, cache: KVCache) -> DiskCache:
    """Let beginnings of this model outlive the process, within config.disk_cache bytes for all models."""
    storage = DiskCache(folder(), make_identity(file, program, config, cache), config.disk_cache)
    cache.storage = storage
    return storage


def save_state(loaded: LoadedModel, shared: SharedEngine, path: str | os.PathLike[str]) -> int:
    """Write all prefixes that the cache holds to a file. -> their tokens. Other answers go on meanwhile.

    Raises ResourceError where the file cannot be written, StateError if the model's file has changed since it was loaded, and
    for a model with layers that have a state: what those keep cannot be saved yet.
    """
    _refuse_states(loaded)
    cache, count = loaded.cache, 0

    def read_all() -> Iterator[StateNode]:
        nonlocal count
        for node in shared.call(lambda: list_nodes(cache)):
            found = shared.call(_reading(cache, node))
            if found is not None:
                count += len(found.token_ids)
                yield found

    write_state(Path(path), _make_parts(loaded), read_all())
    return count


def load_state(loaded: LoadedModel, shared: SharedEngine, path: str | os.PathLike[str]) -> int:
    """Put the prefixes of a saved state into the cache, as far as it has memory. -> their tokens.

    Raises StateError, before anything is used, where the file is missing, damaged or of something else.
    """
    _refuse_states(loaded)
    restorer = Restorer(loaded.cache)
    for node in read_state(Path(path), _make_parts(loaded), _make_identity(loaded).block_bytes):
        shared.call(_putting(restorer, node))
    return shared.call(restorer.count)


def _refuse_states(loaded: LoadedModel) -> None:
    if loaded.program.state_layers:
        raise StateError(
            f"models of the architecture {loaded.architecture} cannot save or load states: some of their layers keep more than "
            "keys and values; start without one"
        )


def _make_identity(loaded: LoadedModel) -> Identity:
    return make_identity(loaded.file, loaded.program, loaded.config, loaded.cache)


def _make_parts(loaded: LoadedModel) -> dict[str, str]:
    identity = _make_identity(loaded) if loaded.storage is None else loaded.storage.identity
    try:
        return identity.parts(identity.model.compute())
    except Stopped:
        raise StateError(
            f"the file {loaded.path} has changed since it was loaded, so nobody can say what a state is of; load the model again"
        ) from None


def _reading(cache: KVCache, node: Node) -> Callable[[], StateNode | None]:
    return lambda: read_node(cache, node)


def _putting(restorer: Restorer, node: StateNode) -> Callable[[], None]:
    return lambda: restorer.put(node)
