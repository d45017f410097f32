"""Say what is in a model file and what running it takes, without loading it: for `edgellm inspect` and lists of models.

Never refuses a file that opens: what the metadata lacks or garbles is None, and `problem` says why edgellm could not
run it. Computes from the program that `models/` writes and from the cache's own arithmetic, so that it cannot disagree
with what loading does. Allocates nothing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from . import models
from .cache.memory import DEFAULT_FORMATS, Formats, growth_bytes, needed_bytes
from .cache.states import state_bytes
from .config import DEFAULT_MAX_CONTEXT
from .errors import EdgeLLMError
from .gguf import GGUFFile
from .kernels import formats
from .kernels.ops import CacheLayer, Program, StateLayer

LONGEST_TEXT = 200


@dataclass(frozen=True, slots=True)
class FormatUse:
    """How much of a model one tensor format holds."""

    name: str
    num_tensors: int
    num_parameters: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Summary:
    """A model file in numbers. None stands for what the file does not say, or says in a way that makes no sense.

    formats: by size, largest first. context_length: tokens the model was trained on at once.
    window: tokens that `num_window_layers` of the layers see; the rest see all.
    cache_formats: of keys and values, which what follows is for. kv_bytes_per_token: growth of a sequence's cache in the
    layers that see all. kv_window_bytes: most that the window layers come to use beside that. state_layers: what layers with
    a state keep.
    num_experts, num_used_experts: feed-forward networks of a layer, and those that a token takes; None where there is one.
    problem: why edgellm cannot run the model, None if it can as far as the head says.
    """

    path: str
    architecture: str | None
    name: str | None
    tokenizer: str | None
    has_chat_template: bool
    num_parameters: int
    num_tensors: int
    formats: tuple[FormatUse, ...]
    file_bytes: int
    weights_bytes: int
    context_length: int | None
    num_layers: int | None
    hidden_size: int | None
    ffn_size: int | None
    num_heads: int | None
    num_kv_heads: int | None
    head_dim: int | None
    vocab_size: int | None
    num_experts: int | None
    num_used_experts: int | None
    cache_layers: tuple[CacheLayer, ...] | None
    problem: str | None
    cache_formats: Formats = DEFAULT_FORMATS
    state_layers: tuple[StateLayer, ...] = ()

    @property
    def default_context(self) -> int:
        """Tokens of context when nobody asks for another number."""
        return min(DEFAULT_MAX_CONTEXT, self.context_length or DEFAULT_MAX_CONTEXT)

    @property
    def window(self) -> int | None:
        """The widest window among the layers; None if every layer sees all."""
        return max((layer.window for layer in self.cache_layers or () if layer.window is not None), default=None)

    @property
    def num_window_layers(self) -> int | None:
        """Layers that see a window only."""
        return None if self.cache_layers is None else sum(layer.window is not None for layer in self.cache_layers)

    @property
    def kv_bytes_per_token(self) -> int | None:
        """Cache bytes that one more token costs in the layers that see all, averaged over a block."""
        return None if self.cache_layers is None else growth_bytes(self.cache_layers, self.cache_formats)

    def kv_window_bytes(self, max_context: int, prefill_chunk: int = 512) -> int | None:
        """Cache bytes of one sequence in the layers with a window."""
        if self.cache_layers is None:
            return None
        windowed = [layer for layer in self.cache_layers if layer.window is not None]
        return needed_bytes(windowed, max_context, 1, prefill_chunk, self.cache_formats)

    def memory_bytes(self, max_context: int, max_sequences: int = 1, prefill_chunk: int = 512) -> int | None:
        """Weights and full caches; work space and the interpreter (about 100 MB) come on top."""
        if self.cache_layers is None:
            return None
        needed = needed_bytes(self.cache_layers, max_context, max_sequences, prefill_chunk, self.cache_formats)
        return self.weights_bytes + needed + state_bytes(self.state_layers, max_sequences)

    @property
    def is_encoder(self) -> bool:
        """True if it makes vectors of texts and writes none."""
        return any(not layer.is_causal for layer in self.cache_layers or ())

    def as_dict(self, max_context: int | None = None) -> dict[str, Any]:
        """Everything as plain values for JSON, with the memory needed at `max_context` (default: default_context)."""
        context = max_context or self.default_context
        values = asdict(self)
        del values["cache_layers"], values["cache_formats"], values["state_layers"]
        return values | {
            "cache_type_k": self.cache_formats[0],
            "cache_type_v": self.cache_formats[1],
            "window": self.window,
            "num_window_layers": self.num_window_layers,
            "kv_bytes_per_token": self.kv_bytes_per_token,
            "kv_window_bytes": self.kv_window_bytes(context),
            "num_state_layers": len(self.state_layers),
            "state_bytes": state_bytes(self.state_layers, 1),
            "max_context": context,
            "memory_bytes": self.memory_bytes(context),
        }


def summarise(model: GGUFFile, cache_formats: Formats = DEFAULT_FORMATS) -> Summary:
    """Describe an open model and what a cache of such keys and values would take. Raises nothing for what the file says."""
    architecture = _get_text(model, "general.architecture")
    heads, hidden = (
        _get_number(model, architecture, "attention.head_count"),
        _get_number(model, architecture, "embedding_length"),
    )
    uses = _count_formats(model)
    program, problem = _describe_cache(model, architecture)
    return Summary(
        path=str(model.path),
        architecture=architecture,
        name=_get_text(model, "general.name"),
        tokenizer=_get_text(model, "tokenizer.ggml.model"),
        has_chat_template=isinstance(model.get("tokenizer.chat_template"), str),
        num_parameters=sum(use.num_parameters for use in uses),
        num_tensors=len(model.tensors),
        formats=uses,
        file_bytes=model.nbytes,
        weights_bytes=sum(t.nbytes for t in model.tensors.values()),
        context_length=_get_number(model, architecture, "context_length"),
        num_layers=_get_number(model, architecture, "block_count"),
        hidden_size=hidden,
        ffn_size=_get_number(model, architecture, "feed_forward_length"),
        num_heads=heads,
        num_kv_heads=_get_number(model, architecture, "attention.head_count_kv") or heads,
        head_dim=_get_number(model, architecture, "attention.key_length")
        or (hidden // heads if hidden and heads else None),
        vocab_size=_get_vocab_size(model),
        num_experts=_get_number(model, architecture, "expert_count"),
        num_used_experts=_get_number(model, architecture, "expert_used_count"),
        cache_layers=None if program is None else program.cache_layers,
        problem=problem,
        cache_formats=cache_formats,
        state_layers=() if program is None else program.state_layers,
    )


def _get_text(model: GGUFFile, key: str) -> str | None:
    """Return a text fit for one line of a terminal: a stranger's file must not move the cursor."""
    value = model.get(key)
    if not isinstance(value, str) or not value:
        return None
    return "".join(c if c.isprintable() else "?" for c in value[:LONGEST_TEXT])


