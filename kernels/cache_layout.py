"""Where a cached token lies: the tile layout that attention reads and the cache allocates. No arrays here.

A block is BLOCK_SIZE tokens of one layer: per kv head one K tile f16[2 token halves, head_dim, 32 tokens] (one token is one
lane, so q.k needs no reduction tree) and one V tile f16[head_dim / 32 rounded up, 64 tokens, 32 dims].
"""

BLOCK_SIZE = 64
HALF = 32


def k_tile_bytes(head_dim: int) -> int:
    """Bytes of one kv head's K in one block."""
    return BLOCK_SIZE * head_dim * 2


def v_tile_bytes(head_dim: int) -> int:
    """Bytes of one kv head's V in one block: dims are padded to a multiple of 32."""
    return BLOCK_SIZE * (-(-head_dim // HALF) * HALF) * 2
