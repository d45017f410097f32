"""Options for an answer's form: how they arrive, and what is refused before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgellm.cli import main
from edgellm.config import SamplingParams

SCHEMA = '{"type": "object"}'


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (["--json-object"], "json", True),
        (["-j", SCHEMA], "schema", SCHEMA),
        (["--json-schema", SCHEMA], "schema", SCHEMA),
        (["--regex", "a+"], "regex", "a+"),
        (["--grammar", 'root ::= "a"'], "grammar", 'root ::= "a"'),
        (["--choice", "yes", "--choice", "no"], "choices", ("yes", "no")),
    ],
)
def test_options_arrive(fake_llm: Any, words: list[str], field: str, value: object) -> None:
    assert main(["run", "Hi", *words]) == 0
    assert fake_llm.params == [SamplingParams(**{field: value})]


def test_json_output_asks_for_no_form(fake_llm: Any) -> None:
    assert main(["run", "Hi", "--json"]) == 0
    assert fake_llm.params == [SamplingParams()]


@pytest.mark.parametrize(
    ("option", "field", "text"),
    [("--json-schema-file", "schema", SCHEMA), ("--grammar-file", "grammar", 'root ::= "\u00e9"')],
)
def test_files_arrive(fake_llm: Any, tmp_path: Path, option: str, field: str, text: str) -> None:
    path = tmp_path / "form"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert main(["run", "Hi", option, str(path)]) == 0
    assert getattr(fake_llm.params[0], field) == text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--json-object", "--regex", "a"], "cannot be combined"),
        (["--regex", "(?=a)b"], "look-ahead and look-behind, is not supported"),
        (["--regex", "(a"], "regex cannot be used: unclosed group"),
        (["-j", '{"not": {}}'], '["not"]'),
        (["--grammar", "root ::= b"], "no rule 'b'"),
        (["--regex", ""], "--regex must be a non-empty text"),
        (["--choice", ""], "--choices must hold non-empty texts"),
        (["--grammar", "a", "--grammar-file", "b"], "give --grammar or --grammar-file, not both"),
        (["--grammar-file", "{folder}/nothing"], "cannot be read: No such file"),
        (["--json-schema-file", "{folder}/bytes"], "not valid UTF-8 at byte 0"),
        (["--json-schema-file", "{folder}/large"], "larger than 1 MiB"),
    ],
)
def test_mistakes_take_one_line(
    fake_llm: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "large").write_bytes(b" " * ((1 << 20) + 1))
    assert main(["run", "Hi", *(word.replace("{folder}", str(tmp_path)) for word in words)]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1 and not fake_llm.loads
