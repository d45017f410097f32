"""`edgellm inspect`: what is in a model file and what it needs, in a paragraph first, then in tables.

Next hop: `..inspect` for the numbers; `..gguf` for the file.
"""

from __future__ import annotations

import json
import math
import sys
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import loading
from .options import MODEL_HELP, add_cache_types, cache_formats, check_range
from .parser import Parser
from .terminal import bold, human_bytes, human_count, one_line, printable

if TYPE_CHECKING:
    from ..estimate import Estimate
    from ..gguf import GGUFFile
    from ..inspect import Summary

USAGE = "FILE [options]"
DESCRIPTION = (
    "Say what a model file is, what it needs and how fast it would be here, then show its metadata, formats and tensors.\n"
    "Nothing is loaded; a file that edgellm cannot run is shown all the same, with the reason."
)
EXAMPLES = """\
  edgellm inspect ./model.gguf
  edgellm inspect gemma3-270m --max-context 32768     how much memory would that take?
  edgellm inspect gemma3-270m --max-context 32768 --cache-type-k q8_0 --cache-type-v q8_0     and how much then?
  edgellm inspect ./model.gguf --json | jq .memory_bytes"""
PROGRAM_BYTES = 100_000_000  # the interpreter, NumPy and work space, roughly
SHOWN_ITEMS = 6
SHOWN_LETTERS = 70


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    parser.add_argument("file", metavar="FILE", help=MODEL_HELP)
    context_help = "reckon the memory for N tokens (default: what edgellm would choose, and all that it was trained on)"
    parser.add_argument("--max-context", type=int, metavar="N", help=context_help)
    add_cache_types(parser.add_argument)
    json_help = (
        "print one JSON object: the summary, metadata and tensors; of long arrays the length and the first items"
    )
    parser.add_argument("--json", action="store_true", help=json_help)


def execute(args: Namespace) -> int:
    """Run the command and return its exit code."""
    check_range("--max-context", args.max_context, 1)
    formats = cache_formats(args)
    path = loading.find_file(args.file)
    from ..gguf import open_gguf
    from ..inspect import summarise

    with open_gguf(path) as model:
        summary = summarise(model, formats)
        if args.json:
            print(json.dumps(as_dict(model, summary, args.max_context)))
        else:
            print(paragraph(summary, args.max_context, _estimate(summary, path)))
            for title, rows in tables(model, summary):
                print(f"\n{bold(title, sys.stdout)}\n{aligned(rows)}")
    return 0


def paragraph(summary: Summary, max_context: int | None, speed: Estimate | None = None) -> str:
    """Return a few sentences that say what the file is to somebody who wants to run it."""
    formats = ", ".join(f"{use.nbytes / max(summary.weights_bytes, 1):.0%} {use.name}" for use in summary.formats[:3])
    name = summary.name or summary.path
    kind = f"{summary.architecture or 'unknown'} model"
    said = [
        f"{name}: a {kind} of {human_count(summary.num_parameters)} parameters in {human_bytes(summary.file_bytes)}"
        + (f" ({formats})." if formats else "."),
        _layers(summary),
        f"It was trained on up to {summary.context_length} tokens at once." if summary.context_length else "",
        _use(summary),
        *(_memory(summary, context) for context in _contexts(summary, max_context)),
        "" if summary.is_encoder else _speed(speed),
        f"edgellm cannot run it: {one_line(summary.problem)}" if summary.problem else "",
    ]
    return "\n".join(line for line in said if line)


def _use(summary: Summary) -> str:
    """What to do with it."""
    if summary.is_encoder:
        return "It makes vectors of texts and writes none: `edgellm embed`."
    return "It has a chat template." if summary.has_chat_template else "It has no chat template: `edgellm run --raw`."


def _layers(summary: Summary) -> str:
    """What the layers are: how many see all, a window, or carry a state, and how many experts they have."""
    if not summary.num_layers:
        return ""
    parts, number = [], summary.num_layers
    windowed, caches = summary.num_window_layers or 0, len(summary.cache_layers or ())
    if windowed:
        parts.append(f"{windowed} of which see a window of {summary.window} tokens")
    if summary.cache_layers is not None and caches < number and not summary.is_encoder:
        size = summary.as_dict()["state_bytes"]
        kept = f"a state of fixed size ({human_bytes(size)} in all)" if size else "nothing"
        parts.append(f"{number - caches} of which keep {kept} in place of keys and values")
    text = f"It has {number} layers" + (", " + " and ".join(parts) if parts else "")
    if summary.num_experts and summary.num_used_experts:
        text += f"; a token takes {summary.num_used_experts} of a layer's {summary.num_experts} experts"
    return text + "."


def _contexts(summary: Summary, wanted: int | None) -> list[int]:
    """Lengths whose memory is told: the one that was asked for, or the usual one and the longest."""
    if wanted is not None:
        return [wanted]
    return sorted({summary.default_context, summary.context_length or summary.default_context})


