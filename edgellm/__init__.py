"""edgellm runs GGUF language models on an ordinary CPU.

The public names, loaded on first use so that `import edgellm` costs nothing. Next hop: `llm.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .completion import Completion
    from .config import EngineConfig, SamplingParams
    from .errors import AnswerError, EdgeLLMError
    from .llm import LLM
    from .tokenizer import Tokenizer
    from .tool_calls import Delta, ToolCall

__all__ = [
    "LLM",
    "AnswerError",
    "Completion",
    "Delta",
    "EdgeLLMError",
    "EngineConfig",
    "SamplingParams",
    "Tokenizer",
    "ToolCall",
    "__version__",
]

_HOMES = {
    "LLM": "llm",
    "Completion": "completion",
    "Tokenizer": "tokenizer",
    "EngineConfig": "config",
    "SamplingParams": "config",
    "EdgeLLMError": "errors",
    "AnswerError": "errors",
    "Delta": "tool_calls",
    "ToolCall": "tool_calls",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'edgellm' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
