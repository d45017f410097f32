"""LoRA adapters in GGUF, as llama.cpp's converter writes them: opened, checked against the model, named.

An adapter holds, for some matrices W of a model, two of low rank: `W.lora_a` and `W.lora_b`; what is applied is
W + scale * alpha / rank * B A. Beside a token table A is transposed: a row for each token. Knows no arithmetic.
Next hops: `kernels/adapters.py` puts them into the program, `sequence.py` carries what a request wants of each.
Source of the keys and names: llama.cpp, convert_lora_to_gguf.py and src/llama-adapter.cpp.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import ModelFileError, OptionError, UnsupportedError
from .gguf import GGUFFile, TensorInfo, open_gguf
from .gguf_header import quote
from .kernels.adapters import Adapters, Delta
from .kernels.cpu.slots import MAX_ADAPTERS
from .kernels.ops import Program

A, B = ".lora_a", ".lora_b"
_INVOCATION = "adapter.alora.invocation_tokens"


class AdapterSet:
    """The adapters of a loaded model: their names, in order, and the scales a request gets that asks for nothing.

    tensors, data, forget: the model's tensors and the adapters' own, `NUMBER:NAME`, as a backend reads them; until `close`.
    """

    def __init__(self, model: GGUFFile, program: Program, wanted: Iterable[tuple[str, float]]) -> None:
        """Open and check the files. Raises ModelFileError, UnsupportedError or OptionError, naming file and tensor."""
        self.scales: dict[str, float] = {}
        self._model, self._files = model, list[GGUFFile]()
        self.tensors: dict[str, TensorInfo] = dict(model.tensors)
        deltas: list[Delta] = []
        try:
            for number, (path, scale) in enumerate(wanted):
                self._add_name(path, scale)
                file = open_gguf(path)
                self._files.append(file)
                deltas += _read(file, number, model, program)
                self.tensors |= {f"{number}:{name}": info for name, info in file.tensors.items()}
        except BaseException:
            self.close()
            raise
        self.adapters = Adapters(tuple(deltas)) if deltas else None

    def data(self, name: str) -> NDArray[np.uint8]:
        """A tensor's bytes."""
        file, own_name = self._find(name)
        return file.data(own_name)

    def forget(self, name: str) -> None:
        """Let go of the memory that mapping a tensor took."""
        file, own_name = self._find(name)
        file.forget(own_name)

    def choose(self, wanted: Mapping[str, float] | None) -> tuple[float, ...]:
        """How much of each adapter a request gets: all as they were loaded if None, else what it names and no other.

        Raises OptionError for a name that is not there.
        """
        if wanted is None:
            return tuple(self.scales.values())
        for name in wanted:
            if name not in self.scales:
                known = (
                    f"the adapters are {', '.join(self.scales)}" if self.scales else "this model was loaded without any"
                )
                raise OptionError(f"lora names an adapter {name!r} that is not there; {known}")
        return tuple(float(wanted.get(name, 0.0)) for name in self.scales)

    def close(self) -> None:
        """Close the adapters' files; what is in memory stays."""
        for file in self._files:
            file.close()

    def _add_name(self, path: str, scale: float) -> None:
        name = Path(path).stem
        if name in self.scales:
            raise OptionError(f"lora: two adapters are called {name}; rename one of the files")
        if len(self.scales) == MAX_ADAPTERS:
            raise OptionError(f"lora: at most {MAX_ADAPTERS} adapters can be loaded at once")
        self.scales[name] = scale

    def _find(self, name: str) -> tuple[GGUFFile, str]:
        number, colon, own_name = name.partition(":")
        if (
            colon
            and number.isdecimal()
            and int(number) < len(self._files)
            and own_name in self._files[int(number)].tensors
        ):
            return self._files[int(number)], own_name
        return self._model, name


def refuse_adapter(file: GGUFFile) -> None:
    """Refuse an adapter that was given as a model."""
    if file.get("general.type") == "adapter":
        raise ModelFileError(
            f"{file.path} is an adapter, not a model: load the model it was made for, and this with --lora {file.path.name}"
        )


