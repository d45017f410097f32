"""The turns of a conversation, and which of them still fit. No model, no screen.

A turn is a question and its answer; only whole turns are forgotten, the oldest first, never the system message.
Next hop: `chat.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

# What a template adds around a message: role names and turn markers. An estimate; the engine has the last word.
TEMPLATE_TOKENS = 8


class History:
    """Finished turns behind an optional system message; `count(text) -> tokens` estimates what they take."""

    def __init__(self, system: str | None, count: Callable[[str], int]) -> None:
        self.turns: list[tuple[str, str]] = []
        self._system = system
        self._count = cache(count)

    def messages(self, question: str, *, skip: int = 0) -> list[dict[str, str]]:
        """Return what the model is shown: the system message, the turns but the `skip` oldest, the question."""
        said = [{"role": "system", "content": self._system}] if self._system else []
        for asked, answered in self.turns[skip:]:
            said += [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
        return [*said, {"role": "user", "content": question}]

    def add(self, question: str, answer: str) -> None:
        """Append a finished turn."""
        self.turns.append((question, answer))

    def forget(self, number: int) -> None:
        """Drop the `number` oldest turns."""
        del self.turns[:number]

    def to_skip(self, question: str, max_tokens: int) -> int:
        """Return how many of the oldest turns must go for the rest to take about `max_tokens`; all, if none helps."""
        costs = [self._cost(asked) + self._cost(answered) for asked, answered in self.turns]
        total = sum(costs) + self._cost(question) + self._cost(self._system or "")
        skip = 0
        while total > max_tokens and skip < len(costs):
            total -= costs[skip]
            skip += 1
        return skip

    def _cost(self, text: str) -> int:
        return self._count(text) + TEMPLATE_TOKENS if text else 0
