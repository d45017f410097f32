"""The one place where a command gets its model: options in, LLM out, progress on stderr.

Next hop: `..llm` for LLM.load; `..hub` for what a model's name means.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import EngineConfig
from .progress import Progress

if TYPE_CHECKING:
    from ..llm import LLM


def load_llm(model: str, config: EngineConfig) -> LLM:
    """Load `model` with the options of `config`, showing what takes long."""
    from ..llm import LLM

    with Progress() as progress:
        return LLM.load(model, progress=progress, **{f.name: getattr(config, f.name) for f in fields(config)})


def find_file(model: str) -> Path:
    """Return the local file of `model`, fetched first where needed."""
    from ..hub import resolve

    with Progress() as progress:
        return resolve(model, progress)
