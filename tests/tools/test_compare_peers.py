"""tools/compare_peers.py with workers that are none: order, figures, table, and what happens without the peer."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any, ClassVar

import compare_peers
import compare_worker
import numpy as np
import pytest
from tiny_models import write_tiny


class FakeWorker:
    """Answers at once; takes 1 s for 100 (edgellm) or 50 (the peer) tokens, and twice as long in its second round."""

    log: ClassVar[list[tuple[str, str, dict[str, Any]]]] = []

    def __init__(self, side: str, python: str, model: str, threads: int, context: int) -> None:
        self.side, self.python, self.context = side, python, context
        self.hello = {"version": "1.2", "vocab_size": 1000 if side == "edgellm" else 900}
        self.num_asked: dict[str, int] = {}

    def ask(self, do: str, **options: Any) -> float:
        FakeWorker.log.append((self.side, do, options))
        self.num_asked[do] = self.num_asked.get(do, 0) + 1
        if do == "bandwidth":
            return 20e9
        if do == "bytes_per_token":
            return 100e6
        tokens = options["tokens"] if do == "decode" else len(options["ids"]) - options["depth"]
        seconds = tokens / (100 if self.side == "edgellm" else 50)
        return seconds * (2 if self.num_asked[do] - (do == "decode") == 2 else 1)

    def close(self) -> None:
        FakeWorker.log.append((self.side, "close", {}))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeWorker]:
    FakeWorker.log = []
    monkeypatch.setattr(compare_peers, "Worker", FakeWorker)
    monkeypatch.setattr("edgellm.hub.resolve", lambda name: f"/models/{name}")
    return FakeWorker


def test_figures_table_and_json(fake: type[FakeWorker], capsys: pytest.CaptureFixture[str]) -> None:
    assert compare_peers.main(["one", "-r", "3", "-n", "50", "-p", "200"]) == 0
    text, last = capsys.readouterr().out.rstrip().rsplit("\n", 1)
    assert "one: 2 threads, 3 rounds, depth 0\n" in text
    assert "decode 50" in text and "100.0 [50.0 .. 100.0]" in text and "50.0 [25.0 .. 50.0]" in text
    assert "our decode uses 50% of 20.0 GB/s" in text
    shown = json.loads(last)
    assert (shown["threads"], shown["rounds"], shown["busy"]) == (2, 3, False)
    (result,) = shown["results"]
    assert (result["model"], result["edgellm"], result["llama.cpp"]) == ("one", "1.2", "1.2")
    assert (result["decode_tps"], result["peer_decode_tps"], result["decode_ratio"]) == (100, 50, 2)
    assert (result["prefill_tps"], result["prefill_ratio"], result["prefill_paired_ratio"]) == (100, 2, 2)
    assert result["bandwidth_share"] == 0.5


@pytest.mark.parametrize("section", ["peers", "peers-busy", "peers-deep"])
def test_the_page_gets_a_table(
    fake: type[FakeWorker], tmp_path: Path, section: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare_peers, "busy_process", lambda wanted: contextlib.nullcontext())
    page = tmp_path / "page.md"
    options = {"peers": [], "peers-busy": ["--busy"], "peers-deep": ["-d", "9"]}[section]
    assert compare_peers.main(["one", "two", "-r", "3", "-n", "50", "--markdown", str(page), *options]) == 0
    text = page.read_text()
    assert text.startswith(f"<!-- begin {section} -->") and "llama-cpp-python 1.2: decode of 50" in text
    assert "| one | 100.0 | 50.0 | 2.00 | 0.50 | 100.0 | 50.0 | 2.00 |" in text and "| two |" in text
    page.write_text("no markers")
    assert compare_peers.main(["one", "-r", "1", "--markdown", str(page), *options]) == 2


def test_ratios_of_medians_and_of_pairs_may_differ() -> None:
    results = {"decode": [[10.0, 40.0, 60.0], [10.0, 20.0, 10.0]], "prefill": [[1.0], [1.0]], "bandwidth": [[1e9] * 3]}
    summary = compare_peers.summarize(results, 1e7)
    assert (summary["decode_ratio"], summary["decode_paired_ratio"]) == (4.0, 2.0)
    assert (summary["decode_tps_min"], summary["decode_tps_max"], summary["bandwidth_share"]) == (10, 60, 0.4)


def test_sides_take_turns_and_get_the_same_ids(fake: type[FakeWorker]) -> None:
    assert compare_peers.main(["one", "-r", "2", "-d", "7", "-p", "5", "-n", "3"]) == 0
    decodes = [(side, options) for side, do, options in fake.log if do == "decode"][2:]
    assert [side for side, _ in decodes] == ["edgellm", "llama.cpp", "llama.cpp", "edgellm"]
    prefills = [options for _, do, options in fake.log if do == "prefill"]
    assert prefills[0] == prefills[1] and prefills[2] == prefills[3] and prefills[0] != prefills[2]
    start = decodes[0][1]["ids"]
    assert all(options["ids"] == start for _, options in decodes), "computed once, then kept"
    assert all(options["ids"][:7] == start for options in prefills)
    assert all(len(options["ids"]) == 7 for _, options in decodes)
    assert all((len(options["ids"]), options["depth"]) == (12, 7) for options in prefills)
    assert max(max(options["ids"]) for options in prefills) < 900, "ids that both vocabularies have"
    assert [entry[:2] for entry in fake.log[-2:]] == [("llama.cpp", "close"), ("edgellm", "close")]


def test_the_peer_may_live_elsewhere(fake: type[FakeWorker], monkeypatch: pytest.MonkeyPatch) -> None:
    pythons = []
    make = fake.__init__

    def note(self: FakeWorker, side: str, python: str, *rest: Any) -> None:
        pythons.append((side, python))
        make(self, side, python, *rest)

    monkeypatch.setattr(fake, "__init__", note)
    assert compare_peers.main(["one", "-r", "1", "--peer-python", "/other/python"]) == 0
    assert pythons == [("edgellm", sys.executable), ("llama.cpp", "/other/python")]


@pytest.mark.parametrize("option", ["-t0", "-p0", "-n0", "-r0", "-d-1"])
def test_senseless_numbers_are_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        compare_peers.main([option])
    assert done.value.code == 2 and "must be at least" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a shell script")
def test_a_missing_peer_is_a_clear_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = io.StringIO()
    compare_worker.serve(lambda: __import__("no_such_llama_cpp"), io.StringIO(), said)
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho {shlex.quote(said.getvalue().strip())}\n")
    python.chmod(0o755)
    model = write_tiny(tmp_path / "m.gguf")
    assert compare_peers.main([str(model), "-p", "9", "-n", "9", "--peer-python", str(python)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "no_such_llama_cpp is not installed" in err and "--peer-python" in err and err.count("\n") == 1


def test_a_python_that_is_not_there() -> None:
    with pytest.raises(compare_peers.WorkerError, match="cannot be started"):
        compare_peers.Worker("llama.cpp", "/no/such/python", "m.gguf", 1, 16)


def test_a_busy_process_lives_as_long_as_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    popen = compare_peers.subprocess.Popen
    monkeypatch.setattr(
        compare_peers.subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[-1]
    )
    with compare_peers.busy_process(False):
        assert not started
    with pytest.raises(KeyError), compare_peers.busy_process(True):
        assert started[0].poll() is None
        raise KeyError
    assert started[0].poll() is not None


class FakeSide:
    version, vocab_size = "9", 10

    def decode(self, ids: list[int], tokens: int) -> float:
        return len(ids) + tokens / 100

    def prefill(self, ids: list[int], depth: int) -> float:
        return len(ids) - depth

    def write_logits(self, ids: list[int], path: str) -> None:
        Path(path).write_text(str(ids))

    def bytes_per_token(self, depth: int) -> float:
        return 5.0 + depth

    def bandwidth(self) -> float:
        raise ValueError("no reading here")


def test_a_worker_answers_line_by_line() -> None:
    requests = [
        {"do": "decode", "ids": [1, 2], "tokens": 50},
        {"do": "prefill", "ids": [1, 2, 3], "depth": 1},
        {"do": "bytes_per_token", "depth": 2},
        {"do": "bandwidth"},
    ]
    answers = io.StringIO()
    compare_worker.serve(FakeSide, io.StringIO("".join(json.dumps(r) + "\n" for r in requests)), answers)
    hello, *rest = map(json.loads, answers.getvalue().splitlines())
    assert hello == {"version": "9", "vocab_size": 10}
    assert rest == [{"value": 2.5}, {"value": 2}, {"value": 7.0}, {"error": "ValueError: no reading here"}]


def test_our_side_on_a_tiny_model(tmp_path: Path) -> None:
    worker = compare_peers.Worker("edgellm", sys.executable, os.fspath(write_tiny(tmp_path / "m.gguf")), 1, 64)
    try:
        assert worker.hello["vocab_size"] == 128
        assert worker.ask("decode", ids=[5], tokens=8) > 0
        assert worker.ask("prefill", ids=[5] * 20, depth=0) > 0
        path = tmp_path / "logits"
        worker.ask("write_logits", ids=[5, 6, 7], path=os.fspath(path))
        assert np.isfinite(np.fromfile(path, np.float32).reshape(3, 128)).all()
        assert worker.ask("bytes_per_token", depth=10) > worker.ask("bytes_per_token", depth=0) > 0
    finally:
        worker.close()


@pytest.mark.peer
@pytest.mark.model
def test_both_sides_choose_the_same_ids(smollm2_path: Path, tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    ours = compare_worker.EdgeLLM(os.fspath(smollm2_path), 2, 64)
    theirs = compare_worker.LlamaCpp(os.fspath(smollm2_path), 2, 64)
    assert ours.vocab_size == theirs.vocab_size
    ids = ours._llm.tokenize("The capital of France is")
    theirs._hold([])
    theirs._feed(ids)
    assert [theirs._best()] == ours._generate(ids, 1).token_ids
    assert theirs.decode(ids, 4) > 0 and theirs.prefill(ids, 2) > 0
    assert theirs._held == ids  # the first two were kept, what decode had put behind them was cut
    theirs.write_logits(ids, os.fspath(tmp_path / "logits"))
    rows = np.fromfile(tmp_path / "logits", np.float32).reshape(len(ids), -1)
    assert rows[-1].argmax() == ours._generate(ids, 1).token_ids[0]
