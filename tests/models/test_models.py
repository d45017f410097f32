"""Finding an architecture by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgellm import models
from edgellm.errors import ModelFileError, UnsupportedError
from edgellm.models import gemma3, llama
from edgellm.models.nearest import nearest


def test_get() -> None:
    assert models.get("llama") is llama and models.get("gemma3") is gemma3


def test_an_architecture_is_the_file_of_its_name() -> None:
    for name in models.ARCHITECTURES:
        assert Path(str(models.get(name).__file__)).stem == name.replace("-", "_")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        *(("baichuan", "llama"), ("internlm2", "llama"), ("gemma3x", "gemma3"), ("lama", "llama")),
        *(("unknownarch", None), ("hparams", None), ("", None), ("../llama", "llama"), ("\x1b[31m" * 40, None)),
    ],
)
def test_an_unknown_architecture_is_named_with_the_nearest_and_where_to_read_on(name: str, near: str | None) -> None:
    with pytest.raises(UnsupportedError, match=r"docs/models\.md .*CONTRIBUTING") as error:
        models.get(name)
    said = str(error.value)
    assert (f"the nearest that is there is {near} " in said) if near else ("nearest" not in said)
    assert ascii(name)[:20] in said and said.isprintable() and len(said) < 250


def test_relatives_are_named_by_family_and_only_where_they_are_there() -> None:
    known = ["cohere2", "deepseek2", "glm4", "granitehybrid", "llama", "qwen2", "qwen3", "qwen3moe", "starcoder2"]
    assert nearest("falcon-h1", known) == "granitehybrid" and nearest("falcon", known) == "starcoder2"
    assert nearest("qwen3vlmoe", known) == "qwen3" and nearest("qwen2vl", known) == "qwen2"
    assert nearest("glm4moe", known) == "qwen3moe" and nearest("glm4moe", ["glm4"]) == "glm4"
    assert nearest("kimi-linear", known) == "deepseek2" and nearest("kimi-linear", ["llama"]) is None


def test_context_length() -> None:
    def of(**metadata: object) -> int | None:
        return models.context_length({"general.architecture": "llama"} | metadata)

    assert of(**{"llama.context_length": 8192}) == 8192
    assert of(**{"llama.context_length": 2**31}) == 2**31
    assert of(**{"llama.context_length": 0}) is None
    assert of() is None
    with pytest.raises(ModelFileError, match=r"llama\.context_length is 'long'"):
        of(**{"llama.context_length": "long"})
