"""Models in Hugging Face repositories: `owner/repo[:file-or-quant]` -> files in the Hugging Face cache.

Finding and choosing is ours, fetching and keeping is huggingface_hub's. A file that is already in the cache and is
certainly the one meant is used without asking the network. Next hop: huggingface_hub.
"""

from __future__ import annotations

import errno
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .errors import DownloadError, ResourceError

Progress = Callable[[str, int, int], None]
REPO_NAME = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?::(?P<selector>.+))?")
# Tried in this order when no file is named: about four bits first, then up, then the unquantised ones.
QUANT_ORDER = ("Q4_K_M", "Q4_K_S", "Q4_0", "Q4_1", "Q5_K_M", "Q5_K_S", "Q6_K", "Q8_0", "F16", "BF16", "F32")
_SPLIT = re.compile(r"(?P<stem>.*)-(?P<index>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
# GGUF files that are no language model: vision projectors, importance matrices, adapters.
_COMPANION = re.compile(r"(^|[/._-])(mmproj|imatrix|lora)", re.IGNORECASE)
_DISK_FAULTS = {errno.ENOSPC, errno.EACCES, errno.EPERM, errno.EROFS}
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Candidate:
    """One model of a repository: one GGUF file, or all parts of a split one in order."""

    files: tuple[str, ...]
    nbytes: int

    @property
    def name(self) -> str:
        return self.files[0]


def fetch(repo: str, selector: str | None, progress: Progress, refresh: bool = False) -> Path:
    """Return the local path of the chosen model (the first part of a split one).

    Args:
        selector: a file name or quant name in any case, or None for the first of QUANT_ORDER, or the only file.
        refresh: ask the repository even when the cache holds the answer.
    Raises: DownloadError when there is no such repository, file or network; ResourceError when the disk is full.
    """
    if not refresh and (path := _find_cached(repo, selector or QUANT_ORDER[0])):
        return path
    try:
        listed = _list_remote(repo)
    except Exception as error:  # huggingface_hub's HTTP library, and so its errors, differ between versions
        if path := _find_cached(repo, selector):
            return path
        raise _explain(repo, error) from error
    chosen = choose(repo, group(listed), selector)
    with _watched(repo, chosen, progress):
        paths = [_download(repo, name) for name in chosen.files]
    return paths[0]


def group(files: Iterable[tuple[str, int]]) -> list[Candidate]:
    """Collect (name, bytes) of a repository's files into models. A split model that lacks a part is left out."""
    parts: dict[tuple[str, int], dict[int, tuple[str, int]]] = {}
    candidates = []
    for name, nbytes in sorted(files):
        if not name.lower().endswith(".gguf") or _COMPANION.search(name):
            continue
        if match := _SPLIT.fullmatch(name):
            parts.setdefault((match["stem"], int(match["count"])), {})[int(match["index"])] = (name, nbytes)
        else:
            candidates.append(Candidate((name,), nbytes))
    for (_, count), found in parts.items():
        if sorted(found) == list(range(1, count + 1)):
            names = tuple(found[index][0] for index in sorted(found))
            candidates.append(Candidate(names, sum(nbytes for _, nbytes in found.values())))
    return candidates


def choose(repo: str, candidates: Sequence[Candidate], selector: str | None) -> Candidate:
    """Pick the model `selector` names. Raises DownloadError that lists what there is unless exactly one fits."""
    if not candidates:
        raise DownloadError(f"{repo} holds no GGUF model: look for a repository whose name ends in GGUF")
    matches: list[Candidate] = []
    if selector is not None:
        matches = _matching(candidates, selector)
    else:
        for quant in QUANT_ORDER:
            if matches := _matching(candidates, quant):
                break
        matches = matches or list(candidates)
    if len(matches) == 1:
        return matches[0]
    wish = f"{len(matches)} models" if matches else "no model"
    named = f" named {selector!r}" if selector else ""
    names = [candidate.name for candidate in matches or candidates]
    shown = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    raise DownloadError(f"{repo} holds {wish}{named}: write {repo}:FILE with one of {shown}")


def list_cached() -> Iterator[tuple[str, Path, int]]:
    """Yield (`owner/repo:file`, path, bytes) of each complete model in the Hugging Face cache."""
    seen = set()
    for folder in sorted(_cache_folder().glob("models--*--*")):
        repo = folder.name.removeprefix("models--").replace("--", "/", 1)
        for snapshot in _snapshots(repo):
            for candidate in group(_list_snapshot(snapshot)):
                name = f"{repo}:{candidate.name}"
                if name not in seen:
                    seen.add(name)
                    yield name, snapshot / candidate.name, candidate.nbytes


def _matching(candidates: Sequence[Candidate], selector: str) -> list[Candidate]:
    wish = selector.lower().removesuffix(".gguf")
    quant = re.compile(rf"(?<![a-z0-9]){re.escape(wish)}(?![a-z0-9_])")
    stems = {candidate: candidate.name.lower().removesuffix(".gguf") for candidate in candidates}
    exact = [candidate for candidate, stem in stems.items() if wish in (stem, stem.rsplit("/", 1)[-1])]
    return exact or [candidate for candidate, stem in stems.items() if quant.search(stem)]


def _find_cached(repo: str, selector: str | None) -> Path | None:
    for snapshot in _snapshots(repo):
        try:
            return snapshot / choose(repo, group(_list_snapshot(snapshot)), selector).name
        except DownloadError:
            continue
    return None


def _cache_folder() -> Path:
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE)


