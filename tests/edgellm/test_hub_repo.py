"""Hugging Face repositories: which file is meant, what the cache answers, how failures read. No network."""

from __future__ import annotations

import errno
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgellm import hub_repo
from edgellm.errors import DownloadError, ResourceError

FILES = [
    ("README.md", 1),
    ("m-Q4_K_M.gguf", 40),
    ("m-Q4_K_S.gguf", 39),
    ("m-UD-Q4_K_XL.gguf", 41),
    ("m-q8_0.gguf", 80),
    ("mmproj-m-f16.gguf", 9),
    ("m.imatrix.gguf", 2),
    ("big/m-F16-00002-of-00002.gguf", 70),
    ("big/m-F16-00001-of-00002.gguf", 90),
    ("torn/m-BF16-00001-of-00002.gguf", 90),
]


def choose(selector: str | None, files: list[tuple[str, int]] = FILES) -> hub_repo.Candidate:
    return hub_repo.choose("o/r", hub_repo.group(files), selector)


def no_progress(stage: str, done: int, total: int) -> None: ...


@pytest.mark.parametrize(
    ("selector", "name"),
    [
        (None, "m-Q4_K_M.gguf"),
        ("q4_k_m", "m-Q4_K_M.gguf"),
        ("Q8_0", "m-q8_0.gguf"),
        ("UD-Q4_K_XL", "m-UD-Q4_K_XL.gguf"),
        ("M-Q4_K_S.GGUF", "m-Q4_K_S.gguf"),
        ("f16", "big/m-F16-00001-of-00002.gguf"),
    ],
)
def test_choice(selector: str | None, name: str) -> None:
    assert choose(selector).name == name


def test_a_split_model_brings_all_parts_in_order() -> None:
    assert choose("F16") == hub_repo.Candidate(
        ("big/m-F16-00001-of-00002.gguf", "big/m-F16-00002-of-00002.gguf"), nbytes=160
    )


def test_without_a_selector_the_order_is_the_documented_one() -> None:
    for position, quant in enumerate(hub_repo.QUANT_ORDER):
        files = [(f"m.{later}.gguf", 1) for later in reversed(hub_repo.QUANT_ORDER[position:])]
        assert choose(None, files).name == f"m.{quant}.gguf"
    assert choose(None, [("only-IQ2_XS.gguf", 1)]).name == "only-IQ2_XS.gguf"


@pytest.mark.parametrize(
    ("selector", "files", "says"),
    [
        ("Q3_K_L", FILES, "no model named 'Q3_K_L'.*m-Q4_K_M.gguf"),
        ("Q4_K", FILES, "no model named 'Q4_K'"),
        ("BF16", FILES, "no model named 'BF16'"),
        (None, [("a-Q4_K_M.gguf", 1), ("b-Q4_K_M.gguf", 1)], "2 models: write o/r:FILE with one of a-Q4_K_M.gguf, b"),
        (None, [("a-IQ1.gguf", 1), ("a-IQ2.gguf", 1)], "2 models"),
        ("Q4_0", [("model.safetensors", 1)], "holds no GGUF model"),
        ("x", [(f"m-{n}.gguf", 1) for n in range(40)], "and 28 more"),
    ],
)
def test_no_single_answer_lists_what_there_is(selector: str | None, files: list[tuple[str, int]], says: str) -> None:
    with pytest.raises(DownloadError, match=says) as caught:
        choose(selector, files)
    assert "\n" not in str(caught.value)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Hugging Face cache that holds one file of o/r."""
    monkeypatch.setattr(hub_repo, "_cache_folder", lambda: tmp_path)
    snapshot = tmp_path / "models--o--r" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (tmp_path / "models--o--r" / "blobs").mkdir()
    (snapshot / "m-Q8_0.gguf").write_bytes(b"GGUF8")
    (snapshot / "gone-Q4_0.gguf").symlink_to(tmp_path / "no such blob")
    return snapshot


class ConnectError(Exception):
    """Stands for the HTTP library's own, which has no base in common with anything."""


