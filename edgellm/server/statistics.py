"""What a server counts, in Prometheus' text form. Knows numbers. Next hop: `status.py` answers with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..completion import Completion
from ..engine import Occupancy


class Statistics:
    """Counts since the start. count_open: says how many requests run or wait now."""

    def __init__(self, count_open: Callable[[], int]) -> None:
        self._count_open = count_open
        self.answered = self.failed = self.refused = 0
        self.prompt_tokens = self.cached_tokens = self.answer_tokens = self.draft_tokens = self.accepted_tokens = 0

    @property
    def num_open(self) -> int:
        """Requests that run or wait now."""
        return self._count_open()

    def note(self, done: list[Completion] | None) -> None:
        """Count a request that has ended."""
        if done is None:
            self.failed += 1
            return
        self.answered += 1
        for one in done:
            self.prompt_tokens += one.timings.prefill_tokens
            self.cached_tokens += one.timings.reused_tokens
            self.answer_tokens += len(one.token_ids)
            self.draft_tokens += one.timings.draft_tokens
            self.accepted_tokens += one.timings.accepted_tokens

    def text(self, occupancies: Mapping[str, Occupancy] | None = None) -> str:
        """occupancies: of the models that are loaded. Source of the form: Prometheus, "Exposition formats", version 0.0.4."""
        rows = (
            ("requests_open", "gauge", "requests that run or wait", self.num_open),
            ("requests_answered_total", "counter", "requests answered", self.answered),
            ("requests_failed_total", "counter", "requests that failed or were given up", self.failed),
            ("requests_refused_total", "counter", "requests sent away because too many waited", self.refused),
            ("prompt_tokens_total", "counter", "tokens of prompts", self.prompt_tokens),
            ("prompt_tokens_cached_total", "counter", "those that were in the cache already", self.cached_tokens),
            ("answer_tokens_total", "counter", "tokens of answers", self.answer_tokens),
            ("draft_tokens_total", "counter", "tokens that speculation guessed", self.draft_tokens),
            ("draft_tokens_accepted_total", "counter", "those of them that were right", self.accepted_tokens),
        )
        return "".join(
            f"# HELP edgellm_{name} {help}\n# TYPE edgellm_{name} {kind}\nedgellm_{name} {value}\n"
            for name, kind, help, value in rows
        ) + _gauges(occupancies or {})


GAUGES = (
    ("sequences_running", "answers that are computed now", "running"),
    ("sequences_waiting", "answers that wait for a place", "waiting"),
    ("cache_blocks_in_use", "cache blocks of 64 tokens that running answers hold", "blocks_in_use"),
    ("cache_blocks_kept", "cache blocks that wait to be used again", "blocks_kept"),
    ("cache_blocks_free", "cache blocks that hold nothing", "blocks_free"),
)


def _gauges(occupancies: Mapping[str, Occupancy]) -> str:
    lines = []
    for name, help, field in GAUGES if occupancies else ():
        lines += [f"# HELP edgellm_{name} {help}", f"# TYPE edgellm_{name} gauge"]
        for model, occupancy in occupancies.items():
            lines.append(f'edgellm_{name}{{model="{_escaped(model)}"}} {getattr(occupancy, field)}')
    return "".join(f"{line}\n" for line in lines)


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
