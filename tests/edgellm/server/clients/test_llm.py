"""simonw's llm, by its Python interface and its command: the server is described in its extra-openai-models.yaml."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import openai
import pydantic
import pytest
from asked_of_clients import PARAMETERS, SCHEMA, WEATHER, WEATHER_TOLD, letter_of

pytestmark = [
    pytest.mark.clients,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # it leaves its connections to the garbage collector
]
MODELS = """\
- model_id: {name}
  model_name: {name}
  api_base: "{address}/v1"
  supports_schema: true
  supports_tools: true
"""


@pytest.fixture
def folder(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user of llm."""
    models = (MODELS.format(name=name, address=address) for name in ("tiny", "caller", "other"))
    (tmp_path / "extra-openai-models.yaml").write_text("".join(models))
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    return tmp_path


@pytest.fixture
def llm(folder: Path) -> Any:
    return pytest.importorskip("llm", reason="llm is missing (pip install -e '.[clients]')")


CHOICE = {"max_tokens": 12, "seed": 21, "temperature": 1.0}


def test_a_prompt_is_answered_the_same_streamed_or_not(llm: Any) -> None:
    model = llm.get_model("tiny")
    whole = model.prompt("Hi", stream=False, **CHOICE).text()
    pieces = list(model.prompt("Hi", stream=True, **CHOICE))
    assert "".join(pieces) == whole != "" and len(pieces) > 1
    stopped = model.prompt("Hi", stream=False, **CHOICE, stop=letter_of(whole)).text()
    assert stopped == whole[: whole.index(letter_of(whole))]
    assert model.prompt("Hi", system="Be brief.", stream=False, **CHOICE).text() != whole


def test_a_conversation_goes_on(llm: Any) -> None:
    talk = llm.get_model("tiny").conversation()
    talk.prompt("Hi", **CHOICE).text()
    second = talk.prompt("and", **CHOICE)
    alone = llm.get_model("tiny").prompt("and", **CHOICE)
    assert second.usage().input > alone.usage().input > 0


class Animal(pydantic.BaseModel):
    """A form as programs write it."""

    tame: bool
    legs: int = pydantic.Field(ge=0, le=9)


def test_a_form_is_kept_to(llm: Any) -> None:
    asked = CHOICE | {"max_tokens": 200}
    Animal.model_validate_json(llm.get_model("tiny").prompt("Hi", schema=Animal, **asked).text())
    jsonschema.validate(json.loads(llm.get_model("tiny").prompt("Hi", schema=SCHEMA, **asked).text()), SCHEMA)


def test_a_call_and_its_result(llm: Any) -> None:
    asked = []

    def get_weather(city: str) -> str:
        """The weather of a city."""
        asked.append(city)
        return "21 degrees"

    tool = llm.Tool("get_weather", "The weather of a city.", PARAMETERS, get_weather)
    for stream in (False, True):
        chain = llm.get_model("caller").chain(WEATHER[0]["content"], tools=[tool], stream=stream)
        assert chain.text() == WEATHER_TOLD
    assert asked == ["Paris", "Paris"]


def test_errors_are_told(llm: Any) -> None:
    for name, text, kind, said in (
        ("other", "Hi", openai.NotFoundError, "'other'"),
        ("tiny", "word " * 1200, openai.BadRequestError, "1024"),
    ):
        with pytest.raises(kind, match=said):
            llm.get_model(name).prompt(text).text()


def test_the_command(llm: Any) -> None:
    from click.testing import CliRunner
    from llm.cli import cli

    options = [part for key, value in CHOICE.items() for part in ("-o", key, str(value))]
    told = CliRunner().invoke(cli, ["Hi", "-m", "tiny", "--no-log", *options])
    assert told.exit_code == 0 and told.stdout.strip() == llm.get_model("tiny").prompt("Hi", **CHOICE).text().strip()
    wrong = CliRunner().invoke(cli, ["Hi", "-m", "other", "--no-log"])
    assert wrong.exit_code == 1 and "no model is called 'other'" in wrong.stderr


def test_the_command_calls_a_function(llm: Any) -> None:
    function = 'def get_weather(city: str) -> str:\n    "The weather of a city."\n    return "21 degrees"'
    command = [sys.executable, "-m", "llm", WEATHER[0]["content"], "-m", "caller", "--functions", function]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert told.returncode == 0 and told.stdout.strip() == WEATHER_TOLD, told.stderr
