"""What a user can choose for one request: how tokens are chosen, and what an answer must look like. Checked once, here.

Next hop: `sampling` draws by it, `structured` keeps an answer in form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .config_checks import check_int, check_number
from .config_form import check_form
from .errors import OptionError

SAMPLERS = ("penalties", "dry", "top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc", "temperature")
"""All that may stand in `samplers`, in llama.cpp's order."""
MAX_LOGPROBS = 20
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
    logit_bias: Mapping[int, float] = field(default_factory=dict)
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

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            check_int("max_tokens", self.max_tokens, 1)
        check_number("temperature", self.temperature, 0.0)
        if isinstance(self.top_k, bool) or not isinstance(self.top_k, int):
            raise OptionError(f"top_k must be a whole number, not {self.top_k!r}")
        check_number("top_p", self.top_p, 0.0, 1.0)
        check_number("min_p", self.min_p, 0.0, 1.0)
        if self.seed is not None:
            check_int("seed", self.seed, 0, 2**64 - 1)
        for name in ("stop", "banned"):
            self._check_texts(name)
        check_form(self)

    @property
    def is_structured(self) -> bool:
        """True if the answer must have a form."""
        return bool(self.json or self.choices) or not (self.schema is self.regex is self.grammar is None)

    def _check_texts(self, name: str) -> None:
        """Make a tuple of a text or texts, none of them empty."""
        value = getattr(self, name)
        texts = (value,) if isinstance(value, str) else tuple(value)
        object.__setattr__(self, name, texts)
        for text in texts:
            if not isinstance(text, str) or not text:
                raise OptionError(f"{name} must hold non-empty texts, not {text!r}")
