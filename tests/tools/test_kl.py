"""The figures of tools/kl.py on distributions small enough to work out by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import kl
import numpy as np
import pytest


def test_divergence_by_hand() -> None:
    p, q = [0.5, 0.25, 0.25], [0.25, 0.25, 0.5]
    wanted = np.log(np.array([p, p], np.float32)) + 3
    got = np.log(np.array([q, p], np.float32)) - 1e3
    want = 0.5 * math.log(2) - 0.25 * math.log(2)
    np.testing.assert_allclose(kl.divergence(wanted, got), [want, 0.0], atol=1e-4)
    summary = kl.summarize(wanted, got)
    assert summary["same_best_id"] == 0.5 and abs(summary["mean_kl"] - want / 2) < 1e-4


def test_more_rows_than_one_part() -> None:
    logits = np.random.default_rng(0).normal(size=(70, 9)).astype(np.float32)
    kls = kl.divergence(logits, logits[::-1])
    assert kls.shape == (70,) and (kls > 0).all()
    np.testing.assert_allclose(kls[65], kl.divergence(logits[65:66], logits[4:5])[0])


def test_ids_of_a_list_or_a_key(tmp_path: Path) -> None:
    path = tmp_path / "ids.json"
    path.write_text(json.dumps([1, 2]))
    assert kl.load_ids(path, None) == [1, 2]
    path.write_text(json.dumps({"a": [3], "b": [4]}))
    assert kl.load_ids(path, "b") == [4]
    with pytest.raises(SystemExit, match="a, b: choose one with --key"):
        kl.load_ids(path, None)
