"""Finding an architecture by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgellm import models
from edgellm.errors import ModelFileError, UnsupportedError
from edgellm.models import gemma3, llama


def test_get() -> None:
    assert models.get("llama") is llama and models.get("gemma3") is gemma3


def test_an_architecture_is_the_file_of_its_name() -> None:
    for name in models.ARCHITECTURES:
        assert Path(str(models.get(name).__file__)).stem == name.replace("-", "_")  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["unknownarch", "hparams", "", "../llama", None])
def test_unknown_architecture_names_those_there_are(name: str) -> None:
    with pytest.raises(UnsupportedError, match=r"gemma3, .*llama.*CONTRIBUTING") as error:
        models.get(name)
    assert repr(name) in str(error.value)


def test_context_length() -> None:
    def of(**metadata: object) -> int | None:
        return models.context_length({"general.architecture": "llama"} | metadata)

    assert of(**{"llama.context_length": 8192}) == 8192
    assert of(**{"llama.context_length": 2**31}) == 2**31
    assert of(**{"llama.context_length": 0}) is None
    assert of() is None
    with pytest.raises(ModelFileError, match=r"llama\.context_length is 'long'"):
        of(**{"llama.context_length": "long"})
