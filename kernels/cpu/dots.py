"""Integer multiply-adds of eight rows: one class per instruction level, chosen by its name in `way`.

Only here do levels differ in matrix kernels. A way collects sums over steps of 32 weight bytes (lane r holds four columns of
row r) times four activation bytes, repeated in every lane; sums are exact whatever the way. Words come as single steps
(`mac`, `product`, `signed`) and as whole groups of steps, where a level may see several at once. Unsigned weights are at
most 127. `tiles.py` makes words of them; ARM's levels are in `dots_arm.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from llvmlite import ir

from . import vector
from .vector import I8, I16, I32, I64, constant, i8x32, pointer, shuffle, splat

BYTES, SHORTS, INTS = i8x32.llvm, ir.VectorType(I16, 16), ir.VectorType(I32, 8)
STARTS = (40, 44)
"""Bytes per token before minus the activations' sums, of steps 0-3 and of steps 4-7 (see tiles.py)."""

Steps = Iterable[tuple[int, ir.Value]]
"""Some of a group's eight steps: (step, 32 weights). An iterator, so that each is made just before it is used."""


def int_at(b: ir.IRBuilder, x: ir.Value, offset: int, lanes: int = 8) -> ir.Value:
    """A 32-bit word, repeated in every lane."""
    word = b.load(pointer(b, b.add(x, I64(offset)), I32), align=4)
    return splat(b, ir.VectorType(I32, lanes), word)


def bytes_at(b: ir.IRBuilder, x: ir.Value, offset: int) -> ir.Value:
    """Four activation bytes, repeated in every lane."""
    return b.bitcast(int_at(b, x, offset), BYTES)


class Groups:
    """Whole groups, one step after the other: for levels that gain nothing from seeing several."""

    @classmethod
    def mac_group(cls: Any, b: ir.IRBuilder, sums: list[ir.Value], steps: Steps, x: ir.Value) -> list[ir.Value]:
        """sums (one per token) plus the products of unsigned weights."""
        for step, w in steps:
            sums = cls.mac(b, sums, w, b.add(x, I64(4 * len(sums) * step)))
        return sums

    @classmethod
    def dot_group(cls: Any, b: ir.IRBuilder, tokens: int, steps: Steps, x: ir.Value) -> list[ir.Value]:
        """The same, from zero."""
        sums: list[ir.Value] = []
        for step, w in steps:
            at = b.add(x, I64(4 * tokens * step))
            one = lambda t, w=w, at=at: cls.product(b, w, bytes_at(b, at, 4 * t))  # noqa: E731
            sums = cls.mac(b, sums, w, at) if sums else [one(t) for t in range(tokens)]
        return sums

    @classmethod
    def signed_group(
        cls: Any, b: ir.IRBuilder, tokens: int, steps: Steps, x: ir.Value, halves: tuple[int, ...]
    ) -> list[ir.Value]:
        """int32 sums of int8 weights, from zero. halves: 0 if steps 0-3 are among the steps, 1 if 4-7 are."""
        sums: list[ir.Value] = [constant(INTS, 0)] * tokens
        for step, w in steps:
            sums = cls.mac_signed(b, sums, w, b.add(x, I64(4 * tokens * step)))
        return sums

    @classmethod
    def mac_signed(cls: Any, b: ir.IRBuilder, sums: list[ir.Value], w: ir.Value, x: ir.Value) -> list[ir.Value]:
        return [b.add(a, cls.signed(b, w, bytes_at(b, x, 4 * t))) for t, a in enumerate(sums)]

    @classmethod
    def table_group(
        cls: Any, b: ir.IRBuilder, tokens: int, steps: Steps, table: Sequence[int], x: ir.Value, halves: tuple[int, ...]
    ) -> list[ir.Value]:
        """The same for weights table[q], q in 0..15."""
        looked_up = ((step, cls.lookup(b, q, table)) for step, q in steps)
        sums: list[ir.Value] = cls.signed_group(b, tokens, looked_up, x, halves)
        return sums

    # ---- tiles of several row groups: sums of the first row group's tokens come first ----
    @classmethod
    def mac_rows(cls: Any, b: ir.IRBuilder, sums: list[ir.Value], rows: list[Steps], x: ir.Value) -> list[ir.Value]:
        tokens = len(sums) // len(rows)
        parts = [sums[i * tokens : (i + 1) * tokens] for i in range(len(rows))]
        return [s for part, steps in zip(parts, rows, strict=True) for s in cls.mac_group(b, part, steps, x)]

    @classmethod
    def dot_rows(cls: Any, b: ir.IRBuilder, tokens: int, rows: list[Steps], x: ir.Value) -> list[ir.Value]:
        return [s for steps in rows for s in cls.dot_group(b, tokens, steps, x)]


