"""A run that is told to stop: it ends early, says so, and leaves nothing behind that the next run could see. Case O12."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import cpu_kernels as cpu
import cpu_programs as programs
import numpy as np
import pytest
from tiny_models import write_tiny

from edgellm import models
from edgellm.gguf import open_gguf
from edgellm.kernels.cpu import isa, slots, threads
from edgellm.kernels.cpu.memory import address
from edgellm.kernels.cpu.tape import TapeWriter
from edgellm.kernels.ops import Aborted

TOKENS = 300


@pytest.mark.parametrize("count", [1, 3])
def test_a_step_that_is_told_to_stop_computes_nothing_more_and_the_next_computes_all(count: int) -> None:
    kernels = cpu.get_kernels(isa.choose().level.name)
    rows, ones = (cpu.make_rows(np.full((50, 32), value, np.float32)) for value in (0, 1))
    writer, x = TapeWriter(kernels, []), address(rows)
    for _ in range(20):  # stages, as each reads what the one before wrote
        writer.op("add_rows", [x, 128, address(ones), 0, x, 128, 1], 50, None, [0], [0])
    tape, team = writer.finish(), threads.Threads(count, dict(kernels), 4096)
    tape.resize((1,))
    team.ctx[slots.ABORT] = 1
    team.run(tape)
    assert (rows == 0).all()
    team.ctx[slots.ABORT] = 0
    team.run(tape)
    assert (rows == 20).all()
    team.close()


@pytest.mark.parametrize("count", [1, 2, 4])
def test_logits_after_aborted_runs_are_the_same_bits(count: int, tmp_path: Path) -> None:
    """Aborted at any moment: before, in the body, in the head, after the end."""
    path = write_tiny(tmp_path / "m.gguf", "gemma3", formats="Q8_0", layers=6, hidden=256, ffn=512, window=70)
    ids = np.random.default_rng(1).integers(0, 128, TOKENS).astype(np.int32)
    with open_gguf(path) as file:
        program = models.get("gemma3").build(file.metadata, file.tensors)
        with programs.Machine(program, file, 320, num_threads=count) as machine:
            start = time.perf_counter()
            expected = machine.logits(ids, chunk=TOKENS)[0]
            length_s = time.perf_counter() - start
            num_aborted = 0
            for part in np.linspace(0, 1.2, 13):
                timer = threading.Timer(part * length_s, machine.backend.abort)
                timer.start()
                try:
                    assert np.array_equal(machine.logits(ids, chunk=TOKENS)[0], expected)
                except Aborted:
                    num_aborted += 1
                timer.join()
            machine.backend.abort()
            with pytest.raises(Aborted):  # of the last timer, or of this call
                machine.logits(ids[:5])
            assert np.array_equal(machine.logits(ids, chunk=TOKENS)[0], expected)
            assert num_aborted > 0
