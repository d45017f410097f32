"""The process is killed while it writes, at any moment: nothing written before is lost, and nothing wrong is ever read."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import disk_writer
from disk_writer import KILL_BLOCK_BYTES, open_cache, prompt_of
from stored_blocks import chain, payload

ROUNDS, MOST_ROUNDS = 20, 100


def test_killed_at_any_moment(tmp_path: Path) -> None:
    rng = random.Random(1)
    kept: set[tuple[int, int]] = set()
    num_cut = 0
    for turn in range(MOST_ROUNDS):
        if turn >= ROUNDS and num_cut:
            break
        with _start(tmp_path, 100 * turn) as child:
            assert child.stdout is not None
            time.sleep(rng.uniform(0.0, 0.03))
            child.kill()
            lines = child.stdout.read().splitlines()
        for line in lines:
            words = line.split()
            if len(words) == 3:  # the last line may be cut
                kept.add((int(words[1]), int(words[2])))
        num_cut += len(list(tmp_path.rglob(".part-*")))
        for part in tmp_path.rglob(".part-*"):
            part.unlink()
    assert len(kept) > ROUNDS, "the children hardly wrote anything: the test would prove nothing"
    assert num_cut > 0, "no child was killed within a write: the test would prove nothing"
    _check_all(tmp_path, kept)


def test_two_processes_write_the_same_at_once(tmp_path: Path) -> None:
    """Both are killed; what either of them said is kept is there, and right."""
    with _start(tmp_path, 0) as one, _start(tmp_path, 0) as two:
        kept = {_read_kept(child) for _ in range(40) for child in (one, two)}
        one.kill()
        two.kill()
    assert len(kept) >= 40
    _check_all(tmp_path, kept)


def _start(folder: Path, first: int) -> subprocess.Popen[str]:
    """Start a writer, and wait until it is about to write."""
    path = os.pathsep.join([str(Path(disk_writer.__file__).parent), *sys.path])
    command = [sys.executable, disk_writer.__file__, str(folder), str(first)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path})
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    return child


def _read_kept(child: subprocess.Popen[str]) -> tuple[int, int]:
    assert child.stdout is not None
    _, number, index = child.stdout.readline().split()
    return int(number), int(index)


def _check_all(tmp_path: Path, kept: set[tuple[int, int]]) -> None:
    """Everything that was said to be kept is there, and everything that is there is right."""
    cache = open_cache(tmp_path)
    found = set()
    for number in {number for number, _ in kept} | {number + 1 for number, _ in kept}:
        for index, (parent, tokens) in enumerate(chain(prompt_of(number))):
            node = cache.find(parent, tokens)
            block = cache.read(node, 0) if node is not None else None
            if node is not None and block is not None:
                assert node.token_ids == tokens and block == payload(parent, tokens, 0, KILL_BLOCK_BYTES[0])
                found.add((number, index))
    cache.close()
    assert found >= kept
