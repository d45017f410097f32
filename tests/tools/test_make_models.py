"""docs/models.md tells of every architecture and every stored model; what the table says of made-up results."""

from __future__ import annotations

import make_models
import pytest
import reference_models as stored

from edgellm import models

PAGE = make_models.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("architecture", models.ARCHITECTURES)
def test_every_architecture_has_a_row_and_a_name(architecture: str) -> None:
    assert f"| `{architecture}` | {make_models.title(architecture)} |" in PAGE, "run tools/make_models.py"


@pytest.mark.parametrize("name", stored.NAMES)
def test_every_stored_model_has_a_row(name: str) -> None:
    assert f"| {name} |" in PAGE, "run tools/make_models.py"


def test_rows_of_a_table() -> None:
    results = [
        {"recipe": "llama", "architecture": "llama", "error": 2e-6, "kl": 3e-9},
        {"recipe": "mixtral", "architecture": "llama", "error": 1e-6, "kl": 2e-9},
    ]
    lines = make_models.make_page_table(results, ["llama", "qwen2"]).splitlines()[2:]
    assert lines[0] == "| `llama` | Llama | llama | 2e-06 | 3e-09 | SmolLM2 135M |"
    assert lines[1] == "|  |  | mixtral | 1e-06 | 2e-09 |  |"
    assert lines[2].startswith("| `qwen2` | Qwen2") and lines[2].endswith("| - | - | - | - |")
