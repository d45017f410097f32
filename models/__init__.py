"""Architectures, one file each, named as GGUF's general.architecture. `get` finds one by that name.

To add one: write its file with a `build` like llama.py's, then import it here and list it in `_MODULES`.
"""

from __future__ import annotations

if __name__ != "edgellm.models":
    raise ImportError("this folder is installed as edgellm.models; import that name")

from collections.abc import Mapping
from typing import Any, Protocol

from ..errors import UnsupportedError
from ..kernels.ops import Program
from . import bert, gemma3, gemma_embedding, llama, nomic_bert, qwen2, qwen3
from .hparams import HParams
from .weights import HasShape

__all__ = ["ARCHITECTURES", "Architecture", "HasShape", "context_length", "get"]


class Architecture(Protocol):
    """What a file of this folder offers."""

    def build(self, metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
        """Write the network that the metadata and the shapes of the tensors describe."""


_MODULES: dict[str, Architecture] = {
    "bert": bert,
    "gemma-embedding": gemma_embedding,
    "gemma3": gemma3,
    "llama": llama,
    "nomic-bert": nomic_bert,
    "qwen2": qwen2,
    "qwen3": qwen3,
}
ARCHITECTURES = tuple(_MODULES)


def get(architecture: str) -> Architecture:
    """Find an architecture by GGUF's name for it; UnsupportedError names those there are."""
    try:
        return _MODULES[architecture]
    except KeyError:
        known = ", ".join(sorted(_MODULES))
        raise UnsupportedError(
            f"models of the architecture {architecture!r} are not supported; edgellm knows {known}"
            " (CONTRIBUTING.md says how to add one)"
        ) from None


def context_length(metadata: Mapping[str, Any]) -> int | None:
    """Tokens the model was trained on at once; None if the file does not say, or says 0."""
    return HParams(metadata, str(metadata.get("general.architecture"))).integer("context_length", 0, low=0) or None
