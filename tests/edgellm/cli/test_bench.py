"""`edgellm bench`: what is run, what is computed from it, what the JSON line holds."""

from __future__ import annotations

import json
import sys
from types import ModuleType
from typing import Any

import pytest

from edgellm.cli import main


@pytest.fixture(autouse=True)
def bandwidth(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Stand in for the kernel that reads memory; returns the thread counts it was asked for."""
    asked: list[int] = []
    module = ModuleType("edgellm.kernels.cpu.bandwidth")

    def read_bandwidth(threads: int, folder: object, repeats: int) -> float:
        asked.append(threads)
        return 20e9

    module.read_bandwidth = read_bandwidth  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return asked


def last_line(out: str) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(out.splitlines()[-1])
    return shown


def test_at_depth_0(fake_llm: Any, bandwidth: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "-p", "20", "-n", "10", "-r", "3", "-t", "2"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    model, config = fake_llm.loads[0]
    assert (model, config.threads, config.max_sequences) == ("smollm2", 2, 1)
    sizes = [(len(ids), p.max_tokens) for ids, p in zip(fake_llm.prompts, fake_llm.params, strict=True)]
    assert sizes == [(20, 2)] + [(1, 11), (20, 1)] * 3  # a warm-up, then decode and prefill in turn
    assert all(p.temperature == 0 and p.ignore_eos for p in fake_llm.params)
    assert bandwidth == [2, 2, 2]
    shown = last_line(out)
    # The fake decodes at 100 tokens/s and one more per call: calls 2, 4 and 6.
    assert (shown["decode_tps"], shown["decode_tps_min"], shown["decode_tps_max"]) == (104.0, 102.0, 106.0)
    assert (shown["prefill_tps"], shown["read_bandwidth_gbps"]) == (1000.0, 20.0)
    assert shown["bytes_per_token"] == 100_000_000 + 5 * 1000
    assert shown["bandwidth_share"] == pytest.approx(104 * 100_005_000 / 20e9, abs=1e-4)
    assert shown["load_s"] == 0.25
    assert "104.0  [102.0 .. 106.0] tokens/s" in out and "52%" in out


def test_prefill_at_a_depth_is_what_it_takes_beyond_that_depth(
    fake_llm: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "-p", "20", "-n", "10", "-r", "1", "-d", "300", "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert [len(ids) for ids in fake_llm.prompts] == [32, 300, 320]
    assert last_line(out)["prefill_tps"] == pytest.approx(1000)
    assert last_line(out)["bytes_per_token"] == 100_000_000 + 305 * 1000
    assert fake_llm.loads[0][1].max_context >= 320 + 1


def test_no_prompt_is_used_twice(fake_llm: Any) -> None:
    assert main(["bench", "-p", "40", "-n", "1", "-r", "4", "-d", "40"]) == 0
    starts = [tuple(ids[:32]) for ids in fake_llm.prompts]
    assert len(set(starts)) == len(starts)
    assert all(0 <= i < fake_llm.vocab_size for ids in fake_llm.prompts for i in ids)