def _speed(speed: Estimate | None) -> str:
    """What to expect here, where the model can be run."""
    if speed is None:
        return ""
    return (
        f"Here, on {speed.threads} thread{'s' if speed.threads > 1 else ''}, expect about {_rate(speed.decode_tps)} tokens/s"
        f" of an answer and {_rate(speed.prefill_tps)} tokens/s of a prompt"
        + ("." if speed.fits else "; but there is no room for it in memory now.")
    )


def _rate(tokens_per_s: float) -> str:
    return f"{tokens_per_s:.0f}" if tokens_per_s >= 10 else f"{tokens_per_s:.1f}"


def _estimate(summary: Summary, path: Path) -> Estimate | None:
    """How fast it would be, unless it cannot be run."""
    if summary.problem is not None:
        return None
    from ..config import EngineConfig
    from ..errors import EdgeLLMError
    from ..estimate import estimate

    try:
        return estimate(
            str(path), EngineConfig(cache_type_k=summary.cache_formats[0], cache_type_v=summary.cache_formats[1])
        )
    except EdgeLLMError:  # a vocabulary without a model, a head size that this cache cannot keep: said elsewhere
        return None


def tables(model: GGUFFile, summary: Summary) -> Iterable[tuple[str, list[tuple[str, ...]]]]:
    """Return the tables under the paragraph: a title and rows each."""
    numbers = (
        ("layers", summary.num_layers),
        ("hidden size", summary.hidden_size),
        ("feed-forward size", summary.ffn_size),
        ("heads", summary.num_heads),
        ("key/value heads", summary.num_kv_heads),
        ("head size", summary.head_dim),
        ("vocabulary", summary.vocab_size),
        ("window", summary.window),
        ("layers with a window", summary.num_window_layers),
        ("experts", summary.num_experts),
        ("experts used", summary.num_used_experts),
    )
    yield "network", [(name, str(number)) for name, number in numbers if number]
    yield (
        "formats",
        [(use.name, f"{use.num_tensors} tensors", human_bytes(use.nbytes)) for use in summary.formats],
    )
    yield f"metadata ({len(model.metadata)})", [(key, show(value)) for key, value in model.metadata.items()]
    yield (
        f"tensors ({len(model.tensors)})",
        [(t.name, t.type_name, "x".join(map(str, t.shape)), human_bytes(t.nbytes)) for t in model.tensors.values()],
    )


def aligned(rows: list[tuple[str, ...]]) -> str:
    """Return rows as lines with columns under each other; nothing in them can steer a terminal."""
    safe = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*safe, strict=True)]
    lines = ("  ".join(f"{cell:{w}}" for cell, w in zip(row, widths, strict=True)) for row in safe)
    return "\n".join(f"  {line.rstrip()}" for line in lines)


def show(value: Any) -> str:
    """Return a metadata value as one short line."""
    if isinstance(value, str):
        line = one_line(value)
        return line if len(line) <= SHOWN_LETTERS else f"{line[:SHOWN_LETTERS]}… ({len(value)} characters)"
    if not _is_array(value):
        return str(value)
    items = ", ".join(repr(item) for item in _first(value))
    return f"[{items}]" if len(value) <= SHOWN_ITEMS else f"[{items}, …] ({len(value)} items)"


def as_dict(model: GGUFFile, summary: Summary, max_context: int | None) -> dict[str, Any]:
    """Return what --json prints."""
    tensors = [
        {"name": t.name, "format": t.type_name, "shape": list(t.shape), "nbytes": t.nbytes}
        for t in model.tensors.values()
    ]
    metadata = {key: _plain(value) for key, value in model.metadata.items()}
    return {**summary.as_dict(max_context), "metadata": metadata, "tensors": tensors}


def _memory(summary: Summary, max_context: int) -> str:
    needed = summary.memory_bytes(max_context)
    if needed is None:
        return ""
    weights, cache = human_bytes(summary.weights_bytes), human_bytes(needed - summary.weights_bytes)
    per_token = human_bytes(summary.kv_bytes_per_token or 0)
    windows = f" and {human_bytes(summary.kv_window_bytes(max_context) or 0)} for windows" if summary.window else ""
    kinds = "keys {}, values {}".format(*summary.cache_formats)
    return (
        f"With a context of {max_context} tokens it needs {weights} for weights and up to {cache} of cache "
        f"({per_token} a token{windows}, {kinds}): about {human_bytes(needed + PROGRAM_BYTES)} in all."
    )


def _is_array(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, (str, bytes))


def _first(value: Any) -> list[Any]:
    """Return the first items of an array as JSON has them. Strings that are not UTF-8 are shown, not refused."""
    from ..gguf import StringArray

    if isinstance(value, StringArray):
        return [value.raw(i).decode("utf-8", "replace") for i in range(min(len(value), SHOWN_ITEMS))]
    return [_plain(item) for item in value[:SHOWN_ITEMS]]


def _plain(value: Any) -> Any:
    """Return a metadata value as JSON has it; a long array becomes its length and its first items."""
    if _is_array(value):
        if len(value) > SHOWN_ITEMS:
            return {"length": len(value), "first": _first(value)}
        return _first(value)
    if hasattr(value, "item"):  # a NumPy scalar
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON knows no infinity
    return value
