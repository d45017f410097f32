"""Write the table of docs/models.md: every architecture, and on what and how it was checked.

    python tools/make_models.py --peer-python PATH

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

PAGE = made.ROOT / "docs" / "models.md"
TITLES = ("architecture", "models", "random model", "error to Transformers", "llama.cpp: KL", "real weights")
REAL = {"gemma3": "Gemma 3 270M", "llama": "SmolLM2 135M"}
"""What was run on published weights: in tests marked `model`, against llama.cpp."""


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
    return {"recipe": name, "architecture": architecture, "error": error, **compared}


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
            checked = [f"{r['error']:.0e}", f"{max(r['kl'], 0.0):.0e}"] if "error" in r else ["-", "-"]
            first = [f"`{architecture}`", title(architecture)] if i == 0 else ["", ""]
            rows.append([*first, r["recipe"], *checked, REAL.get(architecture, "-") if i == 0 else ""])
    return pages.make_table(TITLES, rows)


def main(words: Sequence[str] | None = None) -> int:
    """Check, write, print."""
    from edgellm import models

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", required=True, metavar="PATH", help="interpreter that has llama_cpp")
    args = parser.parse_args(words)
    names = sorted(path.name.removesuffix(".gguf.xz") for path in made.DATA.glob("*.gguf.xz"))
    results = []
    for name in names:
        results.append(check(name, args.peer_python))
        print(f"{name}: {results[-1]}", file=sys.stderr, flush=True)
    pages.put_section(PAGE, "models", make_page_table(results, models.ARCHITECTURES))
    print(json.dumps(results))
    return int(any(r["error"] > made.MAX_ERROR or r["kl"] > made.MAX_KL for r in results))


if __name__ == "__main__":
    sys.exit(main())
