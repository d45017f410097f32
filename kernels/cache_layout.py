"""How many tokens lie together in the cache. What a tile's bytes mean: cache_formats/. No arrays here."""

BLOCK_SIZE = 64
"""Tokens of a block: per layer and kv head one K tile and one V tile."""
HALF = 32
"""Lanes of a vector of a tile: tokens of K, dims of V."""
