"""`edgellm pack`: writes, lists and removes packed files; says what it does in lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_models import write_tiny

from edgellm import packing
from edgellm.cli import main


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(packing, "folder", lambda: tmp_path / "packed")
    return tmp_path / "packed"


def test_pack_list_remove(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write_tiny(tmp_path / "m.gguf")
    assert main(["pack", "--list"]) == 0
    assert "no packed files in" in capsys.readouterr().out
    assert main(["pack", str(model), "-t", "2"]) == 0
    written = Path(capsys.readouterr().out.strip())
    assert written.parent == folder and written.is_file()
    assert main(["pack", "--list"]) == 0
    assert capsys.readouterr().out.split()[-1] == str(model)
    write_tiny(model, seed=1)
    assert main(["pack", "--list"]) == 0
    assert "(not used: the model has changed since)" in capsys.readouterr().out
    assert main(["pack", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(i["path"], i["model"]) for i in listed] == [(str(written), str(model))]
    assert main(["pack", str(model), "--remove"]) == 0
    assert f"removed {written}" in capsys.readouterr().err and not written.exists()
    assert main(["pack", str(model), "--remove"]) == 0
    assert "no packed file" in capsys.readouterr().err


def test_output_and_json(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, output = write_tiny(tmp_path / "m.gguf"), tmp_path / "x.packed"
    assert main(["pack", str(model), "-o", str(output), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"path": str(output), "nbytes": output.stat().st_size}
    assert not folder.exists()
    assert main(["run", str(model), "hello", "--raw", "-n", "2", "--weights", str(output)]) == 0
    said = capsys.readouterr().err.splitlines()
    assert not [line for line in said if "compile the kernels" not in line]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "MODEL is missing"),
        (["MODEL", "-o", "x.bin"], "--output must end in .packed, not 'x.bin'"),
        (["MODEL", "-t", "0"], "--threads must be at least 1, not 0"),
        (["nothing.gguf"], "nothing.gguf"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(write_tiny(tmp_path / "m.gguf"))
    assert main(["pack", *(model if a == "MODEL" else a for a in arguments)]) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1


@pytest.mark.filterwarnings("default")
def test_an_unused_one_is_one_line_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write_tiny(tmp_path / "m.gguf")
    assert main(["pack", str(model)]) == 0
    write_tiny(model, seed=1)
    capsys.readouterr()
    assert main(["run", str(model), "hello", "--raw", "-n", "2"]) == 0
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "is not used: the model has changed since" in err
