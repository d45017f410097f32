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
    MAX_DRAFT_TOKENS,
    MAX_SINKS,
    ON_FULL,
    SPECULATIONS,
    WEIGHT_LAYOUTS,
    EngineConfig,
    SamplingParams,
)
from ..config_sampling import SAMPLERS
from ..errors import OptionError
from .form_options import form_fields
from .parser import Parser
from .terminal import is_terminal

MODEL_HELP = "a GGUF file, an alias, or owner/repo[:file-or-quant]"
FILTERS = {
    "temperature": ("T", "0 always takes the likeliest token"),
    "top_k": ("K", "choose among the K likeliest tokens; 0 is off"),
    "top_p": ("P", "choose among the likeliest tokens that add up to P; 1 is off"),
    "min_p": ("P", "leave out tokens less than P times as likely as the likeliest; 0 is off"),
    "typical_p": ("P", "choose among the tokens of typical surprise that add up to P; 1 is off"),
    "top_n_sigma": ("N", "leave out tokens more than N standard deviations below the best; 0 or less is off"),
    "xtc_probability": ("P", "how often to leave out all likely tokens but the last of them; 0 is off"),
    "xtc_threshold": ("P", "what XTC takes for likely; above 0.5 is off"),
    "repeat_penalty": ("X", "divide the logits of tokens that have occurred; 1 is off"),
    "presence_penalty": ("X", "take this off the logits of tokens that have occurred; 0 is off"),
    "frequency_penalty": ("X", "take this off for each time they have; 0 is off"),
    "repeat_last_n": ("N", "tokens that these three penalties look back at; -1 is all, 0 is off"),
    "dry_multiplier": ("X", "penalise what goes on with a repetition; 0 is off"),
    "dry_base": ("X", "how much more for each token of it"),
    "dry_allowed_length": ("N", "tokens from which on a repetition counts"),
    "dry_last_n": ("N", "tokens that DRY looks back at; -1 is all, 0 is off"),
    "dynatemp_range": ("R", "let the temperature vary by R up and down with how unsure the model is; 0 is off"),
    "dynatemp_exponent": ("X", "how it does"),
    "mirostat": ("N", "2 keeps the answer's surprise at a target in place of filters; 0 is off"),
    "mirostat_tau": ("BITS", "that target"),
    "mirostat_eta": ("X", "how fast it learns"),
}
"""Fields of SamplingParams that are one number: what stands for it, and help."""
BIAS_HELP = "add BIAS to the logit of a token; -100 and below forbids it; may be repeated"
SAMPLERS_HELP = f"the filters in order, others are off (default: {';'.join(SAMPLERS)})"
TYPE_K_HELP = f"how keys are kept: {', '.join(CACHE_TYPES)} (default: %(default)s)"
TYPE_V_HELP = "how values are kept: the same choice (default: %(default)s)"
MEMORY_HELP = (
    "most memory for keys and values, running and kept for reuse, as 500MB or 1.5GiB (default: twice the context's)"
)
PREFIX_HELP = "read every prompt anew: keep nothing of earlier ones for those that begin alike"
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
SPEC_HELP = (
    "guess several tokens and check them in one step: ngram from the text itself, draft by the draft model, auto by whichever"
    " promises most, where it pays; the answer is the same, bit for bit (default: %(default)s)"
)
CORPUS_HELP = "also guess from earlier sessions' texts, which are then kept in your folder (a megabyte at most)"
DRAFT_HELP = "a smaller model with the same vocabulary, to guess by"
MAX_DRAFT_HELP = f"most tokens guessed at once, up to {MAX_DRAFT_TOKENS} (default: what promises most)"
LORA_HELP = "a LoRA adapter in GGUF to apply beside the weights, SCALE times (default: 1); may be repeated"
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}

_Made = TypeVar("_Made")


def add_model(parser: Parser) -> None:
    """Add the optional positional MODEL."""
    help = f"{MODEL_HELP} (default: {DEFAULT_MODEL})"
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL, metavar="MODEL", help=help)


def add_engine(parser: Parser, *, with_context: bool = True) -> None:
    """Add what `engine_config` reads; without --max-context where the command knows the length it needs."""
    add_loading(parser, with_context=with_context)
    _add_cache(parser, with_context=with_context)


def add_loading(parser: Parser, *, with_context: bool = True) -> None:
    """Add what matters even if nothing is kept and nothing guessed; the rest of `engine_config` stays at its defaults."""
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
    add("--lora", type=adapter, action="append", default=[], metavar="PATH[:SCALE]", help=LORA_HELP)


def _add_cache(parser: Parser, *, with_context: bool) -> None:
    default = EngineConfig()
    add = parser.add_argument_group("the cache of keys and values").add_argument
    add_cache_types(add)
    add("--cache-memory", type=size, metavar="SIZE", help=MEMORY_HELP)
    add("--no-prefix-caching", dest="prefix_caching", action="store_false", help=PREFIX_HELP)
    add("--disk-cache", type=size, default=default.disk_cache, metavar="SIZE", help=DISK_HELP)
    add("--window", type=int, metavar="N", help=WINDOW_HELP)
    add("--sinks", type=int, default=default.sinks, metavar="M", help=SINKS_HELP)
    if with_context:
        add("--on-full", default=default.on_full, metavar="|".join(ON_FULL), help=ON_FULL_HELP)
    else:
        parser.set_defaults(on_full=default.on_full)
    add = parser.add_argument_group("speculation").add_argument
    add("--spec-corpus", action="store_true", help=CORPUS_HELP)
    add("--draft-model", metavar="MODEL", help=DRAFT_HELP)
    add("--max-draft", type=int, metavar="N", help=MAX_DRAFT_HELP)
    add("--spec", default=default.spec, metavar="|".join(SPECULATIONS), help=SPEC_HELP)