def offline(repo: str) -> list[tuple[str, int]]:
    raise ConnectError("name or service not known")


def test_a_cached_file_that_is_surely_meant_needs_no_network(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_repo, "_list_remote", lambda repo: pytest.fail("asked the network"))
    assert hub_repo.fetch("o/r", "q8_0", no_progress) == cache / "m-Q8_0.gguf"
    (cache / "m-Q4_K_M.gguf").write_bytes(b"GGUF4")
    assert hub_repo.fetch("o/r", None, no_progress) == cache / "m-Q4_K_M.gguf"


def test_without_a_network_the_cache_answers_what_it_can(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_repo, "_list_remote", offline)
    assert hub_repo.fetch("o/r", None, no_progress) == cache / "m-Q8_0.gguf"
    assert hub_repo.fetch("o/r", "Q8_0", no_progress, refresh=True) == cache / "m-Q8_0.gguf"
    for repo, selector in (("o/r", "Q4_0"), ("o/other", None)):
        with pytest.raises(DownloadError, match=r"cannot fetch o/.*ConnectError: name.*check the network"):
            hub_repo.fetch(repo, selector, no_progress)


def test_all_parts_are_downloaded_with_progress(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = cache.parents[1] / "blobs"
    (blobs / "older").write_bytes(bytes(1000))
    monkeypatch.setattr(hub_repo, "_list_remote", lambda repo: FILES)
    monkeypatch.setattr(hub_repo, "_POLL_S", 0.01)
    seen: list[tuple[str, int, int]] = []

    def download(repo: str, name: str) -> Path:
        # Wait until the watcher has seen this half, so that the test needs no luck.
        before = len(seen)
        (blobs / f"{Path(name).name}.incomplete").write_bytes(bytes(60))
        for _ in range(1000):
            if len(seen) >= before + 3:
                break
            time.sleep(0.01)
        return cache / name

    monkeypatch.setattr(hub_repo, "_download", download)
    path = hub_repo.fetch("o/r", "F16", lambda *step: seen.append(step))
    assert path == cache / "big/m-F16-00001-of-00002.gguf"
    assert {("download o/r", 60, 160), ("download o/r", 120, 160)} <= set(seen)
    assert seen[-1] == ("download o/r", 160, 160)


def test_list_cached_names_can_be_given_back(cache: Path) -> None:
    assert list(hub_repo.list_cached()) == [("o/r:m-Q8_0.gguf", cache / "m-Q8_0.gguf", 5)]
    assert hub_repo.fetch("o/r", "m-Q8_0.gguf", no_progress) == cache / "m-Q8_0.gguf"


def hub_error(name: str) -> Exception:
    from huggingface_hub import errors

    response = SimpleNamespace(headers={}, request=None)
    return getattr(errors, name)("many\nlines", response=response)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("GatedRepoError", "o/r is gated.*hf auth login"),
        ("RepositoryNotFoundError", "no model repository o/r"),
        ("HfHubHTTPError", "cannot fetch o/r.*HfHubHTTPError: many\\)"),
    ],
)
def test_answers_of_the_hub_are_explained(name: str, says: str) -> None:
    error = hub_repo._explain("o/r", hub_error(name))
    assert isinstance(error, DownloadError)
    with pytest.raises(DownloadError, match=says):
        raise error
    assert "\n" not in str(error)


def test_other_failures_are_explained(cache: Path) -> None:
    from huggingface_hub.errors import OfflineModeIsEnabled

    assert "HF_HUB_OFFLINE" in str(hub_repo._explain("o/r", OfflineModeIsEnabled("x")))
    full = hub_repo._explain("o/r", OSError(errno.ENOSPC, "No space left on device"))
    assert isinstance(full, ResourceError) and "HF_HOME" in str(full)
