"""Options that several commands share, and their way into EngineConfig, SamplingParams and a text.

Ranges are checked where the dataclasses are made, before anything is loaded. Next hop: `..config`.
"""

from __future__ import annotations

import os
import re
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable
from dataclasses import fields
from typing import TypeVar

from ..config import (
    CACHE_TYPES,
    DEFAULT_MAX_CONTEXT,
    DEFAULT_MODEL,
    MAX_SINKS,
    ON_FULL,
    WEIGHT_LAYOUTS,
    EngineConfig,
    SamplingParams,
)
from ..errors import OptionError
from .form_options import form_fields
from .parser import Parser
from .terminal import is_terminal

MODEL_HELP = "a GGUF file, an alias, or owner/repo[:file-or-quant]"
TEMPERATURE_HELP = "0 always takes the likeliest token (default: %(default)s)"
TOP_K_HELP = "choose among the K likeliest tokens; 0 is off (default: %(default)s)"
TOP_P_HELP = "choose among the likeliest tokens that add up to P; 1 is off (default: %(default)s)"
MIN_P_HELP = "leave out tokens less than P times as likely as the likeliest; 0 is off (default: %(default)s)"
TYPE_K_HELP = f"how keys are kept: {', '.join(CACHE_TYPES)} (default: %(default)s)"
TYPE_V_HELP = "how values are kept: the same choice (default: %(default)s)"
MEMORY_HELP = (
    "most memory for keys and values, running and kept for reuse, as 500MB or 1.5GiB (default: twice the context's)"
)
DISK_HELP = "keep what may come again on disk, up to SIZE; 0 is off (default: 0)"
WINDOW_HELP = (
    "keep only the last N tokens in sight, in constant memory and without an end (-n bounds an answer). Lossy: what"
    " has left the window is gone; text stays fluent, but nothing in it can be recalled (default: all stays in sight)"
)
SINKS_HELP = f"with a window, also keep the first M tokens, up to {MAX_SINKS} (default: %(default)s)"
ON_FULL_HELP = (
    "when the context is full: stop refuses a longer prompt and cuts the answer, window drops the oldest tokens for good"
    " and says so (default: %(default)s)"
)
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}

_Made = TypeVar("_Made")


def add_model(parser: Parser) -> None:
    """Add the optional positional MODEL."""
    help = f"{MODEL_HELP} (default: {DEFAULT_MODEL})"
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL, metavar="MODEL", help=help)


def add_engine(parser: Parser, *, with_context: bool = True) -> None:
    """Add what `engine_config` reads; without --max-context where the command knows the length it needs."""
    default = EngineConfig()
    add = parser.add_argument_group("loading").add_argument
    add("-t", "--threads", type=int, metavar="N", help="worker threads (default: one per physical core)")
    if with_context:
        length = f"{DEFAULT_MAX_CONTEXT}, or less if the model was trained for less"
        add("--max-context", type=int, metavar="N", help=f"tokens a conversation may hold (default: {length})")
    else:
        parser.set_defaults(max_context=None)
    chunk_help = "most prompt tokens in one pass (default: %(default)s)"
    add("--prefill-chunk", type=int, default=default.prefill_chunk, metavar="N", help=chunk_help)
    layouts = f"{', '.join(WEIGHT_LAYOUTS)}, or a file of `edgellm pack`: packed is fastest, raw uses the model's file"
    layouts += " as it is, auto packs where memory allows (default: %(default)s)"
    add("--weights", default=default.weights, metavar="LAYOUT", help=layouts)
    precise = "multiply with activations of 15 bits instead of 8: nearly exact, and prefill at half speed"
    add("--precise", action="store_true", help=precise)
    _add_cache(parser, with_context=with_context)


def _add_cache(parser: Parser, *, with_context: bool) -> None:
    default = EngineConfig()
    add = parser.add_argument_group("the cache of keys and values").add_argument
    add_cache_types(add)
    add("--cache-memory", type=size, metavar="SIZE", help=MEMORY_HELP)
    add("--disk-cache", type=size, default=default.disk_cache, metavar="SIZE", help=DISK_HELP)
    add("--window", type=int, metavar="N", help=WINDOW_HELP)
    add("--sinks", type=int, default=default.sinks, metavar="M", help=SINKS_HELP)
    if with_context:
        add("--on-full", default=default.on_full, metavar="|".join(ON_FULL), help=ON_FULL_HELP)
    else:
        parser.set_defaults(on_full=default.on_full)


