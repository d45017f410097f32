"""What a request may say: options by name, token ids as whole numbers. Checked here, before any work.

Knows no model. Next hop: `config.py` checks the values.
"""

from __future__ import annotations

import dataclasses
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from .config import SamplingParams
from .config_checks import check_int
from .errors import OptionError

MAX_ANSWERS = 1000
"""To one prompt, in one call."""
MAX_PRIORITY = 2**31 - 1


class Callbacks(NamedTuple):
    """Who is told of a request on its way; see Stream. A request names them among its options."""

    on_prefill: Callable[[int, int], None] | None = None
    on_news: Callable[[], None] | None = None


class Standing(NamedTuple):
    """Where a request stands among those that wait; see Sequence. A request names it among its options."""

    priority: int = 0
    client: str = ""


def split_standing(options: Mapping[str, Any]) -> tuple[Standing, dict[str, Any]]:
    """Return where a request stands, checked, and its other options."""
    found = Standing(**{name: options[name] for name in Standing._fields if name in options})
    check_int("priority", found.priority, -MAX_PRIORITY, MAX_PRIORITY)
    if not isinstance(found.client, str):
        raise OptionError(f"client must be a text, not {found.client!r}")
    return found, {name: value for name, value in options.items() if name not in Standing._fields}


def split_callbacks(options: Mapping[str, Any]) -> tuple[Callbacks, dict[str, Any]]:
    """Return the callbacks among a request's options, and the other options."""
    callbacks = {name: options[name] for name in Callbacks._fields if name in options}
    for name, value in callbacks.items():
        if value is not None and not callable(value):
            raise OptionError(f"{name} must be a function, not {value!r}")
    return Callbacks(**callbacks), {name: value for name, value in options.items() if name not in callbacks}


def merge_params(params: SamplingParams | None, overrides: Mapping[str, Any]) -> SamplingParams:
    """Return `params` (the defaults if None) with some fields replaced, all checked."""
    if params is None:
        params = SamplingParams()
    elif not isinstance(params, SamplingParams):
        raise OptionError(f"params must be SamplingParams, not {type(params).__name__}; options can be given by name")
    known = [field.name for field in dataclasses.fields(SamplingParams)]
    unknown = [name for name in overrides if name not in known]
    if unknown:
        raise OptionError(f"unknown option {', '.join(unknown)}; the options are {', '.join(known)}")
    return dataclasses.replace(params, **overrides)


def whole_numbers(token_ids: Iterable[int]) -> list[int]:
    """Return ids as plain ints; NumPy integers are welcome, floats, booleans and text are not."""
    if isinstance(token_ids, (str, bytes)) or not isinstance(token_ids, Iterable):
        raise OptionError(f"token ids must be a list of whole numbers, not {type(token_ids).__name__}")
    ids = []
    for token_id in token_ids:
        if isinstance(token_id, (bool, np.bool_)) or not hasattr(token_id, "__index__"):
            raise OptionError(f"token ids must be whole numbers, not {token_id!r}")
        ids.append(operator.index(token_id))
    return ids


def check_bias(params: SamplingParams, vocab_size: int) -> None:
    """Raise OptionError if a bias is of an id that the model has not."""
    for token_id in params.logit_bias:
        if token_id >= vocab_size:
            raise OptionError(f"logit_bias names token id {token_id}; this model's are 0 to {vocab_size - 1}")


def seeds(seed: int | None, count: int) -> list[int]:
    """Return the seeds of `count` answers to one prompt: seed, seed + 1, ...; a new one to begin with if None."""
    check_int("n", count, 1, MAX_ANSWERS)
    first = int.from_bytes(os.urandom(8), "little") if seed is None else seed
    return [(first + i) % 2**64 for i in range(count)]
