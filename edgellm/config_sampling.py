"""What a user can choose for one request: how tokens are chosen, and what an answer must look like. Checked once, here.

Next hop: `sampling` draws by it, `structured` keeps an answer in form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .config_checks import check_int, check_number
from .config_form import check_form
from .errors import OptionError

SAMPLERS = ("penalties", "dry", "top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc", "temperature")
"""All that may stand in `samplers`, in llama.cpp's order."""
MAX_LOGPROBS = 20
MAX_LORA_SCALE = 1e3
GREEDY_TEMPERATURE = 1e-6
"""At or below it, the best id takes all."""
_MOST_BIAS = 1e6
_SMALLEST = 1e-3  # a penalty that divides
RANGES: Mapping[str, tuple[float, ...]] = {
    "temperature": (0.0,),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "typical_p": (0.0, 1.0),
    "top_n_sigma": (-1e6, 1e6),
    "dynatemp_range": (0.0,),
    "dynatemp_exponent": (0.0,),
    "xtc_probability": (0.0, 1.0),
    "xtc_threshold": (0.0, 1.0),
    "repeat_penalty": (_SMALLEST, 1e6),
    "presence_penalty": (-1e6, 1e6),
    "frequency_penalty": (-1e6, 1e6),
    "dry_multiplier": (0.0, 1e6),
    "dry_base": (1.0, 1e6),
    "mirostat_tau": (0.0, 1e6),
    "mirostat_eta": (0.0, 1.0),
}
"""Least and largest values. Where there is no largest, any number that is not infinite."""
DRY_BREAKERS = ("\n", ":", '"', "*")


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen. The defaults are llama.cpp's.

    max_tokens: most tokens to generate, None for as many as the context holds; with a window there is no such end.
    temperature: 0 is greedy (the lowest id wins a tie). dynatemp_range, dynatemp_exponent: let it vary within temperature
    +- range with the entropy of what is left to choose from; range 0 is off.
    top_k: 0 or less is off. top_p: 1 is off. min_p: 0 is off. typical_p: 1 is off. top_n_sigma: 0 or less is off.
    xtc_probability, xtc_threshold: how often to leave out all but the last of the tokens above the threshold; 0 is off.
    repeat_penalty: 1 is off. presence_penalty, frequency_penalty: 0 is off. All three look at the last repeat_last_n tokens of
    prompt and answer; -1 is all, 0 switches them off.
    dry_multiplier: 0 is off. dry_base, dry_allowed_length, dry_last_n (-1 is all), dry_breakers: texts that end a repetition.
    mirostat: 2 keeps the surprise of an answer at mirostat_tau bits, learning at mirostat_eta, in place of all filters but
    temperature; 0 is off.
    samplers: the filters in order, from SAMPLERS; what is left out is off.
    logit_bias: id -> what is added to its logit, -100 and below forbids it.
    banned: texts that never occur in the answer: it goes back and says something else.
    logprobs: None, or how many of the likeliest alternatives to report with each token, up to 20.
    seed: None draws one. stop: texts that end the answer and are not part of it.
    ignore_eos: never choose the model's end-of-generation tokens, so that it goes on.

    At most one of these: json: any JSON object. schema: a JSON Schema, or a Pydantic model class. regex: a regular expression
    that the whole answer matches. grammar: in Lark's or GBNF's language. choices: texts, one of which is the answer.

    lora: name of an adapter (its file's name without .gguf) -> scale; those not named are off, so {} is the model as it is.
    None: all as they were loaded.
    """

    max_tokens: int | None = None
    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    top_n_sigma: float = -1.0
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_last_n: int = -1
    dry_breakers: tuple[str, ...] = DRY_BREAKERS
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    samplers: tuple[str, ...] = SAMPLERS
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    banned: tuple[str, ...] = ()
    logprobs: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    json: bool = False
    schema: Any = None
    regex: str | None = None
    grammar: str | None = None
    choices: tuple[str, ...] = ()
    lora: Mapping[str, float] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            check_int("max_tokens", self.max_tokens, 1)
        self._check_sampling()
        if self.seed is not None:
            check_int("seed", self.seed, 0, 2**64 - 1)
        for name in ("stop", "banned", "dry_breakers"):
            self._check_texts(name)
        for text in self.banned:
            if "\ufffd" in text:  # it stands for bytes of any kind
                raise OptionError(f"banned must hold texts without the replacement character U+FFFD, not {text!r}")
        check_form(self)

    def _check_sampling(self) -> None:
        for name in ("top_k", "repeat_last_n", "dry_last_n"):
            check_int(name, getattr(self, name))
        for name, limits in RANGES.items():
            check_number(name, getattr(self, name), *limits)
        check_int("dry_allowed_length", self.dry_allowed_length, 1)
        if self.logprobs is not None:
            check_int("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        if isinstance(self.mirostat, bool) or self.mirostat not in (0, 2):
            raise OptionError(f"mirostat must be 0 (off) or 2, not {self.mirostat!r}; its first version is not offered")
        if not isinstance(self.ignore_eos, bool):
            raise OptionError(f"ignore_eos must be true or false, not {self.ignore_eos!r}")
        self._check_samplers()
        self._check_bias()
        self._check_lora()

    def _check_samplers(self) -> None:
        names = self.samplers
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise OptionError(f"samplers must be a list of names, not {names!r}; the names are {', '.join(SAMPLERS)}")
        names = tuple(names)
        for name in names:
            if name not in SAMPLERS:
                raise OptionError(f"samplers must hold names of {', '.join(SAMPLERS)}, not {name!r}")
            if names.count(name) > 1:
                raise OptionError(f"samplers must name each filter once, not {name} {names.count(name)} times")
        object.__setattr__(self, "samplers", names)

    def _check_bias(self) -> None:
        if not isinstance(self.logit_bias, Mapping):
            raise OptionError(f"logit_bias must map token ids to numbers, not {self.logit_bias!r}")
        for token_id, bias in self.logit_bias.items():
            if isinstance(token_id, bool) or not isinstance(token_id, int) or token_id < 0:
                raise OptionError(f"logit_bias must have token ids as keys, not {token_id!r}")
            check_number(f"logit_bias of {token_id}", bias, -_MOST_BIAS, _MOST_BIAS)
        object.__setattr__(self, "logit_bias", dict(self.logit_bias))

    def _check_lora(self) -> None:
        if self.lora is None:
            return
        if not isinstance(self.lora, Mapping):
            raise OptionError(f"lora must map names of adapters to scales, not {self.lora!r}")
        for name, scale in self.lora.items():
            check_number(f"lora: the scale of {name}", scale, -MAX_LORA_SCALE, MAX_LORA_SCALE)
        object.__setattr__(self, "lora", dict(self.lora))

    @property
    def is_greedy(self) -> bool:
        """True if the likeliest id is taken, whatever other filters say."""
        drops_best = self.xtc_probability > 0.0 or self.typical_p < 1.0 or self.mirostat or self.dynatemp_range > 0.0
        return self.temperature <= GREEDY_TEMPERATURE and not drops_best

    @property
    def is_structured(self) -> bool:
        """True if the answer must have a form."""
        return bool(self.json or self.choices) or not (self.schema is self.regex is self.grammar is None)

    def _check_texts(self, name: str) -> None:
        """Make a tuple of a text or texts, none of them empty."""
        value = getattr(self, name)
        if not isinstance(value, Iterable):
            raise OptionError(f"{name} must be a text or a list of texts, not {value!r}")
        texts = (value,) if isinstance(value, str) else tuple(value)
        object.__setattr__(self, name, texts)
        for text in texts:
            if not isinstance(text, str) or not text:
                raise OptionError(f"{name} must hold non-empty texts, not {text!r}")
            try:
                text.encode()
            except UnicodeEncodeError:
                raise OptionError(f"{name} must hold texts, not half a character: {text!r}") from None
