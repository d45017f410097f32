"""How an answer is chosen, from the fields of a request: OpenAI's names first, llama-server's for what OpenAI has not.

Knows names. Next hop: `..config`, which checks the values.
"""

from __future__ import annotations

from typing import Any

from ..structured import from_response_format
from .fields import Fields
from .problems import bad

MAX_TOKENS = 1 << 30
MAX_STOPS = 64
NUMBERS = (
    "temperature",
    "top_p",
    "min_p",
    "typical_p",
    "top_n_sigma",
    "dynatemp_range",
    "dynatemp_exponent",
    "xtc_probability",
    "xtc_threshold",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
    "dry_multiplier",
    "dry_base",
    "mirostat_tau",
    "mirostat_eta",
)
WHOLES = ("top_k", "repeat_last_n", "dry_allowed_length", "mirostat")


def read_sampling(fields: Fields) -> dict[str, Any]:
    """The fields of SamplingParams that a request sets; what it leaves out stays as SamplingParams has it."""
    given: dict[str, Any] = {name: fields.number(name) for name in NUMBERS}
    given |= {name: fields.whole(name, -1, 1 << 31) for name in WHOLES}
    given["max_tokens"] = _max_tokens(fields)
    if stop := fields.texts("stop", MAX_STOPS):
        given["stop"] = tuple(text for text in stop if text)
    seed = fields.whole("seed", -(2**63), 2**64 - 1)
    given["seed"] = None if seed == -1 else seed if seed is None else seed % 2**64  # -1: llama-server's "any"
    given["logit_bias"] = _read_bias(fields)
    given["ignore_eos"] = fields.flag("ignore_eos") or None
    return {name: value for name, value in given.items() if value is not None} | _read_form(fields)


def read_answers(fields: Fields, most: int) -> int:
    """How many answers are wanted."""
    return fields.whole("n", 1, most, 1) or 1


def _max_tokens(fields: Fields) -> int | None:
    for name in ("max_completion_tokens", "max_tokens", "n_predict"):
        found = fields.whole(name, -1, MAX_TOKENS)
        if found is not None:
            if found == 0:
                raise bad(name, found, "at least 1")
            return None if found == -1 else found
    return None


def _read_bias(fields: Fields) -> dict[int, float] | None:
    given = fields.object("logit_bias")
    if given is None:
        return None
    bias = {}
    for key, value in given.items():
        if not key.isdecimal() or len(key) > 10:
            raise bad("logit_bias", key, "an object whose keys are token ids")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not -100 <= value <= 100:
            raise bad("logit_bias", value, "numbers from -100 to 100")
        bias[int(key)] = float(value)
    return bias


def _read_form(fields: Fields) -> dict[str, Any]:
    """OpenAI's response_format, or llama-server's json_schema and grammar."""
    form = from_response_format(fields.object("response_format"))
    if not form and (schema := fields.object("json_schema")) is not None:
        form = {"schema": schema}
    if not form and (grammar := fields.text("grammar")):
        form = {"grammar": grammar}
    return form
