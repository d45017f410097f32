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
from . import (
    cohere2,
    deepseek2,
    gemma,
    gemma2,
    gemma3,
    gemma4,
    glm4,
    gpt_oss,
    granite,
    granitemoe,
    llama,
    mistral3,
    olmo2,
    olmoe,
    phi3,
    qwen2,
    qwen2moe,
    qwen3,
    qwen3moe,
    smollm3,
    stablelm,
    starcoder2,
)
from .hparams import HParams
from .weights import HasShape

__all__ = ["ARCHITECTURES", "Architecture", "HasShape", "context_length", "get"]


class Architecture(Protocol):
    """What a file of this folder offers."""

    def build(self, metadata: Mapping[str, Any], tensors: Mapping[str, HasShape]) -> Program:
        """Write the network that the metadata and the shapes of the tensors describe."""


_MODULES: dict[str, Architecture] = {
    "cohere2": cohere2,
    "deepseek2": deepseek2,
    "gemma": gemma,
    "gemma2": gemma2,
    "gemma3": gemma3,
    "gemma4": gemma4,
    "glm4": glm4,
    "gpt-oss": gpt_oss,
    "granite": granite,
    "granitemoe": granitemoe,
    "llama": llama,
    "mistral3": mistral3,
    "olmo2": olmo2,
    "olmoe": olmoe,
    "phi3": phi3,
    "qwen2": qwen2,
    "qwen2moe": qwen2moe,
    "qwen3": qwen3,
    "qwen3moe": qwen3moe,
    "smollm3": smollm3,
    "stablelm": stablelm,
    "starcoder2": starcoder2,
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
