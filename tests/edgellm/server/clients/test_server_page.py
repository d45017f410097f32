"""What docs/server.md shows of other programs runs as it stands there, at another address and with a model that is there."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from asked_of_clients import WEATHER_TOLD

PAGE = Path(__file__).resolve().parents[4] / "docs" / "server.md"
Snippet = Callable[[str, str], str]


@pytest.fixture
def snippet(address: str) -> Snippet:
    """The example in a language that has a word in it."""
    examples = re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)

    def find(language: str, word: str) -> str:
        (found,) = (text for kind, text in examples if kind == language and word in text)
        assert "http://127.0.0.1:8080" in found and "smollm2" in found
        return str(found).replace("http://127.0.0.1:8080", address).replace("smollm2", "caller")

    return find


@pytest.mark.parametrize("word", ["from openai", "import ollama"])
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # an example may leave its connection to the garbage collector
def test_clients_for_python(snippet: Snippet, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(snippet("python", word), {})
    assert capsys.readouterr().out.strip() == WEATHER_TOLD


@pytest.mark.clients
@pytest.mark.filterwarnings("ignore")
def test_litellm(snippet: Snippet, litellm: object, capsys: pytest.CaptureFixture[str]) -> None:
    exec(snippet("python", "import litellm"), {})
    assert capsys.readouterr().out.strip() == WEATHER_TOLD


@pytest.mark.clients
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_langchain(snippet: Snippet, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("langchain_openai", reason="langchain-openai is missing (pip install -e '.[clients]')")
    names: dict[str, list[list[float]]] = {}
    exec(snippet("python", "from langchain_openai"), names)
    assert capsys.readouterr().out.strip() == WEATHER_TOLD and len(names["vectors"]) == 2


def test_javascript(snippet: Snippet, javascript: Path) -> None:
    (javascript / "page.mjs").write_text(snippet("javascript", "import OpenAI"), encoding="utf-8")
    told = subprocess.run(["node", "page.mjs"], cwd=javascript, capture_output=True, text=True, timeout=60)
    assert told.stdout.strip() == WEATHER_TOLD, told.stderr


@pytest.mark.clients
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_llm(snippet: Snippet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llm", reason="llm is missing (pip install -e '.[clients]')")
    from click.testing import CliRunner
    from llm.cli import cli

    (tmp_path / "extra-openai-models.yaml").write_text(snippet("yaml", "model_id"), encoding="utf-8")
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    (command,) = re.findall("`llm (-m local .*?)`", PAGE.read_text(encoding="utf-8"))
    told = CliRunner().invoke(cli, command.split())
    assert told.exit_code == 0 and told.stdout.strip() == WEATHER_TOLD, told.output
    where = CliRunner().invoke(cli, ["logs", "path"]).stdout.strip()
    assert Path(where).parent == tmp_path, "the page says so"
