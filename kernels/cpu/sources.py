"""The text of everything that kernels are made of: what is compiled from it, or packed by it, is good for that text only.

Works from a folder, a zip and a frozen application, whose importer may have byte code alone.
"""

from __future__ import annotations

import marshal
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules

_FOLDER = Path(__file__).resolve().parent.parent
_PACKAGE = __name__.rpartition(".cpu.")[0]


def read_sources() -> bytes:
    """Return it in one piece; from a folder, which is the usual case, in a few milliseconds."""
    files = sorted([*_FOLDER.glob("cpu/*.py"), *_FOLDER.glob("formats/*.py"), *_FOLDER.glob("cache_layout.py")])
    return b"".join(f.read_bytes() for f in files) if files else _read_through_importer()


def _read_through_importer() -> bytes:
    names = [f"{_PACKAGE}.cache_layout"]
    for package in (f"{_PACKAGE}.cpu", f"{_PACKAGE}.formats"):
        spec = find_spec(package)
        paths = spec.submodule_search_locations if spec else None
        names += sorted(f"{package}.{module.name}" for module in iter_modules(paths))
    return b"".join(map(_read_module, names))


def _read_module(name: str) -> bytes:
    spec = find_spec(name)
    loader = spec.loader if spec else None
    text = loader.get_source(name) if hasattr(loader, "get_source") else None  # type: ignore[union-attr]
    if text is not None:
        return str(text).encode()
    code = loader.get_code(name) if hasattr(loader, "get_code") else None  # type: ignore[union-attr]
    return marshal.dumps(code)
