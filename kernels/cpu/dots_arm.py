"""Integer multiply-adds of eight rows on ARM: a step's 32 bytes are two 16-byte registers of four rows each.

Weights are at most 127, so that unsigned ones are signed ones too. Next hop: `dots.py`, which chooses.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from . import vector
from .dots import INTS, Generic, Steps, int_at
from .vector import I8, I16, I32, I64, constant, pointer, shuffle

_BYTES16, _SHORTS8, _INTS4 = ir.VectorType(I8, 16), ir.VectorType(I16, 8), ir.VectorType(I32, 4)


def _parts(b: ir.IRBuilder, v: ir.Value, register: ir.VectorType) -> list[ir.Value]:
    """The two registers of a vector."""
    n = v.type.count // 2
    return [b.bitcast(shuffle(b, v, range(n * i, n * (i + 1))), register) for i in (0, 1)]


def _join(b: ir.IRBuilder, low: ir.Value, high: ir.Value) -> ir.Value:
    n = 2 * low.type.count
    return b.shuffle_vector(low, high, ir.Constant(ir.VectorType(I32, n), list(range(n))))


def _pick(b: ir.IRBuilder, u: ir.Value, v: ir.Value, order: Sequence[int]) -> ir.Value:
    return b.shuffle_vector(u, v, ir.Constant(_INTS4, list(order)))


class _Activations:
    """A group's activation words, 16 bytes a load: word step * tokens + t holds four columns of token t."""

    def __init__(self, b: ir.IRBuilder, x: ir.Value) -> None:
        self.b, self.x = b, x
        self.loaded: dict[int, ir.Value] = {}

    def register(self, i: int) -> ir.Value:
        if i not in self.loaded:
            at = pointer(self.b, self.b.add(self.x, I64(16 * i)), _INTS4)
            self.loaded[i] = self.b.load(at, align=4)
        return self.loaded[i]

    def repeated(self, word: int) -> ir.Value:
        """A word in every lane; the multiply-add takes it as a lane of its register."""
        v = self.register(word // 4)
        return self.b.bitcast(_pick(self.b, v, v, [word % 4] * 4), _BYTES16)


class Neon(Generic):
    """int32 sums on every 64-bit ARM: products of int16, added in pairs twice."""

    @staticmethod
    def start(b: ir.IRBuilder, x: ir.Value, offset: int) -> ir.Value:
        shorts = b.bitcast(int_at(b, x, offset, 4), _SHORTS8)
        sums = vector.call(b, "llvm.aarch64.neon.saddlp.v4i32.v8i16", _INTS4, shorts)
        return _join(b, sums, sums)

    @classmethod
    def _dot(cls, b: ir.IRBuilder, sums: ir.Value, w: ir.Value, q: ir.Value) -> ir.Value:
        """q: 16 bytes, the same for all rows."""
        both = zip(_parts(b, sums, _INTS4), _parts(b, w, _BYTES16), strict=True)
        return _join(b, *(cls._four_rows(b, a, v, q) for a, v in both))

    @staticmethod
    def _four_rows(b: ir.IRBuilder, sums: ir.Value, w: ir.Value, q: ir.Value) -> ir.Value:
        """Four rows. Two products of bytes fit int16: weights are at least -128 and activations -127."""
        products = [
            b.mul(*(b.sext(shuffle(b, v, range(i, i + 8)), _SHORTS8) for v in (w, q))) for i in (0, 8)
        ]  # fmt: skip
        pairs = vector.call(b, "llvm.aarch64.neon.addp.v8i16", _SHORTS8, *products)
        return b.add(sums, vector.call(b, "llvm.aarch64.neon.saddlp.v4i32.v8i16", _INTS4, pairs))

    @classmethod
    def product(cls, b: ir.IRBuilder, w: ir.Value, q: ir.Value) -> ir.Value:
        return cls._dot(b, constant(INTS, 0), w, _parts(b, q, _BYTES16)[0])

    signed = product

    @classmethod
    def mac(cls, b: ir.IRBuilder, sums: list[ir.Value], w: ir.Value, x: ir.Value) -> list[ir.Value]:
        return [cls._dot(b, a, w, b.bitcast(int_at(b, x, 4 * t, 4), _BYTES16)) for t, a in enumerate(sums)]

    @staticmethod
    def lookup(b: ir.IRBuilder, q: ir.Value, table: Sequence[int]) -> ir.Value:
        values = ir.Constant(_BYTES16, [I8(v) for v in table])
        found = [
            vector.call(b, "llvm.aarch64.neon.tbl1.v16i8", _BYTES16, values, part) for part in _parts(b, q, _BYTES16)
        ]
        return _join(b, *found)

    @classmethod
    def mac_group(cls, b: ir.IRBuilder, sums: list[ir.Value], steps: Steps, x: ir.Value) -> list[ir.Value]:
        activations, tokens = _Activations(b, x), len(sums)
        for step, w in steps:
            sums = [cls._dot(b, a, w, activations.repeated(step * tokens + t)) for t, a in enumerate(sums)]
        return sums

    @classmethod
    def dot_group(cls, b: ir.IRBuilder, tokens: int, steps: Steps, x: ir.Value) -> list[ir.Value]:
        return cls.mac_group(b, [constant(INTS, 0)] * tokens, steps, x)

    @classmethod
    def signed_group(
        cls, b: ir.IRBuilder, tokens: int, steps: Steps, x: ir.Value, halves: tuple[int, ...]
    ) -> list[ir.Value]:
        return cls.dot_group(b, tokens, steps, x)


class NeonDot(Neon):
    """int32 sums by sdot: four columns of four rows."""

    @staticmethod
    def _four_rows(b: ir.IRBuilder, sums: ir.Value, w: ir.Value, q: ir.Value) -> ir.Value:
        return vector.call(b, "llvm.aarch64.neon.sdot.v4i32.v16i8", _INTS4, sums, w, q)


class NeonI8mm(NeonDot):
    """Whole groups of four tokens by smmla: two rows times two tokens, eight columns (two steps) at once.

    Half as many multiply-adds as sdot needs, but rows have to be paired first, which two tokens would not pay for.
    """

    @classmethod
    def mac_group(cls, b: ir.IRBuilder, sums: list[ir.Value], steps: Steps, x: ir.Value) -> list[ir.Value]:
        if len(sums) < 4:
            return super().mac_group(b, sums, steps, x)
        activations, tokens = _Activations(b, x), len(sums)
        made = dict(steps)
        squares = [cls._squares(b, *sums[t : t + 2]) for t in range(0, tokens, 2)]
        for step in sorted(s for s in made if s % 2 == 0):
            rows = cls._row_pairs(b, made[step], made[step + 1])
            for pair in range(tokens // 2):
                q = cls._token_pair(b, activations, step, pair, tokens)
                squares[pair] = [cls._multiply(b, s, w, q) for s, w in zip(squares[pair], rows, strict=True)]
        return [one for square in squares for one in cls._by_token(b, square)]

    @staticmethod
    def _squares(b: ir.IRBuilder, first: ir.Value, second: ir.Value) -> list[ir.Value]:
        """The sums of two tokens -> four registers of two rows each: (row, token) is 0 0, 0 1, 1 0, 1 1."""
        both = zip(_parts(b, first, _INTS4), _parts(b, second, _INTS4), strict=True)
        return [_pick(b, u, v, order) for u, v in both for order in ((0, 4, 1, 5), (2, 6, 3, 7))]

    @staticmethod
    def _multiply(b: ir.IRBuilder, square: ir.Value, w: ir.Value, q: ir.Value) -> ir.Value:
        w, q = b.bitcast(w, _BYTES16), b.bitcast(q, _BYTES16)
        return vector.call(b, "llvm.aarch64.neon.smmla.v4i32.v16i8", _INTS4, square, w, q)

    @staticmethod
    def _row_pairs(b: ir.IRBuilder, even: ir.Value, odd: ir.Value) -> list[ir.Value]:
        """Two steps of eight rows -> four registers, each eight columns of two rows."""
        both = list(zip(_parts(b, even, _INTS4), _parts(b, odd, _INTS4), strict=True))
        return [_pick(b, u, v, order) for u, v in both for order in ((0, 4, 1, 5), (2, 6, 3, 7))]

    @staticmethod
    def _token_pair(b: ir.IRBuilder, activations: _Activations, step: int, pair: int, tokens: int) -> ir.Value:
        """Eight columns of tokens 2 * pair and 2 * pair + 1."""
        first = step * tokens + 2 * pair
        words = (first, first + tokens, first + 1, first + tokens + 1)
        u, v = activations.register(words[0] // 4), activations.register(words[-1] // 4)
        return _pick(b, u, v, [w % 4 + (4 if w // 4 != words[0] // 4 else 0) for w in words])

    @staticmethod
    def _by_token(b: ir.IRBuilder, square: list[ir.Value]) -> list[ir.Value]:
        """Four registers of two rows -> the sums of the first token's eight rows, and of the second's."""
        halves = [[_pick(b, square[i], square[i + 1], (t, t + 2, t + 4, t + 6)) for i in (0, 2)] for t in range(2)]
        return [_join(b, *half) for half in halves]
