"""A window by choice: rewrite a program so that every attention layer sees the last tokens and the first few only.

Lossy: what left the window is gone. The first tokens stay because attention leans on them (attention sinks: Xiao et al.
2023, arXiv:2309.17453). Knows no backend. Next hop: `ops.py` for what the rewritten ops mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from .ops import CacheLayer, Op, Program, Value


def with_window(program: Program, window: int, num_sink_tokens: int) -> Program:
    """Limit every attention layer that sees more than `window` tokens to the last `window` and the first few.

    Args:
        window: tokens, the current one included; at least 1.
        num_sink_tokens: first tokens that stay in reach beside the window; fewer in a layer whose own window is hardly
            wider, so that none sees more than before.

    Where q comes from a `rope` op, the sinks are met by queries turned as if the sinks lay right before the window: no
    distance occurs that is longer than window + num_sink_tokens - 1. Layers with a window of at most `window` stay as they
    are. While a sequence has no more than `window` tokens, nothing changes, bit for bit.
    """
    assert window >= 1 and num_sink_tokens >= 0, (window, num_sink_tokens)
    maker = {op.output.index: op for op in program.ops}
    layers, ops = list(program.cache_layers), list[Op]()
    turned: dict[tuple[int, int], Op] = {}  # by the rope op's output and the last position
    for op in program.ops:
        # An op that reads another's layer finds that one limited already, so the layers of the program count.
        if op.name == "attention" and _sees_more(program.cache_layers[op.attributes["layer"]], window):
            index, rope = op.attributes["layer"], maker[op.inputs[0].index]
            layers[index] = layer = _limit(program.cache_layers[index], window, num_sink_tokens)
            if layer.num_sink_tokens and rope.name == "rope":
                key = rope.output.index, window + layer.num_sink_tokens - 1
                if key not in turned:
                    output = Value(1 + max(maker) + len(turned), rope.output.width)
                    turned[key] = replace(rope, output=output, attributes={**rope.attributes, "last_position": key[1]})
                op = replace(op, inputs=(*op.inputs[:3], turned[key].output))
        ops.append(op)
    return Program(tuple(_with_sink_ropes(ops, turned)), program.output, tuple(layers))


def reach(layers: Iterable[CacheLayer]) -> int | None:
    """Tokens that one token can see at most, itself included, in the layer that sees most; None where there is no end."""
    most = 0
    for layer in layers:
        if layer.window is None:
            return None
        most = max(most, layer.window + layer.num_sink_tokens)
    return most


def _sees_more(layer: CacheLayer, window: int) -> bool:
    return layer.window is None or layer.window > window


def _limit(layer: CacheLayer, window: int, num_sink_tokens: int) -> CacheLayer:
    if layer.window is not None:
        num_sink_tokens = min(num_sink_tokens, layer.window - window)
    return replace(layer, window=window, num_sink_tokens=num_sink_tokens)


def _with_sink_ropes(ops: Iterable[Op], turned: Mapping[tuple[int, int], Op]) -> Iterator[Op]:
    """Put each second rope op right behind the first, where a backend has their input at hand."""
    for op in ops:
        yield op
        yield from (second for (first, _), second in turned.items() if first == op.output.index)
