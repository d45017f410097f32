"""llama-cpp-python's side of bench_speculation.py: plain decoding and its LlamaPromptLookupDecoding, in a process of its own.

Reads lines of JSON {"ids", "tokens", "script", "guess"} and answers {"seconds", "tokens"}: decoding after the prompt has been
read, greedy, or by a script of ids. guess: tokens that it looks up at once, 0 for plain decoding.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any


class Peer:
    """One model, with and without lookup."""

    def __init__(self, model: str, threads: int, context: int) -> None:
        import llama_cpp
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

        self._lookup = LlamaPromptLookupDecoding
        options: dict[str, Any] = {"n_ctx": context, "n_threads": threads, "n_threads_batch": threads, "verbose": False}
        self._plain = llama_cpp.Llama(model, **options)
        # logits_all: without it its own buffer is too short for the rows of a guess.
        self._guessing = llama_cpp.Llama(model, draft_model=LlamaPromptLookupDecoding(), logits_all=True, **options)
        self.version = str(llama_cpp.__version__)

    def run(self, ids: list[int], tokens: int, script: list[int], guess: int) -> dict[str, float]:
        """Time from the first token to the last."""
        llama = self._guessing if guess else self._plain
        if guess:
            llama.draft_model = self._lookup(num_pred_tokens=guess)
        llama.reset()
        start, count, seconds = 0.0, 0, 0.0
        for token in llama.generate(ids, temp=0.0, repeat_penalty=1.0, logits_processor=_follow(len(ids), script)):
            now = time.perf_counter()
            start = start or now
            seconds = now - start
            count += 1
            if count > tokens or (not script and token == llama.token_eos()):
                break
        return {"seconds": seconds, "tokens": count - 1}


def _follow(prompt: int, script: list[int]) -> Any:
    """What makes the model say the script."""
    if not script:
        return None
    from llama_cpp import LogitsProcessorList

    def force(input_ids: Any, scores: Any) -> Any:
        scores[script[(len(input_ids) - prompt) % len(script)]] = 1e9
        return scores

    return LogitsProcessorList([force])


def main() -> None:
    """Answer until the input ends."""
    model, threads, context = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    try:
        peer = Peer(model, int(threads), int(context))
        say({"version": peer.version})
        for line in sys.stdin:
            say(peer.run(**json.loads(line)))
    except Exception as error:
        say({"error": f"{type(error).__name__}: {error}", "missing": isinstance(error, ImportError)})


if __name__ == "__main__":
    main()