def _read(file: GGUFFile, number: int, model: GGUFFile, program: Program) -> list[Delta]:
    """What one adapter changes, checked against the model."""
    alpha = _check_metadata(file, str(model.get("general.architecture")))
    readers: dict[str, list[str]] = {}
    for op in program.ops:
        for weight in op.weights:
            readers.setdefault(weight, []).append(op.name)
    deltas = []
    for name in dict.fromkeys(_weight_of(file, tensor) for tensor in file.tensors):
        _check_weight(file, name, model, readers)
        rank = _check_shapes(file, name, model, is_table=readers[name] == ["embed"])
        deltas.append(
            Delta(number, name, f"{number}:{name}{A}", f"{number}:{name}{B}", rank, alpha / rank if alpha else 1.0)
        )
    if not deltas:
        raise ModelFileError(f"{file.path}: the adapter holds no tensors")
    return deltas


def _check_metadata(file: GGUFFile, architecture: str) -> float:
    """-> alpha, 0 if the file says none."""
    kind = file.get("general.type")
    if kind != "adapter":
        raise ModelFileError(f"{file.path} is not an adapter (general.type is {_show(kind)}, not 'adapter')")
    if (kind := file.get("adapter.type")) != "lora":
        raise UnsupportedError(f"{file.path}: adapters of the type {_show(kind)} are not supported, only 'lora'")
    if (found := file.get("general.architecture")) != architecture:
        raise ModelFileError(
            f"{file.path} is an adapter for {_show(found)} models, but the model is a {architecture!r} one"
        )
    if _INVOCATION in file.metadata:
        raise UnsupportedError(f"{file.path}: adapters that begin at certain words ({_INVOCATION}) are not supported")
    alpha = file.get("adapter.lora.alpha", 0.0)
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not math.isfinite(alpha):
        raise ModelFileError(f"{file.path}: adapter.lora.alpha is {_show(alpha)}, but must be a number")
    return float(alpha)


def _weight_of(file: GGUFFile, tensor: str) -> str:
    """The model's tensor that one of the adapter's belongs to."""
    for suffix, other in ((A, B), (B, A)):
        if tensor.endswith(suffix):
            name = tensor.removesuffix(suffix)
            if name + other not in file.tensors:
                raise ModelFileError(
                    f"{file.path}: the tensor {quote(tensor)} lacks its other half, {quote(name + other)}"
                )
            return name
    raise UnsupportedError(
        f"{file.path}: the tensor {quote(tensor)} is no half of a low-rank matrix ({A}, {B}); an adapter that replaces"
        " weights, such as norms, would come out wrong without them"
    )


def _check_weight(file: GGUFFile, name: str, model: GGUFFile, readers: Mapping[str, list[str]]) -> None:
    """Refuse what the model has not, or what is no plain matrix in it."""
    if name not in model.tensors or name not in readers:
        near = difflib.get_close_matches(name, readers, 1)
        hint = f"; the nearest it has is {near[0]}" if near else ""
        raise ModelFileError(
            f"{file.path} changes {quote(name)}, which the model has not{hint}: it is for another model"
        )
    kinds = set(readers[name])
    if kinds == {"embed", "linear"}:
        raise UnsupportedError(
            f"{file.path} changes {quote(name)}, which this model uses both to read and to write tokens:"
            " nobody can say which of them the adapter means"
        )
    if kinds not in ({"linear"}, {"embed"}):
        raise UnsupportedError(
            f"{file.path} changes {quote(name)}: adapters of what {', '.join(kinds)} reads are not supported"
        )


def _check_shapes(file: GGUFFile, name: str, model: GGUFFile, is_table: bool) -> int:
    """-> the rank."""
    a, b = (tuple(int(n) for n in file.tensors[name + suffix].shape) for suffix in (A, B))
    rows, width = (int(n) for n in model.tensors[name].shape)
    rank = b[-1] if len(b) == 2 else 0
    fits = (a, b) == (((rows, rank), (width, rank)) if is_table else ((rank, width), (rows, rank)))
    if not fits or rank < 1:
        raise ModelFileError(
            f"{file.path}: {quote(name)} is {rows} x {width} in the model, which halves of the shapes {a} and {b} do not fit:"
            " it is for another model"
        )
    return rank


def _show(value: Any) -> str:
    return "not given" if value is None else quote(str(value))