def add_cache_types(add: Callable[..., object]) -> None:
    """Add --cache-type-k and --cache-type-v; `add` is a parser's or a group's add_argument."""
    default = EngineConfig()
    add("--cache-type-k", type=str.lower, default=default.cache_type_k, metavar="TYPE", help=TYPE_K_HELP)
    add("--cache-type-v", type=str.lower, default=default.cache_type_v, metavar="TYPE", help=TYPE_V_HELP)


def cache_formats(args: Namespace) -> tuple[str, str]:
    """Return the checked formats of keys and values."""
    return _named(lambda: EngineConfig(cache_type_k=args.cache_type_k, cache_type_v=args.cache_type_v)).cache_formats


def size(text: str) -> int:
    """Return the bytes that a text like 500MB, 2GB, 1.5GiB or 4096 names."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmgt]?i?)b?", text.strip().lower())
    if found is None or found[2] not in _UNITS:
        raise ArgumentTypeError(f"{text!r} is not a size; write it as 500MB, 2GB, 1.5GiB or a number of bytes")
    return int(float(found[1]) * _UNITS[found[2]]) if found[2] or "." in found[1] else int(found[1])


def add_sampling(parser: Parser) -> None:
    """Add what `sampling_params` reads."""
    default = SamplingParams()
    group = parser.add_argument_group("the answer")
    add = group.add_argument
    add("-n", "--max-tokens", type=int, metavar="N", help="most tokens to generate (default: what the context holds)")
    add("--temperature", type=float, default=default.temperature, metavar="T", help=TEMPERATURE_HELP)
    add("--top-k", type=int, default=default.top_k, metavar="K", help=TOP_K_HELP)
    add("--top-p", type=float, default=default.top_p, metavar="P", help=TOP_P_HELP)
    add("--min-p", type=float, default=default.min_p, metavar="P", help=MIN_P_HELP)
    add("--seed", type=int, metavar="N", help="same seed, same answer (default: a new one each time)")
    add("--stop", action="append", default=[], metavar="TEXT", help="end the answer before this text; may be repeated")
    add("--ignore-eos", action="store_true", help="never choose the model's end-of-answer tokens: go on")


def engine_config(args: Namespace) -> EngineConfig:
    """Return the checked loading options. The command line runs one sequence at a time."""
    return _made_of(EngineConfig, args, max_sequences=1)


def sampling_params(args: Namespace) -> SamplingParams:
    """Return the checked sampling options."""
    for text in args.stop:
        check_text("--stop", text)
    return _made_of(SamplingParams, args, **form_fields(args))


def display_name(model: str) -> str:
    """Return what to call a model: its name as it was given, or a file's without its folder."""
    return os.path.basename(model) if model.lower().endswith(".gguf") else model


def check_range(name: str, value: int | None, low: int) -> None:
    """Raise OptionError if a given number is below `low`."""
    if value is not None and value < low:
        raise OptionError(f"{name} must be at least {low}, not {value}")


def check_text(name: str, text: str) -> str:
    """Return `text`, or raise OptionError if the shell handed over bytes that are not UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise OptionError(f"{name} is not valid UTF-8 at character {error.start + 1}; convert it first") from None
    return text


def read_text(text: str | None) -> str:
    """Return TEXT; None or "-" reads standard input to its end and drops one final line break."""
    if text is not None and text != "-":
        return check_text("TEXT", text)
    if text is None and (sys.stdin is None or is_terminal(sys.stdin)):
        raise OptionError('no TEXT: give it in quotes, pipe it in, or write "-" to type it and end with Ctrl-D')
    try:
        content = sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise OptionError(f"standard input is not valid UTF-8 at byte {error.start}; convert it first") from None
    content = content.replace("\r\n", "\n")
    return content[:-1] if content.endswith("\n") else content


def _made_of(kind: Callable[..., _Made], args: Namespace, **fixed: object) -> _Made:
    """Make a dataclass of the options that its fields are called, but for those that are fixed."""
    names = [field.name for field in fields(kind) if field.name not in fixed and hasattr(args, field.name)]  # type: ignore[arg-type]
    return _named(lambda: kind(**{name: getattr(args, name) for name in names}, **fixed))


def _named(make: Callable[[], _Made]) -> _Made:
    """Call `make`, with the option's name (--max-tokens) in place of the field's (max_tokens) in its error."""
    try:
        return make()
    except OptionError as error:
        field, _, rest = str(error).partition(" ")
        raise OptionError(f"--{field.replace('_', '-')} {rest}") from None
