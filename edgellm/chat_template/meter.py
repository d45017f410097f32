"""How much a template may do: steps, depth, size of a value, size of everything it makes, and time.

A template comes from a stranger and runs on the machine of whoever opened the file. Every loop, call, filter and
operator of the sandbox asks the meter of its render, so a template is stopped in any thread and on any system, without
signals. Knows neither Jinja nor templates; `sandbox.py` asks, `growth.py` says beforehand how large a result would be.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .marks import Marks

MAX_DEPTH = 60  # macros inside macros; a template of a real model uses three
MAX_BITS = 4096  # of a whole number; a template counts messages
SECONDS = 10.0

# The size of a value in units: one for each character, and this for each value, which is what a list's entry costs.
UNITS_OF_A_VALUE = 8


class OverLimit(Exception):
    """A template wanted more than it may have. No ValueError: some filters swallow those."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one render may use. units: see UNITS_OF_A_VALUE."""

    steps: int
    value_units: int
    total_units: int
    seconds: float = SECONDS
    depth: int = MAX_DEPTH

    @classmethod
    def for_input(cls, units: int, num_messages: int) -> Limits:
        """Return limits that grow with the conversation, so that a long one is never refused for its length.

        Templates look back from each message over all of them, and some collect their text piece by piece: quadratic.
        """
        return cls(
            steps=1_000_000 + 100 * num_messages**2,
            value_units=1_000_000 + 8 * units,
            total_units=32_000_000 + (256 + num_messages) * units,
        )


class Meter:
    """Counts what one render uses. Raises OverLimit."""

    def __init__(self, limits: Limits, marks: Marks | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.marks = marks
        self._clock = clock
        self._end = clock() + limits.seconds
        self._steps = limits.steps
        self._units = limits.total_units
        self._depth = 0
        self._known: dict[int, int] = {}

    def step(self) -> None:
        """Count one loop, call, filter or operator."""
        self._steps -= 1
        if self._steps < 0:
            raise OverLimit(f"it took more than {self.limits.steps} steps (loops, calls, operators)")
        if self._clock() > self._end:
            raise OverLimit(f"it took more than {self.limits.seconds:g} seconds")

    def enter(self) -> None:
        """Count a call inside calls; `leave` ends it."""
        self._depth += 1
        if self._depth > self.limits.depth:
            raise OverLimit(f"it calls itself more than {self.limits.depth} deep")

    def leave(self) -> None:
        """End what `enter` began."""
        self._depth -= 1

    def expect(self, units: int) -> None:
        """Refuse a result before it is made."""
        if units > self.limits.value_units:
            raise OverLimit(f"it makes a text or list larger than {self.limits.value_units} characters")

    def expect_bits(self, bits: int) -> None:
        """Refuse a whole number that is too large."""
        if bits > MAX_BITS:
            raise OverLimit(f"it makes a number of more than {MAX_BITS} bits")

    def charge(self, units: int) -> None:
        """Count what was made; nothing is given back when it is thrown away."""
        self._units -= units
        if self._units < 0:
            raise OverLimit(f"its texts and lists together are larger than {self.limits.total_units} characters")

    def keep(self, value: Any) -> Any:
        """Count a value that was made and return it."""
        if isinstance(value, (str, bytes)):
            units = len(value) + UNITS_OF_A_VALUE
        elif isinstance(value, int):
            self.expect_bits(value.bit_length())
            return value
        elif isinstance(value, (list, tuple, dict)):
            units = self.weigh(value)
        else:
            return value
        if units > self.limits.value_units:
            self.expect(units)
        self.charge(units)
        return value

    def know(self, values: Iterable[Any]) -> None:
        """Weigh values that live as long as the render, so that lists of them need not be walked again."""
        for value in values:
            if isinstance(value, (list, tuple, dict)):
                self.know(value.values() if isinstance(value, dict) else value)
                self._known[id(value)] = self.weigh(value)

    def weigh(self, value: Any) -> int:
        """Return the units of a value as it would be written out, shared parts as often as they occur."""
        return weigh(value, self.limits.value_units, self._known)


def weigh(value: Any, enough: int, known: Mapping[int, int] | None = None) -> int:
    """Return the units of a value; where they exceed `enough`, some number above it: lists of lists can explode."""
    known = known or {}
    total, rest = 0, [value]
    while rest and total <= enough:
        item = rest.pop()
        total += UNITS_OF_A_VALUE
        if isinstance(item, (str, bytes)):
            total += len(item)
        elif isinstance(item, (list, tuple, dict)):
            if (units := known.get(id(item))) is not None:
                total += units - UNITS_OF_A_VALUE
            elif len(item) * UNITS_OF_A_VALUE > enough:
                total += len(item) * UNITS_OF_A_VALUE
            else:
                rest.extend(item)
                if isinstance(item, dict):
                    rest.extend(item.values())
    return total


METER: ContextVar[Meter] = ContextVar("meter")
