"""Kernels that came with an application: compiled ahead for any CPU of a level, found here, only ever read.

A bundle is a folder with one folder per target, SYSTEM-ARCH-LEVEL-HASH, whose hash is that of the kernels' sources: objects
of other sources are not found. Its manifest.json names that hash for frozen applications, which lack the sources. Next
hop: `ahead.py` makes bundles, `objects.py` loads what is found.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from . import isa, store, target
from .isa import Level
from .sources import read_byte_code

MANIFEST = "manifest.json"
_BESIDE = "edgellm-kernels"
_IN_PACKAGE = Path(__file__).resolve().parent.parent / "compiled"


def bundles() -> list[Path]:
    """Folders that are searched, in order: EDGELLM_KERNELS, edgellm-kernels beside a frozen application's program, and
    compiled/ in the package's kernels/."""
    places = [_IN_PACKAGE]
    if getattr(sys, "frozen", False):
        places.insert(0, Path(sys.executable).resolve().parent / _BESIDE)
    named = os.environ.get("EDGELLM_KERNELS")
    if named:
        places.insert(0, Path(named).expanduser())
    return [p for p in places if p.is_dir()]


def read_manifest(bundle: Path) -> str:
    """-> the hash of the sources that a bundle was made from, "" if it does not say."""
    try:
        told = json.loads((bundle / MANIFEST).read_text("utf-8"))
        return str(told["sources"])
    except (OSError, ValueError, TypeError, KeyError):
        return ""


def sources() -> str:
    """Hash of the kernels' sources where these are missing: what the first bundle says, or that of their byte code."""
    for bundle in bundles():
        if told := read_manifest(bundle):
            return told
    return hashlib.sha256(read_byte_code()).hexdigest()


def folder_name(target_name: str, source_hash: str) -> str:
    """Name of the folder that holds the objects of a target."""
    return f"{target_name}-{source_hash[:24]}"


def folders(level: Level) -> list[Path]:
    """Folders of objects that fit this machine at a level, of the very sources that run here."""
    own, name = store.source_hash(), f"{target.system()}-{isa.architecture()}-{level.name}"
    found = []
    for bundle in bundles():
        made_from = own or read_manifest(bundle)
        folder = bundle / folder_name(name, made_from)
        if made_from and folder.is_dir():
            found.append(folder)
    return found


def level_names() -> list[str]:
    """Names of the levels that any bundle has objects of, for this system."""
    if not bundles():
        _warn_of_nothing([])
        return []
    names = [level.name for level in isa.LEVELS if folders(level)]
    _warn_of_nothing(names)
    return names


def _warn_of_nothing(names: Sequence[str]) -> None:
    """Somebody who names a folder wants to know that nothing in it fits."""
    named = os.environ.get("EDGELLM_KERNELS")
    if named and not names:
        kind = f"{target.system()}-{isa.architecture()}"
        warnings.warn(
            f"EDGELLM_KERNELS={named} holds no kernels of this edgellm for {kind}, so they are compiled; "
            "make them with `edgellm kernels build`",
            RuntimeWarning,
            stacklevel=3,
        )


def read_objects(names: Sequence[str], level: Level) -> dict[str, bytes]:
    """-> those of the kernels `names` that came with the application."""
    found: dict[str, bytes] = {}
    for folder in folders(level):
        for name in names:
            if name not in found and (code := store.read_object(folder, name)) is not None:
                found[name] = code
    return found
