"""The turns of a conversation, and which of them still fit. No model, no screen.

A turn is a question and its answer; only whole turns are forgotten, the oldest first, never the system message.
Next hop: `session.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

# What a template adds around a message: role names and turn markers. An estimate; the engine has the last word.
TEMPLATE_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Turn:
    """A question and its answer. reasoning: what the model thought before it answered, if it showed that."""

    question: str
    answer: str
    reasoning: str = ""


class Conversation:
    """Finished turns behind an optional system message; `count(text) -> tokens` estimates what they take."""

    def __init__(self, system: str | None, count: Callable[[str], int]) -> None:
        self.turns: list[Turn] = []
        self.system = system
        self._count = cache(count)

    def messages(self, question: str | None = None, *, skip: int = 0) -> list[dict[str, str]]:
        """Return what the model is shown: the system message, the turns but the `skip` oldest, the question if any."""
        said = [{"role": "system", "content": self.system}] if self.system else []
        for turn in self.turns[skip:]:
            said += [{"role": "user", "content": turn.question}, {"role": "assistant", "content": turn.answer}]
        return said if question is None else [*said, {"role": "user", "content": question}]

    def add(self, turn: Turn) -> None:
        """Append a finished turn."""
        self.turns.append(turn)

    def undo(self) -> Turn | None:
        """Take the last turn back and return it; None if there is none."""
        return self.turns.pop() if self.turns else None

    def forget(self, number: int) -> None:
        """Drop the `number` oldest turns."""
        del self.turns[:number]

    def to_skip(self, question: str, max_tokens: int) -> int:
        """Return how many of the oldest turns must go for the rest to take about `max_tokens`; all, if none helps."""
        costs = [self._cost(turn.question) + self._cost(turn.answer) for turn in self.turns]
        total = sum(costs) + self._cost(question) + self._cost(self.system or "")
        skip = 0
        while total > max_tokens and skip < len(costs):
            total -= costs[skip]
            skip += 1
        return skip

    def _cost(self, text: str) -> int:
        return self._count(text) + TEMPLATE_TOKENS if text else 0
