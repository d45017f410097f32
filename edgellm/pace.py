"""How much of a prompt a step may take while others wait for their next token, by what such steps have taken so far.

Knows rows and seconds. What a step computes does not depend on it: only how often others are served while a prompt is read.
Next hop: `scheduler.py`.
"""

from __future__ import annotations

from collections import deque

MAX_STEP_S = 0.1
"""What a step with others' tokens in it should take at most: well below a quarter of a second, for times vary."""
SLOWER = 2.0
"""Where a step without a prompt takes longer already, as with a large model: how many times as long one with a prompt may."""
FIRST_ROWS, LEAST_ROWS = 32, 8
"""Rows of prompts in the first such step, and in any: prompts must come to an end."""
SAMPLES = 4


class Pace:
    """Chooses and learns. rows: of prompts that the next step with decoding sequences in it may take."""

    def __init__(self) -> None:
        self.rows = FIRST_ROWS
        self._plain_s: deque[float] = deque(maxlen=SAMPLES)

    def note(self, prompt_rows: int, has_decodes: bool, seconds: float) -> None:
        """A step took so long."""
        if not has_decodes:
            return  # of a prompt alone, whose rows cost less: nobody waits for it
        if not prompt_rows:
            self._plain_s.append(seconds)
            return
        most_s = max(MAX_STEP_S, SLOWER * min(self._plain_s, default=0.0))
        fitting = int(prompt_rows * most_s / max(seconds, 1e-9))
        if seconds > most_s:
            self.rows = max(LEAST_ROWS, min(self.rows, fitting))
        else:  # a short rest of a prompt says nothing of long ones, so it takes nothing away
            self.rows = max(self.rows, min(2 * self.rows, fitting))
