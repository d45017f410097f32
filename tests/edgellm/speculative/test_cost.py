"""The cost model: how many ids it wants to guess, by times and luck that are given."""

from __future__ import annotations

import itertools

import pytest

from edgellm.speculative.cost import MAX_DRAFT, NO_PLAN, STALE_STEPS, Luck, StepTimes, choose_length


def times_of(per_row: dict[int, float]) -> StepTimes:
    times = StepTimes()
    for rows, seconds in per_row.items():
        times.note(rows, 9.0)  # cold
        times.note(rows, seconds)
    return times


def choose(times: StepTimes, rate: float, other_rows: int = 0) -> int:
    costs = [times.relative(other_rows + n) for n in range(1, MAX_DRAFT + 2)]
    plan = choose_length(costs, itertools.repeat(rate), other_rows)
    assert plan.length > 0 or plan == NO_PLAN
    return plan.length


def best_by_hand(relative: dict[int, float], rate: float) -> int:
    gains = {0: 1.03}
    for length in range(1, MAX_DRAFT + 1):
        gains[length] = sum(rate**i for i in range(length + 1)) / relative[length + 1]
    return max(gains, key=lambda length: gains[length])


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.3, 0.5, 0.7, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("slope", [0.01, 0.1, 0.3, 1.0])
def test_the_length_with_the_most_tokens_per_second(rate: float, slope: float) -> None:
    relative = {rows: 1.0 + slope * (rows - 1) for rows in range(1, MAX_DRAFT + 2)}
    times = times_of({rows: 4e-3 * value for rows, value in relative.items()})
    assert choose(times, rate) == best_by_hand(relative, rate)


def test_nothing_is_guessed_where_rows_cost_as_much_as_steps() -> None:
    times = times_of({rows: 1e-3 * rows for rows in range(1, MAX_DRAFT + 2)})
    assert choose(times, 1.0) == 0


def test_other_sequences_pay_too() -> None:
    relative = {rows: 1.0 + 0.2 * (rows - 1) for rows in range(1, 65)}
    times = times_of(relative)
    alone = choose(times, 0.7)
    among = choose(times, 0.7, other_rows=16)
    assert 0 < among < alone or among == 0 < alone


def test_times_of_rows_not_measured_follow_those_that_were() -> None:
    times = times_of({1: 2e-3, 4: 2e-3 * 3.0})  # twice as dear as expected
    assert times.relative(4) == pytest.approx(3.0)
    assert times.relative(5) == pytest.approx(2 * StepTimes().relative(5))
    assert times.relative(3) <= 3.0 and times.relative(2) >= 1.0
    assert StepTimes().relative(4) == pytest.approx(1.5)
    assert not StepTimes().is_known and times.is_known and times.of(4) == pytest.approx(6e-3)
    assert times.measured == [1, 4]


def test_fewer_rows_are_not_dearer_than_more() -> None:
    times = times_of({1: 1e-3, 3: 2.5e-3, 4: 1.5e-3})
    assert times.relative(2) <= times.relative(3) == times.relative(4) == pytest.approx(1.5)


def test_times_of_several_rows_grow_with_those_of_one() -> None:
    times = times_of({1: 1e-3, 4: 1.5e-3})
    for _ in range(20):
        times.note(1, 2e-3)
    assert times.of(4) == pytest.approx(3e-3, rel=0.01)


def test_one_slow_step_changes_little() -> None:
    times = times_of({1: 1e-3, 4: 1.4e-3})
    times.note(4, 1.0)
    assert times.relative(4) < 1.8


def test_what_was_disturbed_is_tried_again() -> None:
    times = times_of({1: 1e-3, 2: 1.1e-3, 8: 9e-3})
    assert times.relative(8) == pytest.approx(9.0)
    for _ in range(STALE_STEPS):
        times.note(1, 1e-3)
    assert times.relative(8) == StepTimes().relative(8)
    times.note(8, 2e-3)
    assert times.relative(8) == pytest.approx(2.0)


def test_luck_is_counted_by_kind_up_to_the_first_wrong_id() -> None:
    luck = Luck()
    priors = [luck.rate(kind) for kind in range(6)]
    assert priors == sorted(priors), "longer matches are trusted more"
    for _ in range(100):
        luck.note([1] * 8, 0)
        luck.note([2] * 8, 8)
        luck.note([3] * 8, 3)
        luck.note([5, 6, 6, 7], 1)
    assert luck.rate(1) < 0.05 and luck.rate(2) > 0.95
    assert luck.rate(3) == pytest.approx(0.75, abs=0.05), "three right of four that say something"
    assert luck.rate(4) == priors[4] and luck.rate(7) == luck.rate(99)
    assert luck.rate(5) > 0.95 and luck.rate(6) < 0.05, "an id of a longer match is of its own kind"
    for _ in range(150):
        luck.note([1], 1)
    assert luck.rate(1) > 0.9, "what was long ago is forgotten"


def test_a_match_that_grows_is_trusted_more() -> None:
    costs = [1.0, 1.05, 1.4, 1.5, 2.3, 2.4, 2.45, 2.5]
    assert (
        choose_length(costs, [0.5, 0.9, 0.95, 0.95, 0.95, 0.95, 0.95]).length > choose_length(costs, [0.5] * 7).length
    )
