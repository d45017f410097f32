"""The KV cache. `kv.py` is what the engine sees; the rooms behind it know one thing each.

`pool.py`: who holds which block. `tree.py`: which tokens the kept blocks belong to. `prefix.py`: how much of a prompt they
answer. `groups.py`: the block tables of layers with one reach. `memory.py`: how many blocks fit. `arrays.py`: the bytes.
"""
