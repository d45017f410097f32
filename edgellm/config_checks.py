"""Checks that both kinds of options share: each raises OptionError with the name, the value and the limit.

Next hop: `config.py`, `config_sampling.py`.
"""

from __future__ import annotations

import math

from .errors import OptionError


def check_int(name: str, value: object, low: int | None = None, high: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise OptionError(f"{name} must be a whole number, not {value!r}")
    if low is None:
        return
    if value < low or (high is not None and value > high):
        limit = f"at least {low}" if high is None else f"from {low} to {high}"
        raise OptionError(f"{name} must be {limit}, not {value}")


def check_number(name: str, value: object, low: float, high: float = math.inf) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise OptionError(f"{name} must be a number, not {value!r}")
    if value < low or value > high:
        limit = f"at least {low:g}" if high == math.inf else f"from {low:g} to {high:g}"
        raise OptionError(f"{name} must be {limit}, not {value:g}")
