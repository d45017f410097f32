"""What a user can choose: EngineConfig when a model is loaded, SamplingParams for each request. Checked once, here."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .config_checks import check_int, check_number
from .config_sampling import MAX_LORA_SCALE, SamplingParams
from .errors import OptionError

__all__ = ["EngineConfig", "SamplingParams"]

DEFAULT_MODEL = "smollm2"
MAX_THREADS = 64
DEFAULT_MAX_CONTEXT = 4096
WEIGHT_LAYOUTS = ("auto", "packed", "raw")
PACKED_SUFFIX = ".packed"
CACHE_TYPES = ("f16", "bf16", "i16", "q8_0", "q4_h", "e4m3", "e5m2")
DEFAULT_CACHE_TYPE = "i16"  # as good as f16, and its prompts are attended to by integer products, a third faster
FOREIGN_CACHE_TYPES = {
    "f32": "f16 keeps all that attention can use of it",
    **dict.fromkeys(
        ("q4_0", "q4_1", "iq4_nl"), "4 bits are called q4_h here, which rotates heads first and loses less"
    ),
    **dict.fromkeys(("q5_0", "q5_1"), "q8_0 is the next larger"),
}
"""What llama.cpp has and edgellm has not, and what comes nearest."""
ON_FULL = ("stop", "window")
SPECULATIONS = ("auto", "off", "ngram", "draft")
MAX_DRAFT_TOKENS = 24
MAX_SINKS = 64
DEFAULT_SINKS = 4


def _check_cache_type(name: str, value: object) -> None:
    if value not in CACHE_TYPES:
        hint = FOREIGN_CACHE_TYPES.get(value) if isinstance(value, str) else None
        more = f": {hint}" if hint else ""
        raise OptionError(f"{name} must be one of {', '.join(CACHE_TYPES)}, not {value!r}{more}")


def _adapter(entry: object) -> tuple[str, float]:
    """A path, or a path and how much of the adapter is applied."""
    path, scale = entry if isinstance(entry, tuple) and len(entry) == 2 else (entry, 1.0)
    if not isinstance(path, (str, os.PathLike)):
        raise OptionError(f"lora must be a list of paths or of (path, scale), not {entry!r}")
    check_number(f"lora: the scale of {os.fspath(path)}", scale, -MAX_LORA_SCALE, MAX_LORA_SCALE)
    return os.fspath(path), float(scale)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How a model is loaded.

    threads: worker threads, None for the number of physical cores this process may use.
    max_context: tokens a sequence may hold; None for min(4096, the length the model was trained for).
    prefill_chunk: most prompt tokens in one forward pass.
    max_sequences: sequences that may be in flight at once.
    weights: "packed" (re-ordered at load, fastest), "raw" (used from the mapped file as it is), "auto" (packed where there is
    the memory), or the path of a file that `edgellm pack --output` wrote. "auto" and "packed" use such a file in its usual place.
    precise: multiply with activations of about 15 bits instead of 8: logits much nearer to those of float32 arithmetic, for a
    prefill at half speed.
    cache_type_k, cache_type_v: how keys and values are kept: "i16" (16-bit integers), "f16", "bf16", "q8_0" (8 bits), "q4_h"
    (4 bits, rotated by a Hadamard matrix), "e4m3" or "e5m2" (8-bit floats).
    cache_memory: bytes for keys and values, of running sequences and of earlier ones whose beginning may come again; None
    for twice what max_sequences of max_context tokens need.
    prefix_caching: keep what earlier sequences left, for those that begin alike; without, every prompt is read anew.
    disk_cache: bytes of disk on which beginnings outlive the process; 0 keeps none.
    window, sinks: let every token see only the last `window` tokens and the first `sinks`, in constant memory and without an
    end of the context, so max_context must be None: lossy. None: all that the model was made to see.
    on_full: what happens when max_context is reached: "stop" refuses a longer prompt and ends the answer with "length",
    "window" drops the oldest tokens but the first `sinks`, and says so.
    spec: guess several tokens and check them in one step: "ngram" guesses from the text itself, "draft" by draft_model, "auto"
    by whichever promises most, "off" not at all. The text is the same, bit for bit; nothing is guessed where it would not pay.
    draft_model: a smaller model with the same vocabulary; None for none.
    max_draft: ids guessed at once at most; None for as many as promise something.
    lora: adapters to load, each a path or (path, scale): a request gets all of them, so much of each, unless it says otherwise.
    spec_corpus: also guess from what was said in earlier sessions, which is then kept, up to a megabyte, in the user's folder.
    """

    threads: int | None = None
    max_context: int | None = None
    prefill_chunk: int = 512
    max_sequences: int = 1
    weights: str = "auto"
    precise: bool = False
    cache_type_k: str = DEFAULT_CACHE_TYPE
    cache_type_v: str = DEFAULT_CACHE_TYPE
    cache_memory: int | None = None
    prefix_caching: bool = True
    disk_cache: int = 0
    window: int | None = None
    sinks: int = DEFAULT_SINKS
    on_full: str = "stop"
    spec: str = "auto"
    draft_model: str | None = None
    max_draft: int | None = None
    spec_corpus: bool = False
    lora: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        if self.threads is not None:
            check_int("threads", self.threads, 1, MAX_THREADS)
        if self.max_context is not None:
            check_int("max_context", self.max_context, 1)
        check_int("prefill_chunk", self.prefill_chunk, 1, 1 << 14)
        check_int("max_sequences", self.max_sequences, 1, 1024)
        if not isinstance(self.precise, bool):
            raise OptionError(f"precise must be true or false, not {self.precise!r}")
        for name, value in (("cache_type_k", self.cache_type_k), ("cache_type_v", self.cache_type_v)):
            _check_cache_type(name, value)
        if self.cache_memory is not None:
            check_int("cache_memory", self.cache_memory, 1)
        check_int("disk_cache", self.disk_cache, 0)
        if not isinstance(self.prefix_caching, bool):
            raise OptionError(f"prefix_caching must be true or false, not {self.prefix_caching!r}")
        if self.disk_cache and not self.prefix_caching:
            raise OptionError(
                "disk_cache keeps what prefix_caching leaves: with the one switched off, leave out the other"
            )
        if self.window is not None:
            check_int("window", self.window, 1)
        check_int("sinks", self.sinks, 0, MAX_SINKS)
        if self.on_full not in ON_FULL:
            raise OptionError(f"on_full must be one of {', '.join(ON_FULL)}, not {self.on_full!r}")
        if self.spec not in SPECULATIONS:
            raise OptionError(f"spec must be one of {', '.join(SPECULATIONS)}, not {self.spec!r}")
        if self.spec == "draft" and self.draft_model is None:
            raise OptionError("spec draft needs a small model that guesses: name one (--draft-model)")
        if self.spec_corpus and self.spec in ("off", "draft"):
            raise OptionError(
                f"spec {self.spec} does not use a corpus: leave out --spec-corpus, or choose auto or ngram"
            )
        if self.draft_model is not None and self.spec in ("off", "ngram"):
            raise OptionError(
                f"spec {self.spec} does not use a draft model: leave out --draft-model, or choose auto or draft"
            )
        if self.max_draft is not None:
            check_int("max_draft", self.max_draft, 1, MAX_DRAFT_TOKENS)
        self._check_window()
        object.__setattr__(self, "lora", tuple(_adapter(entry) for entry in self._adapters()))
        if self.weights not in WEIGHT_LAYOUTS and not str(self.weights).endswith(PACKED_SUFFIX):
            layouts = ", ".join(WEIGHT_LAYOUTS)
            raise OptionError(f"weights must be one of {layouts} or a {PACKED_SUFFIX} file, not {self.weights!r}")

    def _adapters(self) -> Iterable[object]:
        if isinstance(self.lora, (str, os.PathLike)):
            return [self.lora]
        if not isinstance(self.lora, Iterable):
            raise OptionError(f"lora must be a list of paths or of (path, scale), not {self.lora!r}")
        return self.lora.items() if isinstance(self.lora, Mapping) else self.lora

    @property
    def cache_formats(self) -> tuple[str, str]:
        """Names of the formats of keys and of values."""
        return self.cache_type_k, self.cache_type_v

    def _check_window(self) -> None:
        """Refuse what contradicts itself."""
        if self.window is not None and self.max_context is not None:
            raise OptionError(
                f"window {self.window} leaves the context without an end, so max_context {self.max_context} has no meaning;"
                f" leave out --window or --max-context (--on-full window keeps the last max_context tokens in sight)"
            )
        if self.window is None and self.on_full == "stop" and self.sinks != DEFAULT_SINKS:
            raise OptionError(
                f"sinks {self.sinks} has no meaning where nothing is dropped; add --window N or --on-full window, or leave it out"
            )