def add_cache_types(add: Callable[..., object]) -> None:
    """Add --cache-type-k and --cache-type-v; `add` is a parser's or a group's add_argument."""
    default = EngineConfig()
    add("--cache-type-k", type=str.lower, default=default.cache_type_k, metavar="TYPE", help=TYPE_K_HELP)
    add("--cache-type-v", type=str.lower, default=default.cache_type_v, metavar="TYPE", help=TYPE_V_HELP)


def cache_formats(args: Namespace) -> tuple[str, str]:
    """Return the checked formats of keys and values."""
    return named(lambda: EngineConfig(cache_type_k=args.cache_type_k, cache_type_v=args.cache_type_v)).cache_formats


def bias(text: str) -> tuple[int, float]:
    """Return the id and the bias that a text like 15043=-1.5 names."""
    found = re.fullmatch(r"(\d{1,10})=([-+]?\d+(?:\.\d+)?)", text.strip())
    if found is None:
        raise OptionError(
            f"--logit-bias {text!r} is not ID=BIAS; write it as 15043=-1.5 (`edgellm tokenize` tells ids)"
        )
    return int(found[1]), float(found[2])


def sampler_names(text: str) -> tuple[str, ...]:
    """Return the names in a text like top_k;top_p;temperature; commas will do as well."""
    return tuple(name.strip().lower() for name in re.split("[;,]", text) if name.strip())


def adapter(text: str) -> tuple[str, float]:
    """Return the path and the scale that a text like style.gguf:0.5 names; a colon within a path is part of it."""
    path, _, scale = text.rpartition(":")
    try:
        return (path, float(scale)) if path and not os.path.exists(text) else (text, 1.0)
    except ValueError:
        return text, 1.0


def size(text: str) -> int:
    """Return the bytes that a text like 500MB, 2GB, 1.5GiB or 4096 names."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmgt]?i?)b?", text.strip().lower())
    if found is None or found[2] not in _UNITS:
        raise ArgumentTypeError(f"{text!r} is not a size; write it as 500MB, 2GB, 1.5GiB or a number of bytes")
    return int(float(found[1]) * _UNITS[found[2]]) if found[2] or "." in found[1] else int(found[1])


def add_sampling(parser: Parser) -> None:
    """Add what `sampling_params` reads."""
    group = parser.add_argument_group("the answer")
    add = group.add_argument
    add("-n", "--max-tokens", type=int, metavar="N", help="most tokens to generate (default: what the context holds)")
    add("--seed", type=int, metavar="N", help="same seed, same answer (default: a new one each time)")
    add("--stop", action="append", default=[], metavar="TEXT", help="end the answer before this text; may be repeated")
    add("--banned", action="append", default=[], metavar="TEXT", help="never say this text; may be repeated")
    add("--ignore-eos", action="store_true", help="never choose the model's end-of-answer tokens: go on")
    _add_filters(parser)


def _add_filters(parser: Parser) -> None:
    """Add how tokens are chosen, a number for each field of FILTERS."""
    default = SamplingParams()
    add = parser.add_argument_group("how tokens are chosen (docs/sampling.md)").add_argument
    for name, (metavar, text) in FILTERS.items():
        value = getattr(default, name)
        option = f"--{name.replace('_', '-')}"
        add(option, type=type(value), default=value, metavar=metavar, help=f"{text} (default: %(default)s)")
    breakers = (
        'end repetitions that DRY counts at TEXT; may be repeated; none for no such texts (default: line break : " *)'
    )
    add("--dry-breakers", action="append", metavar="TEXT", help=breakers)
    add("--logit-bias", action="append", default=[], metavar="ID=BIAS", help=BIAS_HELP)
    add("--samplers", type=sampler_names, default=default.samplers, metavar="NAMES", help=SAMPLERS_HELP)


def engine_config(args: Namespace) -> EngineConfig:
    """Return the checked loading options. The command line runs one sequence at a time."""
    return _made_of(EngineConfig, args, max_sequences=1)


def sampling_params(args: Namespace) -> SamplingParams:
    """Return the checked sampling options."""
    for name in ("stop", "banned", "dry_breakers"):
        for text in getattr(args, name) or []:
            check_text(f"--{name.replace('_', '-')}", text)
    breakers = SamplingParams().dry_breakers if args.dry_breakers is None else args.dry_breakers
    breakers = () if list(breakers) == ["none"] else tuple(breakers)
    given = {"logit_bias": dict(map(bias, args.logit_bias)), "dry_breakers": breakers, **form_fields(args)}
    return _made_of(SamplingParams, args, lora=None, **given)  # --lora loads adapters; each answer gets them as loaded


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
    return named(lambda: kind(**{name: getattr(args, name) for name in names}, **fixed))


def named(make: Callable[[], _Made]) -> _Made:
    """Call `make`, with the option's name (--max-tokens) in place of the field's (max_tokens) in its error."""
    try:
        return make()
    except OptionError as error:
        field, _, rest = str(error).partition(" ")
        raise OptionError(f"--{field.replace('_', '-')} {rest}") from None
