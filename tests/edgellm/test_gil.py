"""Python goes on while a model computes: a window's 60 Hz tick beside generation."""

from __future__ import annotations

import statistics
import threading
import time
from pathlib import Path

from tiny_models import write_tiny

from edgellm import LLM

TICK_S = 1 / 60


def test_a_60_hz_tick_goes_on_beside_generation(tmp_path: Path) -> None:
    """Prefill chunks of this model take far longer than a tick: a lock held in one would show at once."""
    model = write_tiny(
        tmp_path / "m.gguf", formats="Q8_0", layers=6, hidden=768, ffn=2048, heads=12, kv_heads=4, head_dim=64
    )
    with LLM.load(model, threads=1, max_context=4096) as llm:
        chunk_s: list[float] = []
        run = llm.loaded.engine.runner.forward

        def timed(batch: object) -> object:
            start = time.perf_counter()
            try:
                return run(batch)  # type: ignore[arg-type]
            finally:
                chunk_s.append(time.perf_counter() - start)

        llm.loaded.engine.runner.forward = timed  # type: ignore[assignment, method-assign]
        done = threading.Event()

        def ask() -> None:
            try:
                llm.generate([i % 100 + 3 for i in range(1500)], max_tokens=60, ignore_eos=True, temperature=0)
            finally:
                done.set()

        asking = threading.Thread(target=ask)
        asking.start()
        late, due = [], time.perf_counter()
        while not done.is_set():
            due += TICK_S
            time.sleep(max(0.0, due - time.perf_counter()))
            late.append(time.perf_counter() - due)
            due = max(due, time.perf_counter() - TICK_S)  # what is missed is missed
        asking.join()
    longest = max(chunk_s)
    assert longest > 3 * TICK_S, f"chunks of {longest:.3f} s would prove nothing"
    assert len(late) > 10
    assert statistics.median(late) < 2 * TICK_S, f"half of all ticks were {statistics.median(late):.4f} s late or more"
    assert sum(x > longest * 0.8 for x in late) <= len(late) // 10, "ticks wait for whole chunks: the lock is held"
