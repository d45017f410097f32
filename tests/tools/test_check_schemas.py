"""The check of structured output, on a suite of one file and a tiny model: right, refused, and wrong where made to be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import check_schemas
import jsonschema
import pytest
from random_schemas import bound_tokens, make_schema
from tiny_models import write_tiny

CASES = [
    {
        "description": "two members",
        "schema": {"properties": {"a": {"type": "integer"}, "b": {}}, "required": ["b"], "type": "object"},
        "tests": [
            {"description": "in order", "data": {"a": 1, "b": 2}, "valid": True},
            {"description": "in another order", "data": {"b": [1.0], "a": 1.0}, "valid": True},
            {"description": "one missing", "data": {"a": 1}, "valid": False},
        ],
    },
    {"description": "not", "schema": {"not": {}}, "tests": [{"description": "x", "data": 1, "valid": False}]},
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny") / "tiny.gguf", formats="Q8_0", vocab=400, context=4096)


def run(model: Path, suite: Path, cases: Any, count: int, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    suite.mkdir(exist_ok=True)
    (suite / "cases.json").write_text(json.dumps(cases))
    arguments = ["--model", str(model), "--suite", str(suite), "--random", str(count), "--threads", "1"]
    code = check_schemas.main(arguments)
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_sound_run(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = run(model, tmp_path / "suite", CASES, 6, capsys)
    expected = {"schemas": 2, "refused": 1, "accepted": 2, "reordered": 1, "rejected": 1, "faults": 0}
    assert {name: found["suite"][name] for name in expected} == expected
    assert "not" in found["files"][0]["reasons"][0]
    assert found["random"]["finished"] == 6 and found["random"]["invalid"] == 0 and code == 0


def test_a_wrong_verdict_is_a_fault(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = json.loads(json.dumps(CASES[:1]))
    cases[0]["tests"][0]["valid"] = False
    cases[0]["tests"][2]["valid"] = True
    code, found = run(model, tmp_path / "suite", cases, 0, capsys)
    assert code == 1 and found["suite"]["faults"] == 2
    assert {"an invalid instance is accepted", "a valid instance is refused"} == {
        fault.split(": ")[2] for fault in found["files"][0]["faults"]
    }


def test_random_schemas_are_sound_the_same_each_time_and_bounded() -> None:
    schemas = [make_schema(seed) for seed in range(200)]
    for schema in schemas:
        jsonschema.Draft202012Validator.check_schema(schema)
    assert schemas == [make_schema(seed) for seed in range(200)]
    assert len({json.dumps(schema) for schema in schemas}) > 190
    assert max(map(bound_tokens, schemas)) < 4000
