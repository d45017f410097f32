"""The frame around every command: help, errors, exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from edgellm.cli import main
from edgellm.cli.dispatch import COMMANDS
from edgellm.errors import ModelFileError
from edgellm.version import __version__


def run_python(code: str, *args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


CALL_MAIN = "import sys; from edgellm.cli import main; sys.exit(main())"


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for name, line in COMMANDS.items():
        assert f"  {name}" in shown and line in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help_with_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: edgellm {name}")
    assert f"  edgellm {name}" in shown.split("examples:")[1]


def test_help_imports_nothing_heavy_and_is_quick() -> None:
    heavy = "('numpy', 'numba', 'rich', 'tokenizers', 'huggingface_hub', 'jinja2', 'edgellm.config', 'edgellm.hub')"
    code = (
        f"import sys; from edgellm.cli import main; main(['--help']); print(*[m for m in {heavy} if m in sys.modules])"
    )
    started = time.monotonic()
    done = run_python(code)
    assert done.stdout.splitlines()[-1] == ""
    assert time.monotonic() - started < 5  # 0.07 s on an idle machine


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"edgellm {__version__}\n"


def test_no_command_shows_the_help_as_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "commands:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chta"], "no command is called 'chta': did you mean 'chat'?"),
        (["xyzzy"], "there are chat, run,"),
        (["run", "hi", "--nope"], "unrecognized arguments: --nope (edgellm run --help explains)"),
        (["--nope", "run"], "unrecognized arguments: --nope"),
        (["run", "hi", "-n", "many"], "argument -n/--max-tokens"),
        (["run", "hi", "-n", "0"], "--max-tokens must be at least 1, not 0"),
        (["run", "hi", "--temperature", "nan"], "--temperature must be a number"),
        (["run", "hi", "--top-p", "1.5"], "--top-p must be from 0 to 1, not 1.5"),
        (["run", "hi", "--stop", ""], "--stop must hold non-empty texts"),
        (["run", "hi", "--threads", "0"], "--threads must be from 1 to 64, not 0"),
        (["chat", "--weights", "wet"], "--weights must be one of auto, packed, raw or a .packed file, not 'wet'"),
        (["run", "hi", "--cache-type-k", "q4_0"], "not 'q4_0': 4 bits are called q4_h here"),
        (["chat", "--cache-memory", "2XB"], "'2XB' is not a size; write it as 500MB, 2GB, 1.5GiB or a number of bytes"),
        (["chat", "--window", "0"], "--window must be at least 1, not 0"),
        (["chat", "--window", "9", "--max-context", "9"], "--window 9 leaves the context without an end"),
        (["chat", "--sinks", "9"], "--sinks 9 has no meaning where nothing is dropped"),
        (["bench", "--on-full", "window"], "unrecognized arguments: --on-full"),
        (["chat", "a", "b"], "unrecognized arguments: b"),
        (["bench", "--depth", "-1"], "--depth must be at least 0, not -1"),
        (["bench", "-r", "0"], "--repeats must be at least 1"),
        (["run", "hi", "--max-tok", "3"], "unrecognized arguments: --max-tok 3"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, fake_llm: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("edgellm: ") and err.count("\n") == 1
    assert message in err
    assert fake_llm.loads == []  # refused before anything is loaded


@pytest.mark.parametrize("arguments", [["--debug", "run", "hi"], ["run", "hi", "--debug"], ["run", "--debug", "hi"]])
def test_debug_adds_a_traceback(arguments: list[str], fake_llm: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fake_llm.script = [[ModelFileError("bad file")]]
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("Traceback") and err.endswith("edgellm: bad file\n")


def test_debug_after_a_double_dash_is_text(fake_llm: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fake_llm.script = [[ModelFileError("bad file")]]
    assert main(["run", "--", "--debug"]) == 2
    assert capsys.readouterr().err == "edgellm: bad file\n"
    assert fake_llm.prompts[0][0]["content"] == "--debug"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ModelFileError("two\nlines\x1b[31m"), "edgellm: two lines\ufffd[31m\n"),
        (MemoryError(), "edgellm: not enough memory; a smaller model or --max-context needs less\n"),
        (PermissionError(13, "Permission denied", "x.gguf"), "edgellm: Permission denied: x.gguf\n"),
        (KeyError("k"), "edgellm: unexpected KeyError: 'k' (a bug worth reporting; --debug shows the traceback)\n"),
    ],
)
def test_any_error_is_one_harmless_line(
    error: Exception, line: str, fake_llm: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_llm.script = [[error]]
    assert main(["run", "hi"]) == 2
    assert capsys.readouterr().err == line
    assert fake_llm.is_closed


def test_interrupt_is_130_and_quiet(fake_llm: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fake_llm.script = [["One", KeyboardInterrupt()]]
    assert main(["run", "hi"]) == 130
    assert capsys.readouterr() == ("One\n", "")
    assert fake_llm.streams[0].is_closed and fake_llm.is_closed


def test_process_reports_errors_on_stderr_with_code_2() -> None:
    done = run_python(CALL_MAIN, "inspect", "no-such-file.gguf")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("edgellm: ") and done.stderr.count("\n") == 1


@pytest.mark.skipif(os.name == "nt", reason="POSIX pipes")
def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-c", CALL_MAIN, "list"]
    here = {**os.environ, "EDGELLM_HOME": str(tmp_path), "HF_HOME": str(tmp_path)}
    done = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, env=here)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_warning_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def warn(_: list[str]) -> int:
        warnings.warn("the cache cannot be written", RuntimeWarning, stacklevel=1)
        return 0

    monkeypatch.setattr("edgellm.cli.dispatch._dispatch", warn)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main(["list"]) == 0
    assert capsys.readouterr().err == "edgellm: the cache cannot be written\n"
