"""Write the tables of docs/models.md and README.md: every architecture, and on what and how it was checked.

    python tools/make_models.py --peer-python PATH
    python tools/make_models.py --readme    only README's table, out of what docs/models.md says

Reads the tiny random models of tests/data/architectures/ with Transformers' answers to some of their rows: edgellm's NumPy
reference and llama.cpp (peer-python has llama_cpp) answer the same files again. What is said of a model is said by its file in
models/ and its recipe in tools/architectures/. The last line is JSON.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import make_architectures as made
import numpy as np
import pages

PAGE, README = made.ROOT / "docs" / "models.md", made.ROOT / "README.md"
TITLES = ("architecture", "models", "random model", "error to Transformers", "llama.cpp: KL", "real weights")
REAL = {"gemma3": "Gemma 3 270M", "llama": "SmolLM2 135M"}
"""What was run on published weights: in tests marked `model`, against llama.cpp."""
REAL_RECIPES = ("gemma3", "llama")
"""The stored models that are of the same make as those: of the same architecture there are others, like Mistral."""
FAMILIES = {
    "Llama 2 and 3, SmolLM2": "llama",
    "Mistral, Mixtral": "mistral mistral-window mixtral",
    "Mistral 3": "mistral3",
    "Qwen 2 and 2.5": "qwen2 qwen2moe",
    "Qwen 3": "qwen3 qwen3moe",
    "Qwen3-Next, Qwen 3.5": "qwen3next qwen35 qwen35moe",
    "Gemma 1 and 2": "gemma gemma2",
    "Gemma 3": "gemma3",
    "Gemma 4": "gemma4 gemma4-31b gemma4-experts",
    "Phi-3 and 4": "phi3 phi3-longrope phi3-window",
    "GPT-OSS": "gpt-oss",
    "DeepSeek V2 and V3": "deepseek2 deepseek2-v3",
    "OLMo 2 and 3, OLMoE": "olmo2 olmo3 olmoe",
    "GLM-4": "glm4",
    "Granite 3 and 4": "granite granitemoe granitemoe-shared granitehybrid granitehybrid-dense",
    "Command R7B": "cohere2",
    "StarCoder 2": "starcoder2",
    "StableLM": "stablelm stablelm-parallel",
    "SmolLM3": "smollm3",
    "Arcee AFM": "arcee",
    "LFM2": "lfm2 lfm2moe",
    "Mamba 2": "mamba2",
    "BERT, RoBERTa, Nomic BERT": "bert xlm-roberta-rank nomic-bert",
    "EmbeddingGemma": "gemma-embedding",
}
"""README's rows: the stored models of each."""
README_TITLES = (
    "family",
    "`general.architecture`",
    "as Transformers, within",
    "as llama.cpp, KL",
    "run on real weights",
)


def check(name: str, peer_python: str) -> dict[str, Any]:
    """Ask both programs about one stored model."""
    sys.path.insert(0, str(made.ROOT / "tests" / "support"))
    import reference_models as stored

    from edgellm.gguf import open_gguf

    ids, rows, expected = stored.expected(name)
    is_encoder = "is_encoder=True" in (made.RECIPES / f"{name}.py").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        path = stored.unpack(name, folder)
        with open_gguf(path) as file:
            architecture = str(file.get("general.architecture"))
            found = stored.run_reference(file, ids, rows)
        np.savez(folder / "ids.npz", ids=ids, is_encoder=is_encoder)
        peer = [peer_python, str(Path(__file__).parent / "architecture_peer.py")]
        made.run([*peer, str(path), str(folder / "ids.npz"), str(folder / "peer.npz")], name)
        with np.load(folder / "peer.npz") as data:
            compared = made.compare_peer(expected, data["logits"][rows], is_encoder)
    error = float(np.abs(found - expected).max() / np.abs(expected).max())
    return {
        "recipe": name,
        "architecture": architecture,
        "error": error,
        "peer_differs": peer_differs(name),
        **compared,
    }


def peer_differs(recipe: str) -> str:
    """Why llama.cpp says something else to this stored model, as its recipe tells; "" for one to which it says the same."""
    found = re.search(r'peer_differs="([^"]+)"', (made.RECIPES / f"{recipe}.py").read_text(encoding="utf-8"))
    return found[1] if found else ""


def title(architecture: str) -> str:
    """The first words of an architecture's file: what it is called."""
    path = made.ROOT / "models" / f"{architecture.replace('-', '_')}.py"
    text = " ".join((ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split())
    return re.split(r"[(:,]| and what ", text)[0].strip().rstrip(".")


def make_page_table(results: Sequence[dict[str, Any]], architectures: Sequence[str]) -> str:
    """The Markdown table. An architecture without a stored model is shown with nothing checked."""
    rows = []
    for architecture in sorted(architectures):
        of_it = [r for r in results if r["architecture"] == architecture]
        for i, r in enumerate(of_it or [{"recipe": "-"}]):
            checked = ["-", "-"]
            if "error" in r:
                checked = [f"{r['error']:.0e}", r.get("peer_differs") or f"{max(r['kl'], 0.0):.0e}"]
            first = [f"`{architecture}`", title(architecture)] if i == 0 else ["", ""]
            rows.append([*first, r["recipe"], *checked, REAL.get(architecture, "-") if i == 0 else ""])
    return pages.make_table(TITLES, rows)


def make_readme_table(page: str) -> str:
    """README's table out of the one in docs/models.md: a row for each family, with the worst of its models."""
    found = dict[str, tuple[str, str, str]]()
    architecture = ""
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == len(TITLES):
            architecture = cells[0] or architecture
            found[cells[2]] = (architecture, cells[3], cells[4])
    rows = []
    for family, recipes in FAMILIES.items():
        checked = [found[recipe] for recipe in recipes.split()]
        names = ", ".join(dict.fromkeys(name for name, _, _ in checked))
        error = max((error for _, error, _ in checked), key=float)
        same = [kl for recipe, (_, _, kl) in zip(recipes.split(), checked, strict=True) if not peer_differs(recipe)]
        kl = max(same, key=float) + (", but for a window" if len(same) < len(checked) else "")
        real = [
            REAL[name.strip("`")] for r, (name, _, _) in zip(recipes.split(), checked, strict=True) if r in REAL_RECIPES
        ]
        rows.append([family, names, error, kl, ", ".join(real) or "random only"])
    return pages.make_table(README_TITLES, rows)


def main(words: Sequence[str] | None = None) -> int:
    """Check, write, print."""
    from edgellm import models

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--peer-python", metavar="PATH", help="interpreter that has llama_cpp")
    which.add_argument("--readme", action="store_true", help="write README's table only, out of docs/models.md")
    args = parser.parse_args(words)
    if args.readme:
        pages.put_section(README, "families", make_readme_table(PAGE.read_text(encoding="utf-8")))
        return 0
    names = sorted(path.name.removesuffix(".gguf.xz") for path in made.DATA.glob("*.gguf.xz"))
    results = []
    for name in names:
        results.append(check(name, args.peer_python))
        print(f"{name}: {results[-1]}", file=sys.stderr, flush=True)
    pages.put_section(PAGE, "models", make_page_table(results, models.ARCHITECTURES))
    pages.put_section(README, "families", make_readme_table(PAGE.read_text(encoding="utf-8")))
    print(json.dumps(results))
    return int(any(r["error"] > made.MAX_ERROR or (r["kl"] > made.MAX_KL and not r["peer_differs"]) for r in results))


if __name__ == "__main__":
    sys.exit(main())
