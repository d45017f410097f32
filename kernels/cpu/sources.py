"""The text of everything that kernels are made of: what is compiled from it, or packed by it, is good for that text only.

Works from a folder, a zip and a frozen application, whose importer may have byte code alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from types import CodeType
from typing import Any

_FOLDER = Path(__file__).resolve().parent.parent
_PACKAGE = __name__.rpartition(".cpu.")[0]

LAYOUT_FILES = ("isa", "matmul", "packed_file", "simd", "slots", "target", "vector", "weights")
"""The files of this folder that have a say in how a matrix is packed, beside the formats: a test checks that they are all."""


def read_sources() -> bytes | None:
    """Return the text of all kernels and of what compiles them; None where there is byte code only."""
    return _read(["cache_layout", *_modules("cpu"), *_modules("formats"), *_modules("cache_formats")])


def read_layout_sources() -> bytes:
    """Return the text, or else the byte code, of everything that decides how a matrix is packed."""
    names = [*(f"cpu.{name}" for name in LAYOUT_FILES), *_modules("formats")]
    text = _read(names)
    return _read_byte_code(names) if text is None else text


def read_byte_code() -> bytes:
    """Return what stands for `read_sources` where that is None: the same whenever the application's byte code is."""
    return _read_byte_code(["cache_layout", *_modules("cpu"), *_modules("formats"), *_modules("cache_formats")])


def _modules(package: str) -> list[str]:
    names = [path.stem for path in (_FOLDER / package).glob("*.py")]
    if not names:  # a zip or a frozen application
        spec = find_spec(f"{_PACKAGE}.{package}")
        names = [module.name for module in iter_modules(spec.submodule_search_locations if spec else None)]
    return [f"{package}.{name}" for name in sorted(names) if name != "__init__"]


def _read(names: Sequence[str]) -> bytes | None:
    """The texts one after the other; line ends are those of Unix, whatever a checkout made of them."""
    if (_FOLDER / "cache_layout.py").is_file():
        texts = [(_FOLDER / f"{name.replace('.', '/')}.py").read_bytes() for name in names]
        return b"".join(texts).replace(b"\r\n", b"\n")
    found = [_ask(name, "get_source") for name in names]
    return None if None in found else "".join(found).replace("\r\n", "\n").encode()


def _read_byte_code(names: Sequence[str]) -> bytes:
    return repr([_describe(_ask(name, "get_code")) for name in names]).encode()


def _ask(name: str, method: str) -> Any:
    """Ask a module's importer for its source or its code; None if it has none."""
    spec = find_spec(f"{_PACKAGE}.{name}")
    get: Callable[[str], Any] | None = getattr(spec.loader, method, None) if spec else None
    return get(f"{_PACKAGE}.{name}") if get else None


def _describe(value: object) -> object:
    """What byte code does, without the places of its files: a one-file application unpacks itself to a new one each time."""
    if isinstance(value, CodeType):
        constants = [_describe(constant) for constant in value.co_consts]
        return [value.co_name, value.co_code, value.co_names, value.co_varnames, value.co_freevars, constants]
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)
