"""docs/models.md and README.md tell of every architecture and every stored model; what the tables say of made-up results."""

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


def test_readme_s_families_are_all_stored_models_each_once() -> None:
    recipes = [recipe for recipes in make_models.FAMILIES.values() for recipe in recipes.split()]
    assert sorted(recipes) == stored.NAMES


def test_readme_s_table_is_that_of_the_page() -> None:
    table = make_models.make_readme_table(PAGE)
    readme = make_models.README.read_text(encoding="utf-8")
    assert f"<!-- begin families -->\n{table}\n<!-- end families -->" in readme, "run tools/make_models.py --readme"
    for architecture in models.ARCHITECTURES:
        assert f"`{architecture}`" in table
    real = [line for line in table.splitlines()[2:] if not line.endswith("| random only |")]
    assert [line.split(" | ")[0] for line in real] == ["| Llama 2 and 3, SmolLM2", "| Gemma 3"], "no claim beyond these"


def test_what_counts_as_equal_is_held_by_every_family() -> None:
    for line in make_models.make_readme_table(PAGE).splitlines()[2:]:
        _, _, error, kl, _ = (cell.strip() for cell in line.split("|")[1:-1])
        assert float(error) < 1e-4 and float(kl.split(",")[0]) < 1e-3


def test_the_worst_of_a_family_is_told_and_a_window_that_the_peer_lacks() -> None:
    changed = PAGE.replace("| mixtral | 3e-06 | 2e-12 |", "| mixtral | 9e-05 | 8e-04 |")
    row = next(line for line in make_models.make_readme_table(changed).splitlines() if line.startswith("| Mistral, M"))
    assert row == "| Mistral, Mixtral | `llama` | 9e-05 | 8e-04, but for a window | random only |"


def test_rows_of_a_table() -> None:
    results = [
        {"recipe": "llama", "architecture": "llama", "error": 2e-6, "kl": 3e-9},
        {"recipe": "mixtral", "architecture": "llama", "error": 1e-6, "kl": 2e-9},
        {"recipe": "w", "architecture": "llama", "error": 1e-6, "kl": 1.0, "peer_differs": "no window there"},
    ]
    lines = make_models.make_page_table(results, ["llama", "qwen2"]).splitlines()[2:]
    assert lines[0] == "| `llama` | Llama | llama | 2e-06 | 3e-09 | SmolLM2 135M |"
    assert lines[1] == "|  |  | mixtral | 1e-06 | 2e-09 |  |"
    assert lines[2] == "|  |  | w | 1e-06 | no window there |  |"
    assert lines[3].startswith("| `qwen2` | Qwen2") and lines[3].endswith("| - | - | - | - |")
