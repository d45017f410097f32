"""The KV cache: `pool.py` says who holds which block, `kv.py` holds the memory and the block tables."""
