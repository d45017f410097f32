"""`edgellm pull` and `edgellm list`: what the hub says, on standard output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgellm import hub
from edgellm.cli import main
from edgellm.errors import DownloadError
from edgellm.hub import LocalModel


def test_pull_shows_progress_and_prints_the_path(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def pull(name: str, progress: Any) -> Path:
        progress(f"download {name}", 0, 98_000_000)
        return Path("models") / f"{name}.gguf"

    monkeypatch.setattr(hub, "pull", pull)
    assert main(["pull", "smollm2"]) == 0
    expected = f"{Path('models') / 'smollm2.gguf'}\n", "edgellm: download smollm2 (98 MB)\n"
    assert capsys.readouterr() == expected


def test_pull_that_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def pull(name: str, progress: Any) -> Path:
        raise DownloadError("no network")

    monkeypatch.setattr(hub, "pull", pull)
    assert main(["pull", "smollm2"]) == 2
    assert capsys.readouterr() == ("", "edgellm: no network\n")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[LocalModel]:
    models: list[LocalModel] = []
    monkeypatch.setattr(hub, "list_local", lambda: models)
    return models


def test_list(here: list[LocalModel], capsys: pytest.CaptureFixture[str]) -> None:
    here += [LocalModel("smollm2", Path("a.gguf"), 98_362_432), LocalModel("o/r:f", Path("b.gguf"), 2_000_000_000)]
    assert main(["list"]) == 0
    first, second, rest = capsys.readouterr().out.splitlines()
    assert first.split() == ["smollm2", "98", "MB", "a.gguf"]
    assert second.split() == ["o/r:f", "2.0", "GB", "b.gguf"]
    assert rest == "not fetched yet: gemma3-270m (edgellm pull NAME)"


def test_list_of_nothing_says_where_and_how(
    here: list[LocalModel], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EDGELLM_HOME", str(tmp_path))
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert f"no models in {tmp_path} yet" in out and "gemma3-270m, smollm2 (edgellm pull NAME)" in out


def test_list_as_json(here: list[LocalModel], capsys: pytest.CaptureFixture[str]) -> None:
    here.append(LocalModel("smollm2", Path("a.gguf"), 7))
    assert main(["list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"name": "smollm2", "path": "a.gguf", "nbytes": 7}]
