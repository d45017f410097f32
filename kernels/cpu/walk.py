"""Kernels that walk a tape: threads take chunks of the open stage, and the last one done opens the next.

No barrier: nobody waits for a thread that holds no chunk, late threads join anywhere, and who computes a chunk never
changes its value. Python's half is in `tape.py`. Source of the idea: DESIGN of this project; compare work sharing by
self-scheduling (Tang and Yew 1986).
"""

from __future__ import annotations

from .simd import (
    atomic_add,
    atomic_load,
    atomic_store,
    call_chunk,
    compare_swap,
    give_way,
    inline,
    operand,
    pause,
    store_i64,
    ticks,
)
from .slots import (
    ABORT,
    ASLEEP,
    AWAKE,
    AWAY,
    BIAS,
    CALLED,
    CALLS,
    CHUNKS,
    DONE,
    EACH,
    FIRST_OP,
    IDLE,
    KERNEL,
    NUM_STAGES,
    OP_WORDS,
    PARKED,
    PATIENCE,
    PATIENCE_TICKS,
    QUIT,
    SPINS,
    STAGE_CHUNKS,
    STAGE_WORDS,
    STAGES,
    STATE,
    THREADS,
    TIMES,
)

_STATE, _DONE, _ABORT = 8 * STATE, 8 * DONE, 8 * ABORT


@inline
def _wait_turn(ctx, spun):
    if spun < operand(ctx, SPINS):
        pause()
    else:
        give_way()


@inline
def _publish(ctx, i):
    """Open stage i, or end the step. The count lives in the state word: a late reader must not see the next step's."""
    if i < operand(ctx, NUM_STAGES):
        chunks = operand(operand(ctx, STAGES), i * STAGE_WORDS + STAGE_CHUNKS)
        atomic_store(ctx + _STATE, (i << 32) + BIAS + chunks)
    else:
        atomic_store(ctx + _STATE, (IDLE << 32) + BIAS)


@inline
def _run_chunk(ctx, thread, stage, chunk):
    """Find the op that chunk number `chunk` of a stage belongs to, and do it."""
    op = operand(stage, FIRST_OP)
    while chunk >= operand(op, CHUNKS):
        chunk -= operand(op, CHUNKS)
        op += 8 * OP_WORDS
    first = chunk * operand(op, EACH)
    for i in range(first, min(first + operand(op, EACH), operand(op, CALLS))):
        call_chunk(operand(op, KERNEL), op, ctx, thread, i)


@inline
def _take_part(ctx, thread):
    """Claim and run chunks until the step is over. -> the longest time a chunk took, in ticks.

    A thread other than the first leaves early when that exceeds PATIENCE_TICKS: the system took its core away.
    A step that is aborted walks on through all its stages without computing: nobody is left in the middle of it.
    """
    longest = 0
    while longest < operand(ctx, PATIENCE_TICKS) or thread == 0:
        state = atomic_add(ctx + _STATE, -1)
        i, left = state >> 32, (state & 0xFFFFFFFF) - BIAS
        if i == IDLE:
            break
        if left > 0:
            stage = operand(ctx, STAGES) + i * 8 * STAGE_WORDS
            chunks, start = operand(stage, STAGE_CHUNKS), ticks()
            if atomic_load(ctx + _ABORT) == 0:
                _run_chunk(ctx, thread, stage, chunks - left)
            longest = max(longest, ticks() - start)
            if atomic_add(ctx + _DONE, 1) == chunks - 1:
                atomic_store(ctx + _DONE, 0)
                if operand(ctx, TIMES) != 0:
                    store_i64(operand(ctx, TIMES) + 8 * i + 8, ticks())
                _publish(ctx, i + 1)
        else:
            spun = 0
            while atomic_load(ctx + _STATE) >> 32 == i:
                _wait_turn(ctx, spun)
                spun += 1
    return longest


def begin(op, ctx, thread, chunk):
    """Start a step. Sleeping threads become CALLED, and Python must wake them."""
    if operand(ctx, TIMES) != 0:
        store_i64(operand(ctx, TIMES), ticks())
    _publish(ctx, 0)
    for t in range(1, operand(ctx, THREADS)):
        compare_swap(ctx + 8 * (PARKED + 8 * t), ASLEEP, CALLED)


def walk(op, ctx, thread, chunk):
    """Take part in the step that is on."""
    _take_part(ctx, thread)


def work(op, ctx, thread, chunk):
    """Take part in every step. Returns to quit, to sleep after long idleness (ASLEEP), or to stay AWAY for a while."""
    mine = ctx + 8 * (PARKED + 8 * thread)
    atomic_store(mine, AWAKE)
    waited = 0
    while operand(ctx, QUIT) == 0:
        if atomic_load(ctx + _STATE) >> 32 != IDLE:
            if _take_part(ctx, thread) >= operand(ctx, PATIENCE_TICKS):
                atomic_store(mine, AWAY)
                return
            waited = 0
        elif waited > operand(ctx, PATIENCE):
            atomic_store(mine, ASLEEP)
            # A step may have begun in between: then nobody calls, and this thread must go on.
            if atomic_load(ctx + _STATE) >> 32 == IDLE or compare_swap(mine, ASLEEP, AWAKE) == 0:
                return
            waited = 0
        else:
            _wait_turn(ctx, waited)
            waited += 1


def nothing(op, ctx, thread, chunk):
    """An empty chunk, to measure what one costs."""


KERNELS = {f.__name__: f for f in (begin, walk, work, nothing)}