def _repo_folder(repo: str) -> Path:
    return _cache_folder() / f"models--{repo.replace('/', '--')}"


def _snapshots(repo: str) -> list[Path]:
    """Return the cached snapshots of a repository, newest first."""
    return sorted((_repo_folder(repo) / "snapshots").glob("*"), key=lambda path: path.stat().st_mtime, reverse=True)


def _list_snapshot(snapshot: Path) -> list[tuple[str, int]]:
    # is_file() follows the link, so a name whose blob was deleted does not count.
    files = [path for path in snapshot.rglob("*") if path.suffix.lower() == ".gguf" and path.is_file()]
    return [(path.relative_to(snapshot).as_posix(), path.stat().st_size) for path in files]


def _list_remote(repo: str) -> list[tuple[str, int]]:
    from huggingface_hub import HfApi

    siblings = HfApi().model_info(repo, files_metadata=True).siblings or []
    return [(sibling.rfilename, sibling.size or 0) for sibling in siblings]


def _download(repo: str, name: str) -> Path:
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(repo, name))
    except Exception as error:  # see fetch
        raise _explain(repo, error) from error


def _explain(repo: str, error: Exception) -> DownloadError | ResourceError:
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return DownloadError(
            f"{repo} is gated: accept its terms on huggingface.co/{repo}, then run 'hf auth login' or set HF_TOKEN"
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return DownloadError(f"no model repository {repo} on Hugging Face (or it is private): check the name")
    if isinstance(error, errors.OfflineModeIsEnabled):
        return DownloadError(f"{repo} is not in the Hugging Face cache and HF_HUB_OFFLINE is set: unset it to fetch")
    reason = (str(error).strip().splitlines() or [""])[0][:200]
    if isinstance(error, OSError) and error.errno in _DISK_FAULTS:
        return ResourceError(f"cannot keep {repo} in {_cache_folder()} ({reason}): make room, or set HF_HOME")
    return DownloadError(
        f"cannot fetch {repo} from Hugging Face ({type(error).__name__}: {reason}): "
        "check the network, or give the path of a GGUF file"
    )


@contextmanager
def _watched(repo: str, chosen: Candidate, progress: Progress) -> Iterator[None]:
    """Report the bytes in the cache while huggingface_hub downloads, from a thread of our own.

    Its progress hooks differ between versions and transports; the growing files do not.
    """
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    stage, done = f"download {repo}", threading.Event()
    blobs = _repo_folder(repo) / "blobs"
    before = _blob_bytes(blobs, complete_only=True)

    def watch() -> None:
        while not done.wait(_POLL_S):
            progress(stage, min(_blob_bytes(blobs) - before, chosen.nbytes), chosen.nbytes)

    shows_bars = not are_progress_bars_disabled()
    watcher = threading.Thread(target=watch, name="edgellm-download", daemon=True)
    if shows_bars:
        disable_progress_bars()
    watcher.start()
    try:
        yield
        progress(stage, chosen.nbytes, chosen.nbytes)
    finally:
        done.set()
        watcher.join()
        if shows_bars:
            enable_progress_bars()


def _blob_bytes(blobs: Path, complete_only: bool = False) -> int:
    """Return the bytes on disk below a repository's blobs. A file laid out in advance counts what was written."""
    total = 0
    for path in blobs.glob("*"):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        if not (complete_only and path.name.endswith(".incomplete")):
            written = getattr(status, "st_blocks", None)
            total += status.st_size if written is None else min(status.st_size, written * 512)
    return total
