"""--lora on the command line: applied, scaled, refused in a line."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest
import reference_models as stored

from edgellm.cli import main


@pytest.fixture
def model(tmp_path: Path) -> Path:
    packed = (stored.DATA.parent / "lora" / "llama.gguf.xz").read_bytes()
    (tmp_path / "style.gguf").write_bytes(lzma.decompress(packed))
    return stored.unpack("llama", tmp_path)


def answer(model: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    words = ["run", "--raw", str(model), "the and is", "-n", "12", "--temperature", "0", "--ignore-eos", *options]
    assert main(words) == 0
    return capsys.readouterr().out


def test_an_adapter_changes_the_answer_as_much_as_its_scale_says(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    adapter = model.parent / "style.gguf"
    plain, styled = answer(model, capsys), answer(model, capsys, "--lora", str(adapter))
    assert plain != styled == answer(model, capsys, "--lora", f"{adapter}:1.0")
    assert plain == answer(model, capsys, "--lora", f"{adapter}:0")


def test_what_is_no_adapter_is_refused_in_a_line(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for wrong, said in (("/no/such.gguf", "does not exist"), (str(model), "adapter")):
        assert main(["run", "--raw", str(model), "the", "--lora", wrong]) == 2
        error = capsys.readouterr().err
        assert error.startswith("edgellm: ") and said in error and error.count("\n") == 1
