"""tools/bench_threads.py: cases, ratios of paired rounds, and a run on a tiny model."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bench_threads
import pytest
from tiny_models import write_tiny


def load_unpinned(model: str, *, threads: int) -> None: ...


def load_pinned(model: str, *, threads: int, pin: bool = False) -> None: ...


def test_pinning_is_measured_where_it_exists() -> None:
    assert bench_threads.pin_choices(load_unpinned) == (None,)
    assert bench_threads.pin_choices(load_pinned) == (False, True)


def test_a_case_is_measured_in_quiet_then_beside_a_busy_process(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[Any] = []

    class Model:
        def generate(self, ids: list[int], **options: Any) -> Any:
            log.append(options["max_tokens"])
            return SimpleNamespace(timings=SimpleNamespace(decode_tps=100.0 if "busy" not in log else 60.0))

    @contextlib.contextmanager
    def load(model: str, **options: Any) -> Iterator[Model]:
        log.append(options)
        yield Model()

    @contextlib.contextmanager
    def busy(wanted: bool) -> Iterator[None]:
        log.append("busy")
        yield
        log.append("quiet")

    monkeypatch.setattr(bench_threads, "busy_process", busy)
    monkeypatch.setattr(bench_threads, "SETTLE_S", 0)
    monkeypatch.setattr(bench_threads, "idle_share", lambda: 0.25)
    assert bench_threads.measure_case(load, "m", (3, None), 20) == (100, 60, 0.25)
    assert log == [{"threads": 3, "max_context": 84, "spec": "off"}, 9, 21, "busy", 21, "quiet"]
    bench_threads.measure_case(load, "m", (2, True), 20)
    assert {"threads": 2, "max_context": 84, "spec": "off", "pin": True} in log


def test_every_second_round_goes_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[int] = []

    def measure_case(load: Any, model: str, case: Any, tokens: int) -> tuple[float, float, float]:
        order.append(case[0])
        return float(len(order)), 1.0, 0.0

    monkeypatch.setattr(bench_threads, "measure_case", measure_case)
    found = bench_threads.measure(None, "m", [(1, None), (2, None)], 5, 3)  # type: ignore[arg-type]
    assert order == [1, 2, 2, 1, 1, 2]
    assert [quiet for quiet, _, _ in found[1, None]] == [1, 4, 5]


def test_ratios_are_of_paired_rounds() -> None:
    found = {
        (1, None): [(50.0, 40.0, 0.0), (100.0, 80.0, 0.0), (60.0, 48.0, 0.02)],
        (2, None): [(100.0, 60.0, 0.0), (200.0, 120.0, 0.0), (60.0, 36.0, 0.0)],
    }
    one, two = bench_threads.summarize(found, 2)
    assert (one["quiet_tps"], one["quiet_ratio"], one["busy_ratio"]) == (60, 0.5, 0.4)
    assert (two["quiet_tps"], two["busy_tps"], two["quiet_ratio"], two["busy_ratio"]) == (100, 60, 1, 0.6)
    assert one["idle_cores"] == 0 and one["pin"] is None
    assert bench_threads.make_rows([two, one | {"pin": True}])[1][:2] == ["1, pinned", "60.0"]


def test_idleness_is_cpu_time_by_wall_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    cpu, wall = iter([1.0, 1.5]), iter([10.0, 12.0])
    clocks = SimpleNamespace(sleep=slept.append, process_time=lambda: next(cpu), perf_counter=lambda: next(wall))
    monkeypatch.setattr(bench_threads, "time", clocks)
    assert bench_threads.idle_share() == 0.25
    assert slept == [bench_threads.SETTLE_S, bench_threads.IDLE_S]


def test_a_whole_measurement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_threads, "IDLE_S", 0.1)
    model, page = write_tiny(tmp_path / "m.gguf"), tmp_path / "page.md"
    assert bench_threads.main([str(model), "-t", "1", "-n", "4", "-r", "1", "--markdown", str(page)]) == 0
    text, last = capsys.readouterr().out.rstrip().rsplit("\n", 1)
    (result,) = json.loads(last)["results"]
    assert result["threads"] == 1 and result["quiet_tps"] > 0 and result["quiet_ratio"] == 1
    assert "m.gguf on " in text and "% of a core" in page.read_text() and str(tmp_path) not in page.read_text()


def test_refusals(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench_threads.main(["-r", "0"])
    assert bench_threads.main(["no/such/model.gguf"]) == 2
    assert "no/such/model.gguf" in capsys.readouterr().err
