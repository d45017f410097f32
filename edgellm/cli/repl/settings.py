"""Sampling parameters as people type them: every field of SamplingParams, by its name, from a text and to one.

Knows no model and no screen. Next hop: `..config.SamplingParams`, which checks the values.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from ...config import SamplingParams
from ...errors import OptionError

TOPICS = {
    "parameter": "NAME VALUE: how answers are made",
    "system": "TEXT: what the model is told before the conversation",
    "markdown": "draw answers (the default at a terminal)",
    "nomarkdown": "show answers as they are written",
    "verbose": "show figures after every answer",
    "quiet": "do not",
    "format": "json: every answer is a JSON object",
    "noformat": "answers may have any form",
    "think": "let a model that can think before it answers do so",
    "nothink": "tell it not to",
    "history": "keep what is typed, and the last conversation, on disk (the default at a terminal)",
    "nohistory": "keep nothing from now on",
}
DEFAULTS = {field.name: getattr(SamplingParams(), field.name) for field in dataclasses.fields(SamplingParams)}
RESET = "default"
NONE_WORDS = ("none", "off")
TRUE_WORDS, FALSE_WORDS = ("true", "on", "yes", "1"), ("false", "off", "no", "0")
# Ollama's names for what is called otherwise here, or chosen elsewhere.
FOREIGN = {
    "num_predict": "it is called max_tokens here",
    "num_ctx": "the context is chosen at the start: edgellm chat --max-context N",
    "num_thread": "threads are chosen at the start: edgellm chat --threads N",
    "num_keep": "it is chosen at the start: edgellm chat --sinks N",
}


def change(params: SamplingParams, start: SamplingParams, name: str, text: str) -> SamplingParams:
    """Return `params` with one field set from what was typed; "default" takes it from `start`.

    Raises OptionError for a name nobody knows or a value that does not fit.
    """
    check_name(name)
    value = getattr(start, name) if text == RESET else parse(name, text)
    return dataclasses.replace(params, **{name: value})


def check_name(name: str) -> None:
    """Raise OptionError, with what may be meant, where no parameter has this name."""
    if name in FOREIGN:
        raise OptionError(f"there is no parameter {name}: {FOREIGN[name]}")
    if name not in DEFAULTS:
        from difflib import get_close_matches

        close = get_close_matches(name, DEFAULTS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(DEFAULTS)}"
        raise OptionError(f"there is no parameter {name}: {hint}")


def parse(name: str, text: str) -> Any:
    """Return the value of a field that a text names."""
    kind, may_be_none = _kind(name)
    if may_be_none and text.lower() in NONE_WORDS:
        return None
    if kind is bool:
        return _parse_bool(name, text)
    if kind is tuple:
        return _parse_texts(name, text)
    if kind is Mapping:
        return from_json(name, _parse_json(name, text))
    if kind is Any:
        return _parse_json(name, text)
    if kind is str:
        return text
    try:
        return kind(text)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise OptionError(f"{name} must be {what}, not {text!r}") from None


def usual_values(name: str) -> list[str]:
    """Return words that may be typed as the value of a field."""
    if name not in DEFAULTS:
        return []
    kind, may_be_none = _kind(name)
    return [RESET, *(("true", "false") if kind is bool else ()), *(("none",) if may_be_none else ())]


def changed(params: SamplingParams) -> dict[str, Any]:
    """Return the fields that are not as they are by default, ready for JSON."""
    values = {name: getattr(params, name) for name, default in DEFAULTS.items() if getattr(params, name) != default}
    return {name: _to_json(value) for name, value in values.items()}


def from_json(name: str, value: Any) -> Any:
    """Return a field's value from JSON. Raises OptionError if it is of another type."""
    kind, may_be_none = _kind(name)
    if kind is Any or (value is None and may_be_none):
        return value
    if kind is Mapping:
        if isinstance(value, dict) and all(re.fullmatch(r"-?\d{1,10}", key) for key in value):
            return {int(key): item for key, item in value.items()}
        raise OptionError(f'{name} must map token ids to numbers, as {{"42": -1.5}}, not {value!r}')
    if kind is tuple:
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise OptionError(f"{name} must be a list of texts, not {value!r}")
    wanted = (int, float) if kind is float else (kind,)
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind is not bool):
        words = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
        raise OptionError(f"{name} must be {words[kind]}, not {value!r:.80}")
    return value


def _kind(name: str) -> tuple[Any, bool]:
    """Return the type of a field without its parameters, and whether it may be None."""
    hint = get_type_hints(SamplingParams)[name]
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kind = next(kind for kind in kinds if kind is not type(None))
    return get_origin(kind) or kind, type(None) in kinds or kind is Any


def _parse_bool(name: str, text: str) -> bool:
    if text.lower() not in TRUE_WORDS + FALSE_WORDS:
        raise OptionError(f"{name} must be true or false, not {text!r}")
    return text.lower() in TRUE_WORDS


def _parse_texts(name: str, text: str) -> tuple[str, ...]:
    """Words, quoted where they hold spaces, or a JSON list where they hold what cannot be typed (["\\n"])."""
    if text.startswith("["):
        texts: tuple[str, ...] = from_json(name, _parse_json(name, text))
        return texts
    if name == "samplers":
        return tuple(word for word in re.split(r"[,;\s]+", text) if word)
    if text.lower() in NONE_WORDS:
        return ()
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise OptionError(f"{name} cannot be read ({error}); quote each text, or write a JSON list") from None


def _parse_json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{name} must be JSON, not {text[:80]!r} ({error})") from None


def _to_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    if isinstance(value, tuple):
        return list(value)
    return value.model_json_schema() if isinstance(value, type) and hasattr(value, "model_json_schema") else value
