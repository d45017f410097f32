"""Steps of a scheduler without an engine."""

from __future__ import annotations

from edgellm.choosing import Choice
from edgellm.scheduler import Scheduler


def play(scheduler: Scheduler) -> list[tuple[int, int]]:
    """One step: (first id, tokens) per sequence; a finished prompt gets a token."""
    works = scheduler.schedule()
    for sequence, count, _ in works:
        sequence.advance(count)
        if sequence.num_pending == 0:
            sequence.take(Choice(99), (), 1000)
    return [(sequence.token_ids[0], count) for sequence, count, _ in works]
