"""Pace: how many prompt rows share a step with decoding sequences."""

from __future__ import annotations

from edgellm.cache.kv import KVCache
from edgellm.choosing import Choice
from edgellm.kernels.ops import CacheLayer
from edgellm.pace import FIRST_ROWS, LEAST_ROWS, MAX_STEP_S, Pace
from edgellm.scheduler import Scheduler
from edgellm.sequence import Sequence


def test_it_finds_the_rows_that_fit_and_stays_there() -> None:
    pace, steps = Pace(), []
    for _ in range(20):
        steps.append(0.01 + 0.001 * pace.rows)  # a millisecond a row and ten for what decodes
        pace.note(pace.rows, True, steps[-1])
    assert max(steps) <= 1.1 * MAX_STEP_S and steps[-1] > 0.8 * MAX_STEP_S


def test_a_single_slow_step_changes_little_and_two_make_the_next_ones_short() -> None:
    pace = Pace()
    for _ in range(8):
        pace.note(pace.rows, True, 0.0005 * pace.rows)
    before = pace.rows
    pace.note(pace.rows, True, 3.0)
    assert pace.rows > 0.9 * before
    pace.note(before, True, 3.0)
    assert pace.rows == max(LEAST_ROWS, int(before * MAX_STEP_S / 3.0))
    for _ in range(10):
        pace.note(pace.rows, True, 0.0005 * pace.rows)
    assert pace.rows > 0.8 * before


def test_a_long_text_costs_more_by_the_row_and_gets_fewer_rows() -> None:
    pace, steps = Pace(), []
    for i in range(100):
        steps.append(pace.rows * (0.001 + 0.00005 * i))
        pace.note(pace.rows, True, steps[-1])
    assert max(steps) < 1.2 * MAX_STEP_S and pace.rows < 25


def test_a_short_rest_of_a_prompt_takes_nothing_away_and_a_prompt_alone_says_nothing() -> None:
    pace = Pace()
    pace.note(3, True, 0.09)
    assert pace.rows == FIRST_ROWS
    pace.note(512, False, 5.0)
    assert pace.rows == FIRST_ROWS


def test_a_large_model_still_reads_prompts() -> None:
    """A step of it takes half a second whatever is in it: rows that cost it little are not kept out."""
    pace = Pace()
    for _ in range(10):
        pace.note(0, True, 0.5)
        pace.note(pace.rows, True, 0.5 + 0.004 * pace.rows)
    assert pace.rows > 100


def test_decodes_come_first_and_prompts_share_what_is_left() -> None:
    pace = Pace()
    cache = KVCache([CacheLayer(1, 32)], 4096, max_sequences=4, prefill_chunk=512)
    scheduler = Scheduler(cache, prefill_chunk=512, pace=pace)

    def step(seconds_per_row: float) -> list[tuple[int, int]]:
        works = scheduler.schedule()
        scheduler.note_step(works, seconds_per_row * sum(work.num_rows for work in works))
        for work in works:
            work.sequence.advance(work.num_tokens)
            if work.sequence.num_pending == 0:
                work.sequence.take(Choice(99), (), None)
        return [(work.sequence.token_ids[0], work.num_tokens) for work in works]

    scheduler.add(Sequence([1] * 600))
    assert step(0.001) == [(1, 512)], "nobody waits for a token: as much as the chunk holds"
    scheduler.add(Sequence([2] * 2000))
    scheduler.add(Sequence([3] * 50))
    assert step(0.001) == [(1, 88), (2, 424)]
    rows = []
    while scheduler.running[1].num_output == 0:
        works = dict(step(0.001))
        assert works[1] == 1
        rows.append(works[2] + works.get(3, 0))
    assert rows[:3] == [32, 64, 118] and max(rows) <= 120
    assert sum(rows) >= 2000 - 424