class Avx2(Groups):
    """int16 sums by vpmaddubsw. They may wrap on the way: starts and ranges are such that the final sum fits."""

    sums, scale = SHORTS, SHORTS

    @staticmethod
    def start(b: ir.IRBuilder, x: ir.Value, offset: int) -> ir.Value:
        return b.bitcast(int_at(b, x, offset), SHORTS)

    @staticmethod
    def shift(b: ir.IRBuilder, v: ir.Value, bits: ir.Value) -> ir.Value:
        return b.shl(v, splat(b, SHORTS, b.trunc(bits, I16)))

    @staticmethod
    def product(b: ir.IRBuilder, w: ir.Value, q: ir.Value) -> ir.Value:
        return vector.call(b, "llvm.x86.avx2.pmadd.ub.sw", SHORTS, w, q)

    @classmethod
    def mac(cls, b: ir.IRBuilder, sums: list[ir.Value], w: ir.Value, x: ir.Value) -> list[ir.Value]:
        if len(sums) < 4:
            return [b.add(a, cls.product(b, w, bytes_at(b, x, 4 * t))) for t, a in enumerate(sums)]
        return [cls._pinned(b, a, w, x, 4 * t) for t, a in enumerate(sums)]

    @staticmethod
    def _pinned(b: ir.IRBuilder, a: ir.Value, w: ir.Value, x: ir.Value, offset: int) -> ir.Value:
        """One multiply-add as assembly. LLVM would turn the sums into trees and hoist the broadcasts, and spill: 20 % slower."""
        text = f"vpbroadcastd {offset}($3), $1\nvpmaddubsw $1, $2, $1\nvpaddw $1, $0, $0"
        signature = ir.FunctionType(ir.LiteralStructType([SHORTS, SHORTS]), [SHORTS, I64, SHORTS])
        pair = b.asm(signature, text, "=&x,=&x,x,r,0", [b.bitcast(w, SHORTS), x, a], True)
        return b.extract_value(pair, 0)

    @classmethod
    def mac_rows(cls, b: ir.IRBuilder, sums: list[ir.Value], rows: list[Steps], x: ir.Value) -> list[ir.Value]:
        if len(rows) == 1:
            return cls.mac_group(b, sums, rows[0], x)
        tokens = len(sums) // len(rows)
        for each in zip(*rows, strict=True):
            at, weights = b.add(x, I64(4 * tokens * each[0][0])), [w for _, w in each]
            by_token = [cls._pinned_rows(b, sums[t::tokens], weights, at, 4 * t) for t in range(tokens)]
            sums = [by_token[t][r] for r in range(len(rows)) for t in range(tokens)]
        return sums

    @classmethod
    def dot_rows(cls, b: ir.IRBuilder, tokens: int, rows: list[Steps], x: ir.Value) -> list[ir.Value]:
        if len(rows) == 1:
            return cls.dot_group(b, tokens, rows[0], x)
        return cls.mac_rows(b, [constant(SHORTS, 0)] * (tokens * len(rows)), rows, x)

    @staticmethod
    def _pinned_rows(
        b: ir.IRBuilder, sums: list[ir.Value], weights: list[ir.Value], x: ir.Value, offset: int
    ) -> list[ir.Value]:
        """`_pinned` for one token and several rows, which share the broadcast."""
        n = len(sums)  # operands: n sums, n products, the activations; n weights, x
        lines = [f"vpbroadcastd {offset}(${3 * n + 1}), ${2 * n}"]
        for r in range(n):
            lines += [f"vpmaddubsw ${2 * n}, ${2 * n + 1 + r}, ${n + r}", f"vpaddw ${n + r}, ${r}, ${r}"]
        outputs = [SHORTS] * (2 * n + 1)
        signature = ir.FunctionType(ir.LiteralStructType(outputs), [SHORTS] * n + [I64] + [SHORTS] * n)
        places = ",".join([*["=&x"] * (2 * n + 1), *["x"] * n, "r", *map(str, range(n))])
        values = [*[b.bitcast(w, SHORTS) for w in weights], x, *sums]
        result = b.asm(signature, "\n".join(lines), places, values, True)
        return [b.extract_value(result, r) for r in range(n)]

    @classmethod
    def mac_scaled(cls, b: ir.IRBuilder, sums: list[ir.Value], w: ir.Value, x: ir.Value, s: ir.Value) -> list[ir.Value]:
        """int32 sums, each product times the scale: for weights of which 16-bit lanes hold two products and not eight."""
        if len(sums) < 4:
            products = (cls.product(b, w, bytes_at(b, x, 4 * t)) for t in range(len(sums)))
            return [b.add(a, cls.scaled(b, q, s)) for a, q in zip(sums, products, strict=True)]
        return [cls._pinned_scaled(b, a, w, x, 4 * t, s) for t, a in enumerate(sums)]

    @staticmethod
    def _pinned_scaled(b: ir.IRBuilder, a: ir.Value, w: ir.Value, x: ir.Value, offset: int, s: ir.Value) -> ir.Value:
        text = f"vpbroadcastd {offset}($3), $1\nvpmaddubsw $1, $2, $1\nvpmaddwd $4, $1, $1\nvpaddd $1, $0, $0"
        signature = ir.FunctionType(ir.LiteralStructType([INTS, INTS]), [INTS, I64, SHORTS, INTS])
        pair = b.asm(signature, text, "=&x,=&x,x,r,x,0", [b.bitcast(w, INTS), x, s, a], True)
        return b.extract_value(pair, 0)

    @classmethod
    def mac_signed(cls, b: ir.IRBuilder, sums: list[ir.Value], w: ir.Value, x: ir.Value) -> list[ir.Value]:
        if len(sums) < 4:
            return super().mac_signed(b, sums, w, x)
        size = vector.call(b, "llvm.x86.avx2.psign.b", BYTES, w, w)
        return [cls._pinned_signed(b, a, w, size, x, 4 * t) for t, a in enumerate(sums)]

    @staticmethod
    def _pinned_signed(b: ir.IRBuilder, a: ir.Value, w: ir.Value, size: ir.Value, x: ir.Value, offset: int) -> ir.Value:
        text = f"vpbroadcastd {offset}($4), $1\nvpsignb $2, $1, $1\nvpmaddubsw $1, $3, $1\nvpmaddwd $5, $1, $1"
        signature = ir.FunctionType(ir.LiteralStructType([INTS, INTS]), [INTS, INTS, I64, SHORTS, INTS])
        values = [b.bitcast(w, INTS), b.bitcast(size, INTS), x, constant(SHORTS, 1), a]
        pair = b.asm(signature, text + "\nvpaddd $1, $0, $0", "=&x,=&x,x,x,r,x,0", values, True)
        return b.extract_value(pair, 0)

    @staticmethod
    def total(b: ir.IRBuilder, a: ir.Value) -> ir.Value:
        return vector.call(b, "llvm.x86.avx2.pmadd.wd", INTS, a, constant(SHORTS, 1))

    @staticmethod
    def scaled(b: ir.IRBuilder, a: ir.Value, s: ir.Value) -> ir.Value:
        return vector.call(b, "llvm.x86.avx2.pmadd.wd", INTS, a, s)

    @staticmethod
    def scale_of(b: ir.IRBuilder, shorts: ir.Value, which: int) -> ir.Value:
        return shuffle(b, shorts, [2 * (i // 2) + which for i in range(16)])

    @staticmethod
    def lookup(b: ir.IRBuilder, q: ir.Value, table: Sequence[int]) -> ir.Value:
        """table[q] for bytes q of 0..15."""
        return vector.call(b, "llvm.x86.avx2.pshuf.b", BYTES, ir.Constant(BYTES, [I8(v) for v in table] * 2), q)

    @staticmethod
    def signs(b: ir.IRBuilder, w: ir.Value, q: ir.Value) -> tuple[ir.Value, ir.Value]:
        """s8 x s8 as |w| * sign(q, w): -> its unsigned and its signed factor. Exact, since |q| <= 127."""
        sign = lambda v, s: vector.call(b, "llvm.x86.avx2.psign.b", BYTES, v, s)  # noqa: E731
        return sign(w, w), sign(q, w)

    @classmethod
    def signed(cls, b: ir.IRBuilder, w: ir.Value, q: ir.Value) -> ir.Value:
        """int32 sums of s8 x s8: 2 * 128 * 127 fits int16."""
        return cls.total(b, cls.product(b, *cls.signs(b, w, q)))


class Generic(Groups):
    """int32 sums in plain LLVM, for every CPU."""

    sums, scale = INTS, INTS

    @staticmethod
    def start(b: ir.IRBuilder, x: ir.Value, offset: int) -> ir.Value:
        halves = [b.sext(b.load(pointer(b, b.add(x, I64(offset + 2 * i)), I16), align=2), I32) for i in (0, 1)]
        return splat(b, INTS, b.add(*halves))

    @staticmethod
    def shift(b: ir.IRBuilder, v: ir.Value, bits: ir.Value) -> ir.Value:
        return b.shl(v, splat(b, INTS, b.trunc(bits, I32)))

    @classmethod
    def product(cls, b: ir.IRBuilder, w: ir.Value, q: ir.Value) -> ir.Value:
        return cls._dot4(b, w, q, b.zext)

    @staticmethod
    def _dot4(b: ir.IRBuilder, w: ir.Value, q: ir.Value, widen: Any) -> ir.Value:
        result = None
        for j in range(4):
            phase = [4 * r + j for r in range(8)]
            one = b.mul(widen(shuffle(b, w, phase), INTS), b.sext(shuffle(b, q, phase), INTS))
            result = one if result is None else b.add(result, one)
        return result

    @classmethod
    def mac(cls, b: ir.IRBuilder, sums: list[ir.Value], w: ir.Value, x: ir.Value) -> list[ir.Value]:
        return [b.add(a, cls.product(b, w, bytes_at(b, x, 4 * t))) for t, a in enumerate(sums)]

    @staticmethod
    def total(b: ir.IRBuilder, a: ir.Value) -> ir.Value:
        return a

    @staticmethod
    def scaled(b: ir.IRBuilder, a: ir.Value, s: ir.Value) -> ir.Value:
        return b.mul(a, s)

    @staticmethod
    def scale_of(b: ir.IRBuilder, shorts: ir.Value, which: int) -> ir.Value:
        return b.sext(shuffle(b, shorts, [2 * r + which for r in range(8)]), INTS)

    @staticmethod
    def lookup(b: ir.IRBuilder, q: ir.Value, table: Sequence[int]) -> ir.Value:
        result = constant(BYTES, 0)
        for i, v in enumerate(table):
            result = b.select(b.icmp_unsigned("==", q, constant(BYTES, i)), constant(BYTES, v), result)
        return result

    @classmethod
    def signed(cls, b: ir.IRBuilder, w: ir.Value, q: ir.Value) -> ir.Value:
        return cls._dot4(b, w, q, b.sext)


class Vnni(Generic):
    """int32 sums by vpdpbusd: unsigned weights times signed activations, four columns at once. VEX or EVEX is LLVM's choice.

    256 bits also where 512 exist: eight rows are eight lanes. A format would need sixteen interleaved rows to fill a
    wider register, decode waits for memory in any case, and laptops that have 512 bits join two 256-bit units for it.
    """

    lookup = Avx2.lookup

    @staticmethod
    def start(b: ir.IRBuilder, x: ir.Value, offset: int) -> ir.Value:
        pairs = b.bitcast(int_at(b, x, offset), SHORTS)
        return vector.call(b, "llvm.x86.avx2.pmadd.wd", INTS, pairs, constant(SHORTS, 1))

    @staticmethod
    def _dot(b: ir.IRBuilder, a: ir.Value, w: ir.Value, q: ir.Value) -> ir.Value:
        return vector.call(b, "llvm.x86.avx512.vpdpbusd.256", INTS, a, b.bitcast(w, INTS), b.bitcast(q, INTS))

    @classmethod
    def product(cls, b: ir.IRBuilder, w: ir.Value, q: ir.Value) -> ir.Value:
        return cls._dot(b, constant(INTS, 0), w, q)

    @classmethod
    def mac(cls, b: ir.IRBuilder, sums: list[ir.Value], w: ir.Value, x: ir.Value) -> list[ir.Value]:
        return [cls._dot(b, a, w, bytes_at(b, x, 4 * t)) for t, a in enumerate(sums)]

    @classmethod
    def signed(cls, b: ir.IRBuilder, w: ir.Value, q: ir.Value) -> ir.Value:
        return cls.product(b, *Avx2.signs(b, w, q))

    @classmethod
    def _biased(cls, b: ir.IRBuilder, tokens: int, x: ir.Value, halves: tuple[int, ...]) -> list[ir.Value]:
        """Minus 128 times the activations' sums: weights plus 128 are unsigned, and cost no sign change of activations."""
        sums = []
        for t in range(tokens):
            fields = [cls.start(b, x, STARTS[half] * tokens + 4 * t) for half in halves]
            sums.append(b.shl(fields[0] if len(fields) == 1 else b.add(*fields), constant(INTS, 7)))
        return sums

    @classmethod
    def signed_group(
        cls, b: ir.IRBuilder, tokens: int, steps: Steps, x: ir.Value, halves: tuple[int, ...]
    ) -> list[ir.Value]:
        biased = ((step, b.xor(w, constant(BYTES, 128))) for step, w in steps)
        return cls.mac_group(b, cls._biased(b, tokens, x, halves), biased, x)

    @classmethod
    def table_group(
        cls, b: ir.IRBuilder, tokens: int, steps: Steps, table: Sequence[int], x: ir.Value, halves: tuple[int, ...]
    ) -> list[ir.Value]:
        looked_up = ((step, cls.lookup(b, q, [v + 128 for v in table])) for step, q in steps)
        return cls.mac_group(b, cls._biased(b, tokens, x, halves), looked_up, x)


def way() -> Any:
    """The class of the level that is compiled for."""
    from .dots_arm import Neon, NeonDot, NeonI8mm

    made_for = vector.target()
    ways = {"avx512vnni": Vnni, "avxvnni": Vnni, "avx2": Avx2, "i8mm": NeonI8mm, "dotprod": NeonDot, "generic": Generic}
    # Every 64-bit ARM has NEON: its generic level need not do without.
    return Neon if made_for.name.endswith("arm64-generic") else ways[made_for.level.name]
