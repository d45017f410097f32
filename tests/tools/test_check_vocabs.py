"""The comparison with llama.cpp's vectors, on a made-up vocabulary."""

from __future__ import annotations

import json
from pathlib import Path

import check_vocabs
import gguf_bytes as gb
import pytest
import tiny_vocabulary

from edgellm import Tokenizer

TEXTS = ["hello the", "", "\n", "\u00e9 x"]


def write(folder: Path, name: str, model: str = "gpt2") -> Path:
    metadata = tiny_vocabulary.make_bpe(512) | {"tokenizer.ggml.model": model}
    pairs = [gb.text(k, v) for k, v in metadata.items() if isinstance(v, str)]
    pairs += [gb.array(k, gb.STRING, metadata[k]) for k in ("tokenizer.ggml.tokens", "tokenizer.ggml.merges")]
    pairs += [gb.array("tokenizer.ggml.token_type", gb.I32, metadata["tokenizer.ggml.token_type"])]
    path = folder / f"ggml-vocab-{name}.gguf"
    path.write_bytes(gb.whole(pairs))
    return path


def run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, dict[str, int]]:
    monkeypatch.setattr("sys.argv", ["check_vocabs.py", "--folder", str(folder)])
    code = check_vocabs.main()
    summary: dict[str, int] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return code, summary


def test_equal_and_different(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "a")
    tokenizer = Tokenizer.from_gguf(path)
    lines = [" ".join(map(str, tokenizer.encode(text))) for text in TEXTS]
    path.with_name(path.name + ".inp").write_bytes((check_vocabs.SEPARATOR.join([*TEXTS, ""])).encode())
    out = path.with_name(path.name + ".out")
    out.write_text("\n".join([*lines, ""]))
    write(tmp_path, "other-kind", "t5")
    write(tmp_path, "no-vectors")
    code, summary = run(tmp_path, monkeypatch, capsys)
    assert (code, summary["texts"], summary["different"]) == (0, 4, 0)
    out.write_text("\n".join(["7 7", *lines[1:], ""]))
    code, summary = run(tmp_path, monkeypatch, capsys)
    assert (code, summary["different"]) == (1, 1)


def test_nothing_compared_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, monkeypatch, capsys)[0] == 1
