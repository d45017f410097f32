"""The text of everything that kernels are made of: what is compiled from it, or packed by it, is good for that text only.

Works from a folder, a zip and a frozen application, whose importer may have byte code alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from types import CodeType

_FOLDER = Path(__file__).resolve().parent.parent
_PACKAGE = __name__.rpartition(".cpu.")[0]


LAYOUT_FILES = ("matmul", "packed_file", "simd", "slots", "vector", "weights")
"""The files of this folder that have a say in how a matrix is packed, beside the formats: a test checks that they are all."""


def read_sources() -> bytes:
    """Return the text of all kernels in one piece; from a folder, which is the usual case, in a few milliseconds."""
    return _read(["cache_layout", *_modules("cpu"), *_modules("formats")])


def read_layout_sources() -> bytes:
    """Return the text of everything that decides how a matrix is packed."""
    return _read([*(f"cpu.{name}" for name in LAYOUT_FILES), *_modules("formats")])


def _modules(package: str) -> list[str]:
    files = [path.stem for path in (_FOLDER / package).glob("*.py")]
    if not files:  # a zip or a frozen application
        spec = find_spec(f"{_PACKAGE}.{package}")
        files = [module.name for module in iter_modules(spec.submodule_search_locations if spec else None)]
    return [f"{package}.{name}" for name in sorted(files) if name != "__init__"]


def _read(names: Sequence[str]) -> bytes:
    if (_FOLDER / "cache_layout.py").is_file():
        return b"".join((_FOLDER / f"{name.replace('.', '/')}.py").read_bytes() for name in names)
    return b"".join(_read_module(f"{_PACKAGE}.{name}") for name in names)


def _read_module(name: str) -> bytes:
    spec = find_spec(name)
    loader = spec.loader if spec else None
    text = loader.get_source(name) if hasattr(loader, "get_source") else None  # type: ignore[union-attr]
    if text is not None:
        return str(text).encode()
    code = loader.get_code(name) if hasattr(loader, "get_code") else None  # type: ignore[union-attr]
    return repr(_describe(code)).encode()


def _describe(value: object) -> object:
    """What byte code does, without the places of its files: a one-file application unpacks itself to a new one each time."""
    if isinstance(value, CodeType):
        constants = [_describe(constant) for constant in value.co_consts]
        return [value.co_name, value.co_code, value.co_names, value.co_varnames, value.co_freevars, constants]
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)
