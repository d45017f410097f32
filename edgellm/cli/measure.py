"""What `edgellm bench` measures: repeats of decode, prefill and plain reading, taken in turn so that all see the same
machine. It knows no option and prints nothing. Next hop: `..llm`, and `kernels.cpu.bandwidth` for plain reading.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING

from ..config import SamplingParams
from ..paths import home

if TYPE_CHECKING:
    from ..completion import Completion
    from ..llm import LLM

WARM_UP_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and extremes of one quantity over the repeats."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(median(values), min(values), max(values))

    def as_dict(self, name: str, unit: float = 1.0) -> dict[str, float]:
        """Return the three values in `unit`, under `name` and with _min and _max."""
        values = {name: self.median, f"{name}_min": self.low, f"{name}_max": self.high}
        return {key: round(value / unit, 3) for key, value in values.items()}

    def __str__(self) -> str:
        return f"{self.median:8.1f}  [{self.low:.1f} .. {self.high:.1f}]"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be measured. depth: tokens in the cache before either."""

    model: str
    threads: int
    prompt_tokens: int
    decode_tokens: int
    depth: int
    repeats: int

    @property
    def longest(self) -> int:
        """Tokens of the longest run. One token more than is counted: the first of an answer belongs to prefill."""
        return self.depth + max(self.prompt_tokens, self.decode_tokens) + 2


@dataclass(frozen=True, slots=True)
class Measurement:
    """One model on one machine. Speeds in tokens per second, bandwidth in bytes per second.

    bytes_per_token: weights and cache that decode reads for one token, half way through the decoded tokens.
    bandwidth_share: what decode reads per second, as a part of what plain reading reaches in the same repeat.
    """

    plan: Plan
    weight_bytes: int
    bytes_per_token: int
    load_s: float
    prefill_tps: Spread
    decode_tps: Spread
    read_bandwidth: Spread
    bandwidth_share: float

    def as_dict(self) -> dict[str, object]:
        """Return the JSON line: medians under the plain names, extremes with _min and _max."""
        return {
            **asdict(self.plan),
            "weight_bytes": self.weight_bytes,
            "bytes_per_token": self.bytes_per_token,
            "load_s": round(self.load_s, 3),
            **self.prefill_tps.as_dict("prefill_tps"),
            **self.decode_tps.as_dict("decode_tps"),
            **self.read_bandwidth.as_dict("read_bandwidth_gbps", 1e9),
            "bandwidth_share": round(self.bandwidth_share, 4),
        }


def measure(llm: LLM, plan: Plan, progress: Callable[[str, int, int], None]) -> Measurement:
    """Measure `llm`; its context must hold `plan.longest` tokens.

    Decode starts from a prompt of `depth` ids (one, at depth 0). Prefill at a depth is what a prompt of
    depth + prompt_tokens takes beyond one of `depth`.
    """
    from ..kernels.cpu.bandwidth import read_bandwidth

    ids = _RandomIds(llm.vocab_size)
    _generate(llm, ids.take(min(WARM_UP_TOKENS, plan.longest - 2)), 2)
    prefill, decode, reading = [], [], []
    for repeat in range(plan.repeats):
        progress("bench", repeat, plan.repeats)
        reading.append(read_bandwidth(plan.threads, home() / "kernels", repeats=3))
        shallow = _generate(llm, ids.take(max(plan.depth, 1)), plan.decode_tokens + 1)
        deep = _generate(llm, ids.take(plan.depth + plan.prompt_tokens), 1)
        decode.append(shallow.timings.decode_tps)
        seconds = _prefill_s(deep) - (_prefill_s(shallow) if plan.depth else 0.0)
        prefill.append(plan.prompt_tokens / max(seconds, 1e-9))
    progress("bench", plan.repeats, plan.repeats)
    weight_bytes = llm.loaded.weight_bytes
    bytes_per_token = weight_bytes + llm.loaded.cache_bytes(plan.depth + plan.decode_tokens // 2)
    shares = [speed * bytes_per_token / bandwidth for speed, bandwidth in zip(decode, reading, strict=True)]
    return Measurement(
        plan=plan,
        weight_bytes=weight_bytes,
        bytes_per_token=bytes_per_token,
        load_s=llm.load_s,
        prefill_tps=Spread.of(prefill),
        decode_tps=Spread.of(decode),
        read_bandwidth=Spread.of(reading),
        bandwidth_share=median(shares),
    )


class _RandomIds:
    """A fixed stream of ids, never the same prompt twice: a cache of prefixes must not help."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._random = random.Random(0)

    def take(self, number: int) -> list[int]:
        return [self._random.randrange(self._vocab_size) for _ in range(number)]


def _generate(llm: LLM, ids: list[int], max_tokens: int) -> Completion:
    return llm.generate(ids, SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True))


def _prefill_s(done: Completion) -> float:
    timings = done.timings
    return (timings.prefill_tokens - timings.reused_tokens) / timings.prefill_tps if timings.prefill_tps > 0 else 0.0
