"""serve's options: vLLM's words, a YAML file, and what goes before what."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from edgellm.cli import main
from edgellm.cli.config_file import FILE_LIMIT
from edgellm.cli.dispatch import make_parser
from edgellm.cli.options import engine_config
from edgellm.cli.serve import check_files, name_models, server_settings
from edgellm.errors import OptionError
from edgellm.server.settings import ServerSettings


def read(*words: str) -> Namespace:
    parser, command = make_parser("serve")
    found: Namespace = command.read_words(parser, words)  # type: ignore[attr-defined]
    return found


def from_file(tmp_path: Path, text: str | bytes, *words: str) -> Namespace:
    path = tmp_path / "serve.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read("--config", str(path), *words)


def test_a_server_without_a_model_does_not_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.gguf").write_bytes(b"text")
    assert main(["serve", str(tmp_path / "m.gguf"), "--port", "0"]) == 2
    assert "not a GGUF file" in capsys.readouterr().err
    assert main(["serve", "smolm2", "--port", "0"]) == 2
    assert "did you mean 'smollm2'?" in capsys.readouterr().err
    assert main(["serve", str(tmp_path / "none.gguf"), "--port", "0"]) == 2
    assert "no file" in capsys.readouterr().err
    check_files(["smollm2", "owner/repo", "owner/repo:Q4_0"])  # those may come


def test_without_words_all_is_as_the_settings_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDGELLM_API_KEY", raising=False)
    args = read()
    assert server_settings(args) == ServerSettings() and args.models in ([], None)


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (["--max-model-len", "2048"], {"max_context": 2048}),
        (["--max-num-batched-tokens", "256"], {"prefill_chunk": 256}),
        (["--max-model-len", "9", "--max-context", "9"], {"max_context": 9}),
        (["--block-size", "64"], {}),
        (["--kv-cache-dtype", "auto"], {"cache_type_k": "i16", "cache_type_v": "i16"}),
        (["--kv-cache-dtype", "fp8"], {"cache_type_k": "e4m3", "cache_type_v": "e4m3"}),
        (["--kv-cache-dtype", "fp8_e5m2"], {"cache_type_k": "e5m2", "cache_type_v": "e5m2"}),
        (["--kv-cache-dtype", "Q8_0"], {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}),
        (["--no-enable-prefix-caching"], {"prefix_caching": False}),
        (["--enable-prefix-caching"], {"prefix_caching": True}),
        (["--no-prefix-caching", "--no-enable-prefix-caching"], {"prefix_caching": False}),
        (
            ["--speculative-config", '{"method": "ngram", "num_speculative_tokens": 5}'],
            {"spec": "ngram", "max_draft": 5},
        ),
        (["--speculative-config", '{"method": "ngram", "model": "ngram"}'], {"spec": "ngram", "max_draft": None}),
        (["--speculative-config", '{"model": "small.gguf"}'], {"spec": "draft", "draft_model": "small.gguf"}),
    ],
)
def test_vllms_words(words: list[str], fields: dict[str, Any]) -> None:
    config = engine_config(read(*words))
    assert {name: getattr(config, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--max-model-len", "9", "--max-context", "8"],
            "--max-model-len and --max-context say different things: 9 and 8",
        ),
        (["--max-num-batched-tokens", "9", "--prefill-chunk", "512"], "different things: 9 and 512"),
        (["--kv-cache-dtype", "fp8", "--cache-type-v", "f16"], "--kv-cache-dtype and --cache-type-v say"),
        (["--kv-cache-dtype", "int3"], "--kv-cache-dtype must be one of auto, fp8"),
        (["--no-prefix-caching", "--enable-prefix-caching"], "--enable-prefix-caching and --prefix-caching say"),
        (["--block-size", "16"], "--block-size must be 64, not 16"),
        (["--speculative-config", "{"], "--speculative-config is not JSON"),
        (["--speculative-config", "[" * 100_000], "--speculative-config is not JSON"),
        (["--speculative-config", "[]"], "must be an object"),
        (["--speculative-config", '{"method": "eagle"}'], "method must be one of ngram, draft_model, not 'eagle'"),
        (["--speculative-config", '{"method": "ngram", "k": 1}'], "has 'k'; known are method, model"),
        (["--speculative-config", '{"method": "ngram", "num_speculative_tokens": 99}'], "from 1 to 24, not 99"),
        (["--speculative-config", '{"method": "ngram", "num_speculative_tokens": true}'], "whole number"),
        (["--speculative-config", '{"method": "draft_model"}'], "model must name"),
        (["--speculative-config", '{"method": "ngram"}', "--spec", "off"], "--speculative-config and --spec say"),
    ],
)
def test_what_contradicts_itself_or_means_nothing(words: list[str], message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        read(*words)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_the_servers_own_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = server_settings(read("--max-body", "2MiB", "--max-nesting", "9", "--port", "0"))
    assert (settings.max_body, settings.max_nesting, settings.port) == (2 << 20, 9, 0)
    with pytest.raises(OptionError, match="--max-queue must be at least 1, not 0"):
        server_settings(read("--max-queue", "0"))


def test_a_file_says_the_same_and_the_command_line_goes_before_it(tmp_path: Path) -> None:
    text = """
