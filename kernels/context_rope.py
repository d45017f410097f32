"""LongRoPE (Ding et al. 2024, arXiv:2402.13753) has two sets of factors of the frequencies: which one a program uses.

The length of the context that a sequence may have decides, once, when a model is loaded, as in llama.cpp. Transformers looks
at the length that a sequence has, and computes all its keys anew when it crosses the limit: the same logits for texts on the
side of the limit on which the context lies. Were it decided by token or by batch, queries would meet keys that turned at other
speeds, or bits would depend on how a text was cut. Knows no backend. Next hop: `rope.py` for the angles.
"""

from __future__ import annotations

from dataclasses import replace

from .ops import Op, Program, Rope


def with_context(program: Program, context: int) -> Program:
    """The program for sequences of at most `context` tokens, or that see at most as many."""

    def settle(op: Op) -> Op:
        if op.name != "rope" or op.attributes["rope"].short_factors is None:
            return op
        rope = for_context(op.attributes["rope"], context)
        assert rope.factors is not None
        return replace(op, weights=(rope.factors,), attributes={**op.attributes, "rope": rope})

    return replace(program, ops=tuple(settle(op) for op in program.ops))


def for_context(rope: Rope, context: int) -> Rope:
    """A rotation of two sets of factors with that for such a length: the short ones up to original_context."""
    return replace(rope, factors=rope.short_factors if context <= rope.original_context else rope.long_factors)
