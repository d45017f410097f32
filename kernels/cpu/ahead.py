"""Compile kernels ahead, for machines of a kind: the bundles that an application ships.

A bundle may be made piece by piece, one target or some formats at a time; what is there and fits is kept. Next hop:
`shipped.py` finds and reads them, `edgellm kernels` is the command.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from ...errors import ResourceError, UnsupportedError
from .. import formats
from . import cache_kernels, lower, objects, shipped, store, threads, vocabulary, weights
from .target import Target


def format_kernels(format_name: str) -> list[str]:
    """Names of a format's kernels."""
    format = formats.get(format_name)
    name = format.name.lower()
    return [f"pack_{name}", f"expand_{name}", *weights.linear_kernels(format)]


def common_kernels() -> list[str]:
    """Names of the kernels that every model needs, and of the one that measures memory."""
    of_cache = [name for form in cache_kernels.FORMATS for name in cache_kernels.names(form, form).values()]
    return [*threads.KERNELS, *lower.KERNELS, *vocabulary.KERNELS, *of_cache, "pack_matrix", "read_memory"]


def _named(progress: objects.Progress | None, target: Target) -> objects.Progress | None:
    return progress and (lambda _, done, total: progress(f"compile kernels for {target.name}", done, total))


def build(names: Sequence[str], target: Target, bundle: Path, progress: objects.Progress | None = None) -> Path:
    """Compile kernels for a target into a bundle, unless they are there. -> the target's folder.

    Raises UnsupportedError in a frozen application, ResourceError if the bundle cannot be written.
    """
    made_from = store.source_hash()
    if not made_from:
        raise UnsupportedError(
            "a frozen application cannot build kernels: it lacks their sources; use an installed edgellm"
        )
    folder = bundle / shipped.folder_name(target.name, made_from)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        missing = [n for n in names if store.read_object(folder, n) is None]
        if missing:
            objects.compile_objects(missing, target, folder, _named(progress, target))
        store.write_file(bundle / shipped.MANIFEST, json.dumps({"sources": made_from}).encode())
        for path in (bundle / shipped.MANIFEST, *(folder / f"{n}.o" for n in names)):
            os.chmod(path, 0o644)  # temporary files are their owner's alone, a bundle is everybody's
    except OSError as error:
        raise ResourceError(
            f"kernels cannot be written to {bundle} ({error.strerror}); choose another --output"
        ) from None
    return folder