# as vLLM has it
model: [one.gguf, "-two.gguf"]
served-model-name: a
max_num_seqs: 8
max-model-len: 4096
port: 9000
cors-origin:
  - http://a
  - http://b
enable-prefix-caching: off
precise: true
speculative-config: {method: ngram, num_speculative_tokens: 4}
"""
    args = from_file(tmp_path, text, "--port", "1234", "--max-context", "2048", "--cors-origin", "http://c")
    assert args.models == ["one.gguf", "-two.gguf"] and args.served_model_name == ["a"]
    assert (args.max_num_seqs, args.port, args.cors_origin) == (8, 1234, ["http://c"])
    config = engine_config(args)
    assert (config.max_context, config.prefix_caching, config.precise, config.max_draft) == (2048, False, True, 4)
    assert from_file(tmp_path, text, "other").models == ["other"]
    assert from_file(tmp_path, "").max_num_seqs == 4 and from_file(tmp_path, "# nothing\n").port == 8080


BOMB = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max-num-seq: 8", "there is no option max-num-seq; did you mean max-num-seqs?"),
        ("zzz: 8", "there is no option zzz$"),
        ("config: other.yaml", "there is no option config"),
        ("port: 1\nport: 2", "line 2: port is there twice"),
        ("port: [1, 2]", "port takes one value, not a list"),
        ("port: many", "--port"),
        ("port:", "port needs a value"),
        ("host: {a: 1}", "host takes one value, not an object"),
        ("host: []", "host needs a value"),
        ("precise: maybe", "precise must be true or false"),
        ("precise: [true]", "precise must be true or false"),
        ("max-model-len: 5\nmax-context: 6", "--max-model-len and --max-context say different things"),
        ("- port", "it must hold names and values"),
        ("just text", "it must hold names and values"),
        ("a: [", "it is not YAML: line"),
        ("a: 1\n---\nb: 2", "it is not YAML"),
        ("a: b: c", "it is not YAML: line 1"),
        ("host: [[x]]", "nested too deep"),
        ("host: [[[[x]]]]", "nested too deep"),
        ("host: " + "[" * 5000, "nested too deep|not YAML"),
        ("? [a]\n: b", "a key must be an option's name"),
        (BOMB, r"aliases \(\*name\) are not taken here"),
        ("x: &x {a: 1}\ny: {<<: [*x, *x]}", "aliases"),
        ("#" * (FILE_LIMIT + 1), "it is larger than 64 KiB"),
        (b"host: \xff", "it is not valid UTF-8 at byte 6"),
        (b"host: \x00", "it is not YAML"),
    ],
)
def test_a_file_that_is_wrong(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        from_file(tmp_path, text)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_a_file_constructs_nothing(tmp_path: Path) -> None:
    """A tag is no order: the value stays a text, and no option takes that one."""
    with pytest.raises(OptionError):
        from_file(tmp_path, f'port: !!python/object/apply:os.mkdir ["{tmp_path}/made"]')
    assert not (tmp_path / "made").exists()


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="--config .*none.yaml: it cannot be read: No such file"):
        read("--config", str(tmp_path / "none.yaml"))


def test_names_of_models() -> None:
    assert name_models(["a/b.gguf", "smollm2"], ["x"]) == {"x": "a/b.gguf", "smollm2": "smollm2"}
    with pytest.raises(OptionError, match="two models are called"):
        name_models(["a/m.gguf", "b/m.gguf"], [])
