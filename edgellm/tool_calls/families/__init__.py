"""The families of models that call tools, each in its own file behind the interface of `family.py`.

Which one a model belongs to is read off its template, which shows the marks, or off its vocabulary. Next hop: `hermes.py`,
the commonest.
"""

from __future__ import annotations

from collections.abc import Callable

from ...errors import OptionError
from .bare_json import BARE_JSON
from .family import Family
from .gemma4 import GEMMA4
from .hermes import COMMAND_R, GIGACHAT, GRANITE, HERMES, NEMOTRON, TOOL_CALLS_TAG
from .lfm2 import LFM2
from .llama3 import LLAMA3
from .mistral import MISTRAL, MISTRAL_ARGS
from .tagged import GLM, SEED, TAGGED

__all__ = ["FAMILIES", "HERMES", "Family", "get_family", "pick_family"]

_ALL: tuple[Family, ...] = (
    *(HERMES, LLAMA3, MISTRAL, MISTRAL_ARGS, TAGGED, GLM, SEED, LFM2, GEMMA4),
    *(GRANITE, NEMOTRON, COMMAND_R, TOOL_CALLS_TAG, GIGACHAT, BARE_JSON),
)
FAMILIES = {family.name: family for family in _ALL}
# What a template must show to belong to a family, the surest signs first.
_SIGNS: tuple[tuple[Family, Callable[[str], bool]], ...] = (
    (MISTRAL_ARGS, lambda source: "[TOOL_CALLS]" in source and "[ARGS]" in source),
    (MISTRAL, lambda source: "[TOOL_CALLS]" in source),
    (LLAMA3, lambda source: "<|python_tag|>" in source),
    (LLAMA3, lambda source: "<|start_header_id|>" in source and '"parameters"' in source),
    (COMMAND_R, lambda source: "<|START_ACTION|>" in source),
    (GRANITE, lambda source: "<|tool_call|>" in source),
    (NEMOTRON, lambda source: "<TOOLCALL>" in source),
    (GEMMA4, lambda source: "<|tool_call>" in source),
    (SEED, lambda source: "<seed:tool_call>" in source),
    (LFM2, lambda source: "<|tool_call_start|>" in source),
    (GIGACHAT, lambda source: "<|function_call|>" in source),
    (TOOL_CALLS_TAG, lambda source: "<tool_calls>" in source),
    (TAGGED, lambda source: "<tool_call>" in source and "<function=" in source),
    (GLM, lambda source: "<tool_call>" in source and "<arg_key>" in source),
    (HERMES, lambda source: "<tool_call>" in source),
)


def pick_family(source: str, find_token: Callable[[str], int | None]) -> Family:
    """Return the family that a template's source shows, or else one whose mark is a token of the vocabulary."""
    for family, shows in _SIGNS:
        if shows(source):
            return family
    return next((f for f in _ALL if any(find_token(mark) is not None for mark in f.marks)), BARE_JSON)


def get_family(name: str) -> Family:
    """Return the family of a name. Raises OptionError if there is none."""
    if name not in FAMILIES:
        raise OptionError(f"no family of tool calls is called {name!r:.80}; there are {', '.join(FAMILIES)}")
    return FAMILIES[name]