def _get_number(model: GGUFFile, architecture: str | None, key: str) -> int | None:
    """Return a count of at least 1. Some are given per layer: then the number that all layers share, or None."""
    value = model.get(f"{architecture}.{key}")
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and len(value) and (value == value[0]).all():
        value = int(value[0])
    return value if type(value) is int and value > 0 else None


def _get_vocab_size(model: GGUFFile) -> int | None:
    tokens, table = model.get("tokenizer.ggml.tokens"), model.tensors.get("token_embd.weight")
    if tokens is not None and not isinstance(tokens, (str, int, float)):
        return len(tokens)
    return table.shape[0] if table is not None else None


def _count_formats(model: GGUFFile) -> tuple[FormatUse, ...]:
    uses: dict[str, FormatUse] = {}
    for tensor in model.tensors.values():
        parameters = 1
        for extent in tensor.shape:
            parameters *= extent
        old = uses.get(tensor.type_name, FormatUse(tensor.type_name, 0, 0, 0))
        uses[old.name] = FormatUse(
            old.name, old.num_tensors + 1, old.num_parameters + parameters, old.nbytes + tensor.nbytes
        )
    return tuple(sorted(uses.values(), key=lambda use: -use.nbytes))


def _describe_cache(model: GGUFFile, architecture: str | None) -> tuple[Program | None, str | None]:
    """Return the network, which says what it caches, None where there is none; and why edgellm cannot run it, or None."""
    if architecture is None:
        return None, "the metadata lacks general.architecture"
    try:
        program = models.get(architecture).build(model.metadata, model.tensors)
    except EdgeLLMError as error:
        return None, str(error)
    try:
        for tensor in model.tensors.values():
            formats.get(tensor.type_name)
    except EdgeLLMError as error:
        return program, str(error)
    return program, None
