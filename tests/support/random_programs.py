"""Random programs: any ops on any earlier values, in widths of every kind. What no architecture does, and some do."""

from __future__ import annotations

import random

import cpu_programs as programs
import numpy as np

from edgellm.kernels.ops import ACTIVATIONS, Builder, CacheLayer, Program, Rope, Value

VOCAB = 50


def make_random(seed: int) -> tuple[Program, programs.MemorySource]:
    """A program and its weights."""
    maker = _Maker(seed)
    return maker.make(), maker.source


class _Maker:
    """kept: what attention ops gave, their kv heads and how wide these are."""

    def __init__(self, seed: int) -> None:
        self.rng, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.source, self.b = programs.MemorySource(), Builder()
        self.widths = self.rng.sample([32, 40, 64, 96, 256], 2)
        self.values: list[Value] = []
        self.kept: list[tuple[Value, int, int]] = []

    def weight(self, rows: int, columns: int) -> str:
        fit = [f for f in ("F32", "F16", "Q8_0", "Q5_0", "Q4_1") if f in ("F32", "F16") or columns % 32 == 0]
        w = (self.numbers.standard_normal((rows, columns)) / columns**0.5).astype(np.float32)
        return self.source.put(f"w{len(self.source.tensors)}", w, self.rng.choice(fit))

    def vector(self, size: int) -> str:
        return self.source.put(
            f"v{len(self.source.tensors)}", (1 + 0.2 * self.numbers.standard_normal(size)).astype(np.float32)
        )

    def pick(self, width: int | None = None) -> Value:
        return self.rng.choice([v for v in self.values if width is None or v.width == width])

    def grow(self) -> Value:
        kinds = ["linear", "linear", "norm", "add", "add", "gated", "add_linear", "attention", "again", "rows", "rows"]
        kind, x = self.rng.choice(kinds), self.pick()
        if kind == "linear":
            width = self.rng.choice(self.widths)
            start = self.rng.choice([0, 0, 8, 40])  # rows of a larger matrix
            rows, bias = start + width + self.rng.choice([0, 5]), self.rng.random() < 0.3
            return self.b.linear(x, self.weight(rows, x.width), width, self.vector(rows) if bias else None, start)
        if kind == "norm":
            groups = self.rng.choice([g for g in (1, 1, 2, 4) if x.width % g == 0])
            return self.b.rms_norm(x, self.rng.choice([None, self.vector(x.width // groups)]), 1e-5, groups)
        if kind == "add":
            return self.b.add(x, self.pick(x.width))
        if kind == "gated":
            return self.b.gated(x, self.pick(x.width), self.rng.choice(ACTIVATIONS))
        if kind == "rows":
            return self.by_rows(x)
        if kind == "add_linear":
            y = self.b.linear(x, self.weight(x.width, x.width), x.width)
            return self.b.add(*self.rng.sample([x, y], 2))
        return self.again(x) if kind == "again" else self.attend(x)

    def by_rows(self, x: Value) -> Value:
        kind = self.rng.choice(["layer_norm", "activate", "multiply", "scale", "softcap", "columns"])
        if kind == "layer_norm":
            groups = self.rng.choice([g for g in (1, 1, 2, 4) if x.width % g == 0])
            size = x.width // groups
            return self.b.layer_norm(
                x, self.vector(size), self.vector(size) if self.rng.random() < 0.5 else None, 1e-5, groups
            )
        if kind == "activate":
            return self.b.activate(x, self.rng.choice(ACTIVATIONS))
        if kind == "multiply":
            wide, one = self.pick(x.width), self.b.activate(self.b.linear(x, self.weight(1, x.width), 1), "sigmoid")
            return self.b.multiply(x, self.rng.choice([wide, one]))
        if kind == "columns":
            width = self.rng.choice([w for w in (8, *self.widths) if w <= x.width])
            return self.b.columns(x, 8 * self.rng.randint(0, (x.width - width) // 8), width)
        return (
            self.b.scale(x, 0.7, self.rng.choice([None, self.vector(1)])) if kind == "scale" else self.b.softcap(x, 3.0)
        )

    def attend(self, x: Value) -> Value:
        kv, shared, dim = self.rng.choice([1, 2]), self.rng.choice([1, 3]), self.rng.choice([8, 32, 48])
        layer = CacheLayer(kv, dim, self.rng.choice([None, 5, 70]))
        rope = Rope(self.rng.choice([8, dim]), 1e4, self.rng.choice(["adjacent", "halves"]))
        q, k, v = (self.b.linear(x, self.weight(n * dim, x.width), n * dim) for n in (kv * shared, kv, kv))
        if self.rng.random() < 0.5:  # another reads what is turned
            self.values.append(self.b.rope(q, kv * shared, rope, self.rng.choice([None, 0, 9, 70])))
        q, k = self.b.rope(q, kv * shared, rope), self.b.rope(k, kv, rope)
        y = self.b.attention(q, k, v, kv * shared, layer, dim**-0.5)
        self.kept.append((y, kv, dim))
        return y

    def again(self, x: Value) -> Value:
        first, kv, dim = self.rng.choice(self.kept)
        heads = kv * self.rng.choice([1, 2])
        return self.b.attention_again(
            self.b.linear(x, self.weight(heads * dim, x.width), heads * dim), first, heads, dim**-0.5
        )

    def make(self) -> Program:
        self.values.append(self.b.embed(self.weight(VOCAB, self.widths[0]), self.widths[0], 4.0))
        self.values.append(self.attend(self.values[0]))
        for _ in range(self.rng.randint(3, 14)):
            self.values.append(self.grow())
        x = self.values[-1]
        for _ in range(self.rng.randint(0, 3)):
            x = self.b.add(x, self.pick(x.width))
        self.values = [self.b.logit_rows(self.b.rms_norm(x, self.vector(x.width), 1e-5))]
        for _ in range(self.rng.randint(0, 3)):
            kind, x = self.rng.choice(["norm", "residual", "add"]), self.values[-1]
            if kind == "norm":
                self.values.append(self.b.rms_norm(x, self.vector(x.width), 1e-5))
            else:
                y = self.b.linear(x, self.weight(x.width, x.width), x.width) if kind == "residual" else self.values[0]
                self.values.append(self.b.add(x, y))
        return self.b.finish(self.b.linear(self.values[-1], self.weight(VOCAB, x.width), VOCAB))
