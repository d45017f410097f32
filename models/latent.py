"""Multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434, section 2.1): keys and values of all heads come from one
short vector of a token, and the rotated part of the keys is shared by all heads.

Files that keep the matrix of keys and that of values apart are read in the absorbed form: the cache keeps the short vector
itself, as the key and the value of a single head, and queries and results go through the matrices instead. Older files keep
both in one matrix, whose keys would have to be used transposed; those are read in the expanded form, with keys and values of
every head in the cache. Next hop: `join_heads` and `head_linear` in `kernels/ops.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..errors import ModelFileError, UnsupportedError
from ..kernels.ops import CacheLayer, HeadPart, Rope, Value
from .blocks import Blocks
from .hparams import HParams


@dataclass(frozen=True, slots=True)
class Latent:
    """rank: width of the short vector; plain, turned: of a key's parts; value: of a value; q_rank: of queries' own, or None."""

    rank: int
    plain: int
    turned: int
    value: int
    q_rank: int | None
    scale: float
    rope: Rope


def read_latent(h: HParams) -> Latent:
    """Read the sizes and the way positions turn; ModelFileError or UnsupportedError name the key at fault."""
    rank, turned = h.integer("attention.kv_lora_rank"), h.integer("rope.dimension_count")
    key = h.integer("attention.key_length_mla", h.integer("attention.key_length", high=1 << 16), high=1 << 16)
    value = h.integer("attention.value_length_mla", h.integer("attention.value_length", high=1 << 16), high=1 << 16)
    if turned >= key:
        raise ModelFileError(f"{h.architecture}.rope.dimension_count is {turned}, but must be less than a key's {key}")
    if any(n % 8 for n in (rank, turned, key, value)):
        raise UnsupportedError(
            f"{h.architecture}.attention: latent attention with a rank of {rank}, keys of {key}, of which {turned} turn, and"
            f" values of {value} is not supported: all must be multiples of 8"
        )
    rope, scale = _read_rope(h, turned, key)
    q_rank = h.integer("attention.q_lora_rank", 0, low=0) or None
    return Latent(rank, key - turned, turned, value, q_rank, scale, rope)


def _read_rope(h: HParams, turned: int, key: int) -> tuple[Rope, float]:
    """-> how positions turn, and the scale of scores: YaRN lengthens scores here, and not the parts that turn."""
    rope = h.rope(turned, "adjacent")
    multiplier = 10.0 * h.number_or_zero("rope.scaling.yarn_log_multiplier")  # files keep a tenth of it
    if rope.scaling != "yarn" or not multiplier:
        return rope, key**-0.5
    stretch = math.log(rope.factor)
    attn_factor = h.number("rope.scaling.attn_factor", 1.0) / (1.0 + 0.1 * stretch)
    return replace(rope, yarn_attn_factor=attn_factor), (1.0 + 0.1 * multiplier * stretch) ** 2 * key**-0.5


def write_attention(n: Blocks, x: Value, i: int, latent: Latent) -> Value:
    """Self-attention of layer i, its output matrix included."""
    a, b, heads, layer = latent, n.b, n.num_heads, f"blk.{i}"
    q, rows = _queries(n, x, layer, a), a.rank + a.turned
    short = n.norm(n.linear(x, f"{layer}.attn_kv_a_mqa", a.rank, 0, rows), f"{layer}.attn_kv_a_norm")
    turning = HeadPart(n.linear(x, f"{layer}.attn_kv_a_mqa", a.turned, a.rank, rows), 1, 0, a.turned)
    q_turning, q_plain = HeadPart(q, heads, a.plain, a.turned), HeadPart(q, heads, 0, a.plain)
    both = a.plain + a.value
    if n.w.has(f"{layer}.attn_k_b.weight"):
        n.w.optional(f"{layer}.attn_kv_b.weight", heads * both, a.rank)  # some files keep the whole as well
        of_keys = n.w.require(f"{layer}.attn_k_b.weight", heads, a.rank, a.plain)
        of_values = n.w.require(f"{layer}.attn_v_b.weight", heads, a.value, a.rank)
        absorbed = b.head_linear(b.join_heads(heads, q_plain), of_keys, heads, a.rank)
        q = b.join_heads(heads, q_turning, HeadPart(absorbed, heads, 0, a.rank))
        q, k = b.rope(q, heads, a.rope), b.join_heads(1, turning, HeadPart(short, 1, 0, a.rank))
        kept = CacheLayer(1, a.turned + a.rank, value_dim=a.rank)
        y = b.attention(q, b.rope(k, 1, a.rope), short, heads, kept, a.scale)
        y = b.head_linear(y, of_values, heads, a.value)
    else:
        kv = n.linear(short, f"{layer}.attn_kv_b", heads * both)
        q = b.rope(b.join_heads(heads, q_turning, q_plain), heads, a.rope)
        k = b.rope(b.join_heads(heads, turning, HeadPart(kv, heads, 0, a.plain)), heads, a.rope)
        v = b.join_heads(heads, HeadPart(kv, heads, a.plain, a.value))
        y = b.attention(q, k, v, heads, CacheLayer(heads, a.turned + a.plain, value_dim=a.value), a.scale)
    return n.linear(y, f"{layer}.attn_output", n.hidden)


def _queries(n: Blocks, x: Value, layer: str, latent: Latent) -> Value:
    """All heads' queries, by way of a short vector if the model has one."""
    width = n.num_heads * (latent.plain + latent.turned)
    if latent.q_rank is None:
        return n.linear(x, f"{layer}.attn_q", width)
    short = n.norm(n.linear(x, f"{layer}.attn_q_a", latent.q_rank), f"{layer}.attn_q_a_norm")
    return n.linear(short, f"{layer}.attn_q_b", width)
