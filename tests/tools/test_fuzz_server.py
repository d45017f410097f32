"""tools/fuzz_server.py: a few of each kind find nothing, and what is wrong is found."""

from __future__ import annotations

import json
from pathlib import Path

import evil_bodies
import fuzz_server
import pytest
from evil_bodies import Evil
from evil_bodies import evil_bodies as make_evil
from tiny_models import write_tiny


def test_a_few_of_each_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", vocab=300, context=1024)
    code = fuzz_server.main([str(path), "-n", "1", "--evil", "0.02"])
    text, last = capsys.readouterr().out.rstrip().rsplit("\n", 1)
    figures = json.loads(last)
    assert code == 0 and figures["faults"] == {}, text
    assert set(figures["counts"]) >= {f"POST {path}" for path in evil_bodies.VALID}
    if not figures["schemathesis"]:
        pytest.skip("schemathesis is not installed (pip install '.[fuzz]'): only the evil bodies were tried")
    assert "GET /v1/models" in figures["counts"]


@pytest.mark.parametrize(
    ("field", "status", "answer", "found"),
    [
        ("n", 200, {}, False),
        (None, 200, {}, True),
        ("n", 500, {"error": {"message": "x", "param": None}}, True),
        ("n", 0, {}, True),
        ("n", 400, {"detail": "x"}, True),
        ("n", 400, {"error": {"message": "n is 5", "param": "n", "code": None}}, False),
        ("n", 400, {"error": {"message": "n is 5", "param": "m", "code": None}}, True),
        ("n", 400, {"error": {"message": "wrong", "param": None, "code": None}}, True),
        ("n", 400, {"error": {"message": "the body is not JSON", "param": None, "code": None}}, False),
        ("n", 400, {"error": {"message": "n is\n5", "param": "n", "code": None}}, True),
    ],
)
def test_what_is_a_fault(field: str | None, status: int, answer: object, found: bool) -> None:
    evil = Evil("/v1/x", b"", field)
    assert (fuzz_server.find_fault(evil, status, json.dumps(answer).encode()) is not None) is found


def test_each_value_of_a_body_is_replaced_by_each_evil_one() -> None:
    bodies = [evil for evil in make_evil("/v1/embeddings", ("model",)) if evil.field == "input"]
    # the list, its text, its list of ids and the id in it
    assert len(bodies) == 4 * len(evil_bodies.VALUES)
    assert Evil("/v1/embeddings", b'{"input": ["the", [1e400]], "dimensions": 4}', "input") in bodies
