"""The stored models of tests/data/architectures/: unpacking them, and running a file on the NumPy reference."""

from __future__ import annotations

import lzma
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader
from numpy.typing import NDArray
from tiny_models import write_model

from edgellm import LLM, models
from edgellm.gguf import GGUFFile, open_gguf
from edgellm.kernels import formats, reference
from edgellm.lora import AdapterSet

DATA = Path(__file__).parent.parent / "data" / "architectures"
NAMES = sorted(path.name.removesuffix(".gguf.xz") for path in DATA.glob("*.gguf.xz"))
ENCODERS = [name for name in NAMES if name in ("bert", "gemma-embedding", "nomic-bert", "xlm-roberta-rank")]
"""Those whose answers are hidden states."""
Floats = NDArray[np.float32]


class FileWeights(Mapping[str, Floats]):
    """All weights of a file as float32, made when they are asked for."""

    def __init__(self, file: GGUFFile | AdapterSet) -> None:
        self._file = file

    def __getitem__(self, name: str) -> Floats:
        tensor = self._file.tensors[name]
        form, width = formats.get(tensor.type_name), int(tensor.shape[-1])
        rows = np.ascontiguousarray(self._file.data(name)).view(np.uint8).reshape(-1, form.row_bytes(width))
        return np.asarray(form.dequantize(rows).reshape(tensor.shape), np.float32)

    def __iter__(self) -> Iterator[str]:
        return iter(self._file.tensors)

    def __len__(self) -> int:
        return len(self._file.tensors)


def unpack(name: str, folder: Path) -> Path:
    """Write a stored model into a folder. -> its path."""
    path = folder / f"{name}.gguf"
    path.write_bytes(lzma.decompress((DATA / f"{name}.gguf.xz").read_bytes()))
    return path


def expected(name: str) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Transformers' answer: ids i64[T], some of its rows, and their logits."""
    with np.load(DATA / f"{name}.npz") as data:
        return data["ids"], data["rows"], data["logits"]


def expected_more(name: str, key: str) -> Floats:
    """What else Transformers answered: "typed", the rows when the text's second half is of the second type; "scores"."""
    with np.load(DATA / f"{name}.npz") as data:
        return np.asarray(data[key])


def build(file: GGUFFile) -> Any:
    """The program of a file."""
    return models.get(str(file.get("general.architecture"))).build(file.metadata, file.tensors)


def run_reference(
    file: GGUFFile,
    ids: NDArray[np.int64],
    rows: NDArray[np.int64] | None = None,
    types: NDArray[np.int64] | None = None,
) -> Floats:
    """Logits of a file by the NumPy reference. types: of the tokens, where a model tells parts of a text apart."""
    return reference.run(build(file), FileWeights(file), ids, rows, types)


def answer(llm: LLM, ids: NDArray[np.int64]) -> Floats:
    """What a loaded model says to ids: logits f32[T, V], or an encoder's hidden states f32[T, E]."""
    text = [int(i) for i in ids]
    return llm.embed_tokens([text])[0] if llm.loaded.engine.is_encoder else llm.logits(text)


def run_adapted(
    model: Path, adapters: Sequence[tuple[Path, float]], ids: NDArray[np.int64], rows: NDArray[np.int64] | None = None
) -> Floats:
    """The same with LoRA adapters, each so many times."""
    with open_gguf(model) as file:
        program = build(file)
        found = AdapterSet(file, program, [(str(path), scale) for path, scale in adapters])
        try:
            assert found.adapters is not None
            scales = found.choose(None)
            return reference.run(found.adapters.beside(program), FileWeights(found), ids, rows, adapter_scales=scales)
        finally:
            found.close()


def requantise(source: Path, target: Path, form: str) -> Path:
    """Write a float32 model with its matrices in another format, where rows fit it. -> target."""
    reader = GGUFReader(source)
    block = formats.get(form).group_size
    tensors, kept = {}, {}
    for tensor in reader.tensors:
        values = np.array(tensor.data, np.float32).reshape(tuple(int(n) for n in reversed(tensor.shape)))
        tensors[tensor.name] = values
        kept[tensor.name] = form if values.ndim >= 2 and values.shape[-1] % block == 0 else "F32"
    with open_gguf(source) as file:
        metadata = {key: _plain(value) for key, value in file.metadata.items() if np.size(value)}
        return write_model(target, metadata, tensors, kept | {"default": "F32"})


def _plain(value: Any) -> Any:
    """What a file holds as Python's own types."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value if isinstance(value, (bool, int, float, str, bytes)) else list(value)
