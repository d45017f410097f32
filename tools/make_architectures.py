"""Make the tiny random models that tests of architectures read, and compare three programs on each.

    python tools/make_architectures.py --torch-python PATH --peer-python PATH [NAME ...] [--source FOLDER] [--check]

For every recipe in tools/architectures/: Transformers builds the model and answers (torch-python has torch and transformers),
llama.cpp's own converter writes it as GGUF (from the source package of llama-cpp-python on the package index, unless --source
names a folder that has it), llama.cpp answers (peer-python has llama_cpp), and edgellm's NumPy reference. Stores the file and
some rows of Transformers' logits in tests/data/architectures/; --check only compares. Prints a table: relative errors of
the reference against Transformers, KL divergence and agreement of llama.cpp. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import lzma
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pages
from numpy.typing import NDArray
from source_package import fetch_files

ROOT = Path(__file__).parent.parent
RECIPES, DATA = ROOT / "tools" / "architectures", ROOT / "tests" / "data" / "architectures"
PACKAGE = "llama-cpp-python==0.3.36"
TITLES = ("recipe", "architecture", "edgellm: error", "llama.cpp: KL", "same top", "kB")
MAX_ERROR, MAX_KL = 1e-4, 1e-3
STORED_ROWS = 24


def compare(name: str, args: argparse.Namespace, source: Path, folder: Path) -> dict[str, Any]:
    """Make one model, compare, store."""
    sys.path.insert(0, str(RECIPES))
    recipe, here = RECIPES / f"{name}.py", Path(__file__).parent
    run([args.torch_python, str(here / "architecture_worker.py"), str(recipe), str(source), str(folder)], name)
    model = folder / "model.gguf"
    with np.load(folder / "expected.npz") as data:
        ids, expected = data["ids"], data["logits"]
    is_encoder = "is_encoder=True" in recipe.read_text()
    np.savez(folder / "ids.npz", ids=ids, is_encoder=is_encoder)
    result: dict[str, Any] = {"recipe": name, "peer_differs": "peer_differs=" in recipe.read_text()}
    try:
        run(
            [
                args.peer_python,
                str(here / "architecture_peer.py"),
                str(model),
                str(folder / "ids.npz"),
                str(folder / "peer.npz"),
            ],
            name,
        )
        with np.load(folder / "peer.npz") as data:
            result |= compare_peer(expected, data["logits"], is_encoder)
    except RuntimeError as error:
        result |= {"kl": None, "same_top": None, "peer_error": str(error)[-200:]}
    result |= compare_reference(model, ids, expected)
    rows = np.unique(np.linspace(0, len(ids) - 1, STORED_ROWS).astype(np.int64))
    packed = lzma.compress(model.read_bytes(), preset=9 | lzma.PRESET_EXTREME)
    result["kB"] = len(packed) // 1024
    if not args.check:
        DATA.mkdir(parents=True, exist_ok=True)
        (DATA / f"{name}.gguf.xz").write_bytes(packed)
        np.savez_compressed(DATA / f"{name}.npz", ids=ids, rows=rows, logits=expected[rows])
    return result


def compare_reference(model: Path, ids: NDArray[np.int64], expected: NDArray[np.float32]) -> dict[str, Any]:
    """Relative error of edgellm's reference; what it said if it refused the file."""
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from reference_models import run_reference

    from edgellm import EdgeLLMError
    from edgellm.gguf import open_gguf

    with open_gguf(model) as file:
        architecture = str(file.get("general.architecture"))
        try:
            found = run_reference(file, ids)
        except EdgeLLMError as error:
            return {"architecture": architecture, "error": None, "refused": str(error)}
    return {"architecture": architecture, "error": float(np.abs(found - expected).max() / np.abs(expected).max())}


def compare_peer(expected: NDArray[np.float32], found: NDArray[np.float32], is_encoder: bool) -> dict[str, Any]:
    """Mean KL divergence of llama.cpp's distributions and how often the likeliest id is the same."""
    if is_encoder:  # vectors: one minus the cosine stands for the divergence
        cosine = (expected * found).sum(1) / np.linalg.norm(expected, axis=1) / np.linalg.norm(found, axis=1)
        return {"kl": float(1 - cosine.min()), "same_top": 1.0}
    logp, logq = (
        x - np.logaddexp.reduce(x, axis=1, keepdims=True)
        for x in (expected.astype(np.float64), found.astype(np.float64))
    )
    kl = (np.exp(logp) * (logp - logq)).sum(axis=1).mean()
    return {"kl": float(kl), "same_top": float((expected.argmax(1) == found.argmax(1)).mean())}


def run(command: Sequence[str], name: str) -> None:
    """Run a worker. Raises RuntimeError with the end of what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name}: {Path(command[1]).name} failed:\n{done.stderr[-3000:]}")


def make_row(row: dict[str, Any]) -> list[str]:
    """The cells of the table."""
    cell = lambda value: "-" if value is None else f"{value:.1e}"  # noqa: E731
    top = "-" if row["same_top"] is None else f"{100 * row['same_top']:.0f} %"
    return [row["recipe"], row["architecture"], cell(row["error"]), cell(row["kl"]), top, str(row["kB"])]


def main(words: Sequence[str] | None = None) -> int:
    """Make, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="recipes (default: all)")
    add("--torch-python", required=True, metavar="PATH", help="interpreter that has torch and transformers")
    add("--peer-python", required=True, metavar="PATH", help="interpreter that has llama_cpp")
    add("--source", type=Path, metavar="FOLDER", help="llama.cpp's source; fetched if not given")
    add("--check", action="store_true", help="store nothing")
    args = parser.parse_args(words)
    known = sorted(path.stem for path in RECIPES.glob("*.py") if path.stem != "recipe")
    if wrong := [name for name in args.names if name not in known]:
        parser.error(f"no recipe {', '.join(wrong)}; there are {', '.join(known)}")
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        source = args.source or fetch_source(Path(temporary))
        for name in args.names or known:
            folder = Path(temporary) / name
            folder.mkdir()
            results.append(compare(name, args, source, folder))
            print(f"{name}: {results[-1]}", file=sys.stderr, flush=True)
            shutil.rmtree(folder)
    print(pages.make_columns(TITLES, [make_row(row) for row in results]))
    print(json.dumps(results))
    bad = [r["recipe"] for r in results if not (r["error"] is not None and r["error"] <= MAX_ERROR)]
    bad += [r["recipe"] for r in results if not r["peer_differs"] and (r["kl"] is None or r["kl"] > MAX_KL)]
    return 1 if bad else 0


def fetch_source(folder: Path) -> Path:
    """Download llama.cpp's converter."""

    def place(name: str) -> str | None:
        _, _, rest = name.partition("/vendor/llama.cpp/")
        return rest if rest.startswith(("conversion/", "gguf-py/")) else None

    return fetch_files(PACKAGE, folder, folder / "llama.cpp", place)


if __name__ == "__main__":
    sys.exit(main())
