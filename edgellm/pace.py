"""How much of a prompt a step may take while others wait for their next token, by what such steps have taken so far.

Knows rows and seconds. What a step computes does not depend on it: only how often others are served while a prompt is read.
Next hop: `scheduler.py`.
"""

from __future__ import annotations

from collections import deque

MAX_STEP_S = 0.12
"""What a step with others' tokens in it should take at most: well below a quarter of a second, for times vary."""
SLOWER = 2.0
"""Where a step without a prompt takes longer already, as with a large model: how many times as long one with a prompt may."""
FIRST_ROWS, LEAST_ROWS = 32, 8
"""Rows of prompts in the first such step, and in any: prompts must come to an end."""
SAMPLES, PLAIN_SAMPLES = 3, 4
"""Steps by which the next is chosen: the middle one of a few, as a single slow one was some other program's."""


class Pace:
    """Chooses and learns. rows: of prompts that the next step with decoding sequences in it may take."""

    def __init__(self) -> None:
        self.rows = FIRST_ROWS
        self._plain_s: deque[float] = deque(maxlen=PLAIN_SAMPLES)
        self._fitting: deque[int] = deque(maxlen=SAMPLES)

    def note(self, prompt_rows: int, has_decodes: bool, seconds: float) -> None:
        """A step took so long."""
        if not has_decodes:
            return  # of a prompt alone, whose rows cost less: nobody waits for it
        if not prompt_rows:
            self._plain_s.append(seconds)
            return
        most_s = max(MAX_STEP_S, SLOWER * min(self._plain_s, default=0.0))
        if 2 * prompt_rows < self.rows and seconds <= most_s:
            return  # a short rest of a prompt says nothing of long ones
        self._fitting.append(int(prompt_rows * most_s / max(seconds, 1e-9)))
        fitting = sorted(self._fitting)[len(self._fitting) // 2]
        self.rows = max(LEAST_ROWS, min(fitting, 2 * self.rows))
