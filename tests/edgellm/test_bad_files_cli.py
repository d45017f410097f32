"""Files that are no models, through the commands that a person types. Cases O20 and O27.

Each is refused with exit code 2, one line on standard error that names the fault, in under a second and 100 MB.
"""

from __future__ import annotations

import re
import struct
import time
import tracemalloc
from pathlib import Path

import gguf_bytes as gb
import pytest
from tiny_models import write_tiny

from edgellm.cli import main

HUGE = 1 << 63
WHOLE = gb.small_model()
DATA = len(WHOLE) - 96  # where the data starts
SOUND = WHOLE[: DATA + 82]  # without the padding behind the last tensor
TABLE = SOUND.index(gb.tensor("a", (4, 2), 0, 0))  # where the tensor table starts
NESTED = struct.pack("<IQ", gb.ARRAY, 1) * 5000 + struct.pack("<IQ", gb.U8, 0)

CUT = "truncated"
NOT_GGUF = "not a GGUF file"

# O20: what an interrupted download leaves, and what is saved by mistake.
PARTS = {
    "cut at 3 bytes": (SOUND[:3], "truncated|not a GGUF file"),
    "cut in the header": (SOUND[:20], CUT),
    "cut in the metadata": (SOUND[:60], CUT),
    "cut in the tensor table": (SOUND[: TABLE + 10], CUT),
    "cut where the data starts": (SOUND[:DATA], "96 bytes|truncated"),
    "cut at half": (SOUND[: DATA + 48], "48 bytes|truncated"),
    "cut at the last byte": (SOUND[:-1], "1 byte|truncated"),
    "a web page": (b"<!DOCTYPE html><html><body>Please log in</body></html>" * 9, NOT_GGUF),
    "a text": (("Grüße\n" * 20).encode(), NOT_GGUF),
    "nothing": (b"", NOT_GGUF),
    "a tensor far outside": (gb.whole([], [gb.tensor("w", (4, 2), 0, 1 << 50)], bytes(32)), CUT),
}
# O27: files of a few bytes that declare huge things, and things that are not there.
LIES = {
    "kvcount": (gb.head(0, HUGE), "metadata|keys|pairs"),
    "tcount": (gb.head(HUGE, 0), "tensors"),
    "keylen": (gb.head(0, 1) + struct.pack("<Q", 1 << 40) + bytes(64), "key 0"),
    "strlen": (gb.whole([gb.pair("name", gb.STRING, struct.pack("<Q", HUGE) + b"x")]), "name"),
    "arrlen": (gb.whole([gb.pair("list", gb.ARRAY, struct.pack("<IQ", gb.U8, HUGE))]), "list"),
    "nested": (gb.whole([gb.pair("deep", gb.ARRAY, NESTED)]), "deep.*array of arrays"),
    "ndims9": (gb.whole([], [gb.tensor("w", (1,) * 9)], bytes(32)), "9 dimensions"),
    "type99": (gb.whole([], [gb.tensor("w", (4, 2), 99)], bytes(32)), "99"),
    "v99": (gb.head(version=99), "version 99|99"),
}
BAD = PARTS | LIES


def refusal(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that must refuse, and return its one line."""
    tracemalloc.start()
    try:
        start = time.perf_counter()
        code = main(arguments)
        seconds = time.perf_counter() - start
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith("edgellm: ") and err.count("\n") == 1 and err.endswith("\n"), err
    assert "Traceback" not in err and len(err) < 500
    assert seconds < 1 and peak < 100e6
    return err


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("command", ["inspect", "run"])
def test_bad_files_are_refused_in_one_line(
    command: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], isolated_home: Path
) -> None:
    content, fault = BAD[name]
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    err = refusal([command, str(path), *(["Hi"] if command == "run" else [])], capsys)
    assert "bad.gguf" in err

    assert re.search(fault, err), err


def test_three_faults_three_messages(tmp_path: Path, capsys: pytest.CaptureFixture[str], isolated_home: Path) -> None:
    """O20: truncation, something else than GGUF, and a sound file of an unknown kind are told apart."""
    path = tmp_path / "m.gguf"
    said = []
    for content in (SOUND[:-1], b"<html>", gb.whole([gb.text("general.architecture", "unknownarch")])):
        path.write_bytes(content)
        said.append(refusal(["run", str(path), "Hi"], capsys))
    cut, page, unknown = said
    assert "truncated" in cut and "download it again" in cut and "not a GGUF" not in cut
    assert NOT_GGUF in page and "truncated" not in page
    assert "truncated" not in unknown and NOT_GGUF not in unknown


def test_an_unknown_architecture_is_named_and_so_is_what_is_supported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], isolated_home: Path
) -> None:
    path = write_tiny(tmp_path / "m.gguf", metadata={"general.architecture": "unknownarch"})
    err = refusal(["run", str(path), "Hi"], capsys)
    assert "unknownarch" in err and "docs/models.md" in err
    assert main(["inspect", str(path)]) == 0  # it is a sound file, and shown with the reason
    out = capsys.readouterr().out
    assert "cannot run it" in out and "unknownarch" in out


def test_an_unknown_format_is_named_and_so_is_what_is_supported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], isolated_home: Path
) -> None:
    path = write_tiny(tmp_path / "m.gguf", hidden=256, ffn=256, formats={"default": "Q8_K"})
    err = refusal(["run", str(path), "Hi"], capsys)
    assert "Q8_K" in err and "Q4_K" in err and "F16" in err


def test_a_missing_tensor_is_not_called_truncation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], isolated_home: Path
) -> None:
    path = write_tiny(tmp_path / "m.gguf", drop=["blk.1.ffn_up.weight"])
    err = refusal(["run", str(path), "Hi"], capsys)
    assert "blk.1.ffn_up.weight" in err and "truncated" not in err


def test_one_bad_file_does_not_break_a_listing(isolated_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = isolated_home / "models"
    folder.mkdir(parents=True)
    (folder / "smollm2.gguf").write_bytes(LIES["arrlen"][0])
    assert main(["list"]) == 0
    assert "not fetched yet: gemma3-270m, smollm2" in capsys.readouterr().out
