"""vLLM's words for options of a server that has others: each is another name for one of ours, or for several.

Knows names and values, no server. Next hop: `serve.py` uses what `translate` leaves. Source of the words: vLLM's documentation,
"Engine arguments".
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from ..config import CACHE_TYPES, MAX_DRAFT_TOKENS
from ..config_checks import check_int
from ..errors import OptionError
from ..kernels.cache_layout import BLOCK_SIZE
from .parser import Parser

CACHE_DTYPES = {
    "auto": None,
    "fp8": "e4m3",
    "fp8_e4m3": "e4m3",
    "fp8_e5m2": "e5m2",
    "bfloat16": "bf16",
    "float16": "f16",
    **{name: name for name in CACHE_TYPES},
}
METHODS = {"ngram": "ngram", "draft_model": "draft"}
SPECULATION_KEYS = ("method", "model", "num_speculative_tokens")
SPECULATION_HELP = (
    'how to guess, as JSON: {"method": "ngram"} or {"method": "draft_model", "model": ...}, and'
    ' "num_speculative_tokens"'
)


def add_foreign_words(parser: Parser) -> None:
    """Add vLLM's words; `translate` turns them into ours."""
    add = parser.add_argument_group("the same in vLLM's words").add_argument
    add("--max-model-len", type=int, metavar="N", help="--max-context")
    add("--max-num-batched-tokens", type=int, metavar="N", help="--prefill-chunk")
    add("--block-size", type=int, metavar="N", help=f"tokens of a page of the cache: {BLOCK_SIZE}, there is no other")
    types = "--cache-type-k and --cache-type-v: auto, fp8 (e4m3), fp8_e5m2, or one of our names"
    add("--kv-cache-dtype", type=str.lower, metavar="TYPE", help=types)
    caching = "keep what earlier requests left for those that begin alike (default), or read every prompt anew"
    add("--enable-prefix-caching", action=argparse.BooleanOptionalAction, default=None, help=caching)
    add("--speculative-config", metavar="JSON", help=SPECULATION_HELP)


def translate(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given, all in our words. Raises OptionError where both were given and differ."""
    found = dict(given)
    for theirs, ours in (("max_model_len", "max_context"), ("max_num_batched_tokens", "prefill_chunk")):
        if (value := found.pop(theirs, None)) is not None:
            _put(found, ours, value, theirs)
    if (size := found.pop("block_size", None)) not in (None, BLOCK_SIZE):
        raise OptionError(
            f"--block-size must be {BLOCK_SIZE}, not {size}: kernels read the cache in pages of {BLOCK_SIZE}"
        )
    if (name := found.pop("kv_cache_dtype", None)) is not None:
        if name not in CACHE_DTYPES:
            raise OptionError(f"--kv-cache-dtype must be one of {', '.join(CACHE_DTYPES)}, not {name!r}")
        if (kind := CACHE_DTYPES[name]) is not None:
            _put(found, "cache_type_k", kind, "kv_cache_dtype")
            _put(found, "cache_type_v", kind, "kv_cache_dtype")
    if (caching := found.pop("enable_prefix_caching", None)) is not None:
        _put(found, "prefix_caching", caching, "enable_prefix_caching")
    if (text := found.pop("speculative_config", None)) is not None:
        for ours, value in _read_speculation(text).items():
            _put(found, ours, value, "speculative_config")
    return found


def _put(found: dict[str, Any], ours: str, value: Any, theirs: str) -> None:
    if found.get(ours, value) != value:
        names = f"--{theirs.replace('_', '-')} and --{ours.replace('_', '-')}"
        raise OptionError(f"{names} say different things: {value} and {found[ours]}; give one of them")
    found[ours] = value


def _read_speculation(text: str) -> dict[str, Any]:
    name = "--speculative-config"
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{name} is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise OptionError(f'{name} must be an object, as {{"method": "ngram"}}, not {type(given).__name__}')
    if unknown := [key for key in given if key not in SPECULATION_KEYS]:
        raise OptionError(f"{name} has {unknown[0][:40]!r}; known are {', '.join(SPECULATION_KEYS)}")
    model, count = given.get("model"), given.get("num_speculative_tokens")
    method = given.get("method") or ("draft_model" if model is not None else None)
    if not isinstance(method, str) or method not in METHODS:
        raise OptionError(f"{name}: method must be one of {', '.join(METHODS)}, not {str(method)[:40]!r}")
    found: dict[str, Any] = {"spec": METHODS[method]}
    if method == "draft_model":
        if not isinstance(model, str) or not model:
            raise OptionError(f"{name}: model must name the small model that guesses")
        found["draft_model"] = model
    elif model not in (None, "ngram", "[ngram]"):  # vLLM has the method's name there too
        raise OptionError(f"{name}: the method ngram takes no model, and it says {str(model)[:40]!r}")
    if count is not None:
        check_int(f"{name}: num_speculative_tokens", count, 1, MAX_DRAFT_TOKENS)
        found["max_draft"] = count
    return found
