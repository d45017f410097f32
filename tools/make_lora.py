"""Make the random LoRA adapters that tests read, for random models that are stored already, and compare three programs.

    python tools/make_lora.py --torch-python PATH --peer-python PATH [NAME ...] [--source FOLDER] [--check]

For each NAME, a recipe of tools/architectures/: PEFT's files are made and merged into Transformers' model, llama.cpp's own
converter writes the adapter as GGUF, llama.cpp applies it beside the stored model, and so does edgellm's NumPy reference.
Stores adapter and some logits of the merged model in tests/data/lora/; --check only compares. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import make_architectures as made
import numpy as np
from source_package import fetch_files

DATA = made.ROOT / "tests" / "data" / "lora"
NAMES = ("gemma3", "llama")


def compare(name: str, args: argparse.Namespace, source: Path, folder: Path) -> dict[str, Any]:
    """Make one adapter, compare, store."""
    here, recipe = Path(__file__).parent, made.RECIPES / f"{name}.py"
    made.run([args.torch_python, str(here / "lora_worker.py"), str(recipe), str(source), str(folder)], name)
    model, adapter = folder / "model.gguf", folder / "adapter.gguf"
    model.write_bytes(lzma.decompress((made.DATA / f"{name}.gguf.xz").read_bytes()))
    with np.load(folder / "expected.npz") as data:
        ids, expected = data["ids"], data["logits"]
    np.savez(folder / "ids.npz", ids=ids, is_encoder=False)
    files = [str(folder / "ids.npz"), str(folder / "peer.npz"), str(adapter)]
    made.run([args.peer_python, str(here / "architecture_peer.py"), str(model), *files], name)
    with np.load(folder / "peer.npz") as data:
        peer = made.compare_peer(expected, data["logits"], False)
    found = run_reference(model, adapter, ids)
    rows = np.unique(np.linspace(0, len(ids) - 1, made.STORED_ROWS).astype(np.int64))
    if not args.check:
        DATA.mkdir(parents=True, exist_ok=True)
        (DATA / f"{name}.gguf.xz").write_bytes(lzma.compress(adapter.read_bytes(), preset=9))
        np.savez_compressed(DATA / f"{name}.npz", ids=ids, rows=rows, logits=expected[rows])
    return {"recipe": name, "error": float(np.abs(found - expected).max() / np.abs(expected).max())} | peer


def run_reference(model: Path, adapter: Path, ids: Any) -> Any:
    """edgellm's reference with the adapter."""
    sys.path.insert(0, str(made.ROOT / "tests" / "support"))
    from reference_models import run_adapted

    return run_adapted(model, [(adapter, 1.0)], ids)


def main(words: Sequence[str] | None = None) -> int:
    """Make, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("names", nargs="*", default=NAMES, metavar="NAME", help=f"recipes (default: {' '.join(NAMES)})")
    add("--torch-python", required=True, metavar="PATH", help="interpreter that has torch and transformers")
    add("--peer-python", required=True, metavar="PATH", help="interpreter that has llama_cpp")
    add("--source", type=Path, metavar="FOLDER", help="llama.cpp's source; fetched if not given")
    add("--check", action="store_true", help="store nothing")
    args = parser.parse_args(words)
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        source = args.source or fetch_source(Path(temporary))
        for name in args.names:
            folder = Path(temporary) / name
            folder.mkdir()
            results.append(compare(name, args, source, folder))
            print(f"{name}: {results[-1]}", file=sys.stderr, flush=True)
    print(json.dumps(results))
    return int(any(r["error"] > made.MAX_ERROR or r["kl"] > made.MAX_KL for r in results))


def fetch_source(folder: Path) -> Path:
    """Download llama.cpp's converters."""

    def place(name: str) -> str | None:
        _, _, rest = name.partition("/vendor/llama.cpp/")
        return rest if rest.startswith(("conversion/", "gguf-py/", "convert_lora_to_gguf.py")) else None

    return fetch_files(made.PACKAGE, folder, folder / "llama.cpp", place)


if __name__ == "__main__":
    sys.exit(main())
