"""llama.cpp's side of make_architectures.py: what it answers to a file. Runs in a Python that has llama_cpp.

    python architecture_peer.py MODEL.gguf IDS.npz OUT.npz [ADAPTER.gguf]

Weights and cache are float32. Writes logits f32[T, V], or with `is_encoder` in the ids' file embeddings f32[T, E].
"""

from __future__ import annotations

import sys

import llama_cpp
import numpy as np

GGML_F32 = 0


def main() -> None:
    """Read, compute, write."""
    path, source, target = sys.argv[1:4]
    with np.load(source) as data:
        ids, is_encoder = [int(i) for i in data["ids"]], bool(data["is_encoder"])
    common = {"n_ctx": len(ids) + 8, "n_batch": 512, "n_threads": 2, "verbose": False}
    if is_encoder:
        llama = llama_cpp.Llama(
            path, embedding=True, pooling_type=llama_cpp.LLAMA_POOLING_TYPE_NONE, n_ubatch=512, **common
        )
        batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, True
            batch.seq_id[i][0] = 0
        assert llama_cpp.llama_encode(llama.ctx, batch) in (0, -1) or llama_cpp.llama_decode(llama.ctx, batch) == 0
        width = llama_cpp.llama_model_n_embd(llama.model)
        rows = [
            np.ctypeslib.as_array(llama_cpp.llama_get_embeddings_ith(llama.ctx, i), (width,)) for i in range(len(ids))
        ]
        np.savez(target, logits=np.array(rows, np.float32))
        return
    common |= {"type_k": GGML_F32, "type_v": GGML_F32, "flash_attn": False}
    llama = llama_cpp.Llama(path, logits_all=True, lora_path=(sys.argv[4:] or [None])[0], **common)
    llama.eval(ids)
    np.savez(target, logits=np.array(llama.scores[: len(ids)], np.float32))


if __name__ == "__main__":
    main()
