"""What a server counts, in Prometheus' text form. Knows numbers. Next hop: `status.py` answers with them."""

from __future__ import annotations

from ..completion import Completion


class Statistics:
    """Counts since the start. num_open: requests that run or wait now."""

    def __init__(self) -> None:
        self.num_open = 0
        self.answered = self.failed = self.refused = 0
        self.prompt_tokens = self.cached_tokens = self.answer_tokens = self.draft_tokens = self.accepted_tokens = 0

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

    def text(self) -> str:
        """Source of the form: Prometheus, "Exposition formats", version 0.0.4."""
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
        )
