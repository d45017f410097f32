"""edgellm runs GGUF language models on an ordinary CPU.

The public names, loaded on first use so that `import edgellm` costs nothing. Next hop: `llm.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .async_llm import AsyncLLM
    from .completion import Completion
    from .config import EngineConfig, SamplingParams
    from .errors import EdgeLLMError
    from .estimate import Estimate
    from .llm import LLM
    from .stream import Stream
    from .tokenizer import Tokenizer

__all__ = [
    "LLM",
    "AsyncLLM",
    "Completion",
    "EdgeLLMError",
    "EngineConfig",
    "Estimate",
    "SamplingParams",
    "Stream",
    "Tokenizer",
    "__version__",
]

_HOMES = {
    "LLM": "llm",
    "AsyncLLM": "async_llm",
    "Completion": "completion",
    "Stream": "stream",
    "Tokenizer": "tokenizer",
    "EngineConfig": "config",
    "SamplingParams": "config",
    "EdgeLLMError": "errors",
    "Estimate": "estimate",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'edgellm' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
