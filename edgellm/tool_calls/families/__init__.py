"""The families of models that call tools, each in its own file behind the interface of `family.py`.

Which one a model belongs to is read off its template: it shows the marks. Next hop: `hermes.py`, the commonest.
"""

from __future__ import annotations

from collections.abc import Callable

from ...errors import OptionError
from .bare_json import BARE_JSON
from .family import Family
from .hermes import COMMAND_R, GRANITE, HERMES, NEMOTRON
from .llama3 import LLAMA3
from .mistral import MISTRAL, MISTRAL_ARGS

__all__ = ["FAMILIES", "HERMES", "Family", "get_family", "pick_family"]

FAMILIES: dict[str, Family] = {
    family.name: family for family in (HERMES, LLAMA3, MISTRAL, MISTRAL_ARGS, GRANITE, NEMOTRON, COMMAND_R, BARE_JSON)
}
# What a template must show to belong to a family, the surest signs first.
_SIGNS: tuple[tuple[Family, Callable[[str], bool]], ...] = (
    (MISTRAL_ARGS, lambda source: "[TOOL_CALLS]" in source and "[ARGS]" in source),
    (MISTRAL, lambda source: "[TOOL_CALLS]" in source),
    (LLAMA3, lambda source: "<|python_tag|>" in source),
    (LLAMA3, lambda source: "<|start_header_id|>" in source and '"parameters"' in source),
    (COMMAND_R, lambda source: "<|START_ACTION|>" in source),
    (GRANITE, lambda source: "<|tool_call|>" in source),
    (NEMOTRON, lambda source: "<TOOLCALL>" in source),
    (HERMES, lambda source: "<tool_call>" in source),
)


def pick_family(source: str) -> Family:
    """Return the family that a template's source shows."""
    return next((family for family, shows in _SIGNS if shows(source)), BARE_JSON)


def get_family(name: str) -> Family:
    """Return the family of a name. Raises OptionError if there is none."""
    if name not in FAMILIES:
        raise OptionError(f"no family of tool calls is called {name!r:.80}; there are {', '.join(FAMILIES)}")
    return FAMILIES[name]
