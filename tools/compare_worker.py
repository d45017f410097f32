"""One side of tools/compare_peers.py: a process that holds one model and measures what it is asked to, JSON by JSON.

    python tools/compare_worker.py edgellm|llama.cpp MODEL THREADS CONTEXT [CACHE_TYPE]

Each line of standard input is a request, each line of standard output its answer. Between requests the process waits
for input and uses no CPU. The peer's side needs llama_cpp and NumPy only, so it may run in another environment.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from typing import Any, BinaryIO, Protocol, TextIO

CHUNK = 512  # tokens of a prompt that are computed at once, on both sides


class Side(Protocol):
    """A loaded model. Times are in seconds; ids are the same for both sides."""

    version: str
    vocab_size: int

    def decode(self, ids: list[int], tokens: int) -> float:
        """Return how long `tokens` greedy steps take after the prompt `ids` and its first answer id."""

    def prefill(self, ids: list[int], depth: int) -> float:
        """Return how long all but the first `depth` ids take, up to the choice of the next id."""

    def write_logits(self, ids: list[int], path: str) -> None:
        """Write the logits after each id, f32[len(ids), vocab_size], to a file."""

    def bytes_per_token(self, depth: int) -> float:
        """Return bytes of weights and cache that decoding a token at `depth` reads, 0 where the side cannot tell."""

    def bandwidth(self) -> float:
        """Return bytes per second that plain reading reaches, 0 where the side cannot tell."""


class EdgeLLM:
    """Through LLM.generate, as users call it: scheduling and text are part of the time.

    What a prompt shares with the one before it is not computed again: only new ids are timed.
    """

    def __init__(self, model: str, threads: int, context: int, cache_type: str = "") -> None:
        import edgellm

        self.version = edgellm.__version__
        self._threads = threads
        types = {"cache_type_k": cache_type, "cache_type_v": cache_type} if cache_type else {}
        # Without guesses: what is compared is one step for one token.
        self._load = lambda **more: edgellm.LLM.load(
            model, threads=threads, max_context=context, prefill_chunk=CHUNK, spec="off", **types, **more
        )
        self._llm = self._load()
        self.vocab_size = self._llm.vocab_size

    def decode(self, ids: list[int], tokens: int) -> float:
        timings = self._generate(ids, tokens + 1).timings
        return float(timings.decode_tokens / timings.decode_tps)

    def prefill(self, ids: list[int], depth: int) -> float:
        if depth:
            self._generate(ids[:depth], 1)
        timings = self._generate(ids, 1).timings
        return float((timings.prefill_tokens - timings.reused_tokens) / timings.prefill_tps)

    def write_logits(self, ids: list[int], path: str) -> None:
        # Roundings of 8-bit activations that flip are louder than what a type of cache changes.
        with self._load(precise=True) as llm:
            llm.logits(ids).tofile(path)

    def bytes_per_token(self, depth: int) -> float:
        return self._llm.loaded.weight_bytes + self._llm.loaded.cache_bytes(depth)

    def bandwidth(self) -> float:
        from edgellm.kernels.cpu.bandwidth import read_bandwidth
        from edgellm.paths import home

        return read_bandwidth(self._threads, home() / "kernels", repeats=3)

    def _generate(self, ids: list[int], tokens: int) -> Any:
        return self._llm.generate(ids, max_tokens=tokens, temperature=0, ignore_eos=True)


class LlamaCpp:
    """Through the C interface: nothing but llama_decode and the choice of the best id is timed."""

    def __init__(self, model: str, threads: int, context: int, cache_type: str = "") -> None:
        import llama_cpp

        self._api: Any = llama_cpp
        self.version = str(llama_cpp.__version__)
        self._quiet = llama_cpp.llama_log_callback(lambda *_: None)  # kept: C holds its address only
        llama_cpp.llama_log_set(self._quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        weights = llama_cpp.llama_model_default_params()
        weights.n_gpu_layers = 0
        self._model = llama_cpp.llama_model_load_from_file(model.encode(), weights)
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {model}")
        options = llama_cpp.llama_context_default_params()
        options.n_ctx, options.n_batch, options.n_ubatch = context, CHUNK, CHUNK
        options.n_threads = options.n_threads_batch = threads
        if cache_type:
            options.type_k = options.type_v = getattr(llama_cpp, f"GGML_TYPE_{cache_type.upper()}")
            options.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED  # values of fewer bits need it
        self._held: list[int] = []
        self._context = llama_cpp.llama_init_from_model(self._model, options)
        if not self._context:
            raise RuntimeError(f"llama.cpp cannot make a context of {context} tokens")
        self.vocab_size = int(llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model)))

    def decode(self, ids: list[int], tokens: int) -> float:
        self._hold(ids[:-1])
        self._feed(ids[-1:])
        best = self._best()
        start = time.perf_counter()
        for _ in range(tokens):
            self._feed([best])
            best = self._best()
        return time.perf_counter() - start

    def prefill(self, ids: list[int], depth: int) -> float:
        self._hold(ids[:depth])
        start = time.perf_counter()
        self._feed(ids[depth:])
        self._best()
        return time.perf_counter() - start

    def write_logits(self, ids: list[int], path: str) -> None:
        self._hold([])
        with open(path, "wb") as file:
            for start in range(0, len(ids), 64):
                self._feed_all_wanted(ids[start : start + 64], file)

    def bytes_per_token(self, depth: int) -> float:
        return 0.0

    def bandwidth(self) -> float:
        return 0.0

    def _hold(self, ids: list[int]) -> None:
        """Make the cache hold `ids`, keeping what it has of them; a cache that cannot be cut starts again."""
        memory = self._api.llama_get_memory(self._context)
        common = 0
        while common < min(len(ids), len(self._held)) and ids[common] == self._held[common]:
            common += 1
        if common < len(self._held) and not self._api.llama_memory_seq_rm(memory, 0, common, -1):
            self._api.llama_memory_clear(memory, True)
            common = 0
        self._held = self._held[:common]
        self._feed(ids[common:])

    def _feed(self, ids: list[int]) -> None:
        """Compute ids after those in the cache; logits are made for the last one of a batch only."""
        for start in range(0, len(ids), CHUNK):
            part = ids[start : start + CHUNK]
            tokens = (self._api.llama_token * len(part))(*part)
            self._decode(self._api.llama_batch_get_one(tokens, len(part)), part)

    def _feed_all_wanted(self, ids: list[int], file: BinaryIO) -> None:
        """Compute ids after those in the cache and write all their logits."""
        batch = self._api.llama_batch_init(len(ids), 0, 1)
        try:
            for i, token_id in enumerate(ids):
                batch.token[i], batch.pos[i], batch.logits[i] = token_id, len(self._held) + i, 1
                batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
            batch.n_tokens = len(ids)
            self._decode(batch, ids)
        finally:
            self._api.llama_batch_free(batch)
        for i in range(len(ids)):
            self._logits(i).tofile(file)

    def _decode(self, batch: Any, ids: list[int]) -> None:
        code = self._api.llama_decode(self._context, batch)
        if code != 0:
            raise RuntimeError(f"llama_decode returned {code}")
        self._held = self._held + ids

    def _best(self) -> int:
        return int(self._logits(-1).argmax())

    def _logits(self, row: int) -> Any:
        import numpy as np

        logits = self._api.llama_get_logits_ith(self._context, row)
        return np.ctypeslib.as_array(logits, (self.vocab_size,))


def answer(side: Side, request: dict[str, Any]) -> dict[str, float]:
    """Do one request and return the seconds (or bytes, or bytes per second) under "value"."""
    if request["do"] == "decode":
        return {"value": side.decode(request["ids"], request["tokens"])}
    if request["do"] == "prefill":
        return {"value": side.prefill(request["ids"], request["depth"])}
    if request["do"] == "write_logits":
        side.write_logits(request["ids"], request["path"])
        return {"value": 0.0}
    if request["do"] == "bytes_per_token":
        return {"value": side.bytes_per_token(request["depth"])}
    return {"value": side.bandwidth()}


def serve(make: Any, requests: TextIO, answers: TextIO) -> None:
    """Load, say hello, then answer until the input ends. A failure is an answer too: {"error": text}."""

    def say(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    try:
        side: Side = make()
        say({"version": side.version, "vocab_size": side.vocab_size})
        for line in requests:
            say(answer(side, json.loads(line)))
    except ImportError as error:
        say({"error": f"{error.name or error} is not installed", "missing": True})
    except Exception as error:
        say({"error": f"{type(error).__name__}: {error}"})


def main() -> None:
    """Run one side. What libraries print goes to standard error: standard output is for answers."""
    kind, model, threads, context, *cache_type = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    side = {"edgellm": EdgeLLM, "llama.cpp": LlamaCpp}[kind]
    serve(lambda: side(model, int(threads), int(context), *cache_type), sys.stdin, answers)


if __name__ == "__main__":
    main()
