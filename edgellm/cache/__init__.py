"""The KV cache. `kv.py` is what the engine sees; the rooms behind it know one thing each.

`pool.py`: who holds which block. `tree.py`: which tokens the kept blocks belong to. `prefix.py`: how much of a prompt they
answer. `groups.py`: the block tables of layers with one reach. `memory.py`: how many blocks fit. `arrays.py`: the bytes.

Beyond the process: `disk.py` keeps beginnings by itself, `state.py` writes what an application saves, `restore.py` takes it
out of the tree and puts it back; `record.py`, `folder.py` and `room.py` are files, `identity.py` and `model_hash.py` say what
they are of.
"""
