"""LoRA adapters beside a model's weights. tools/make_lora.py made the stored ones, out of PEFT's files by llama.cpp's converter;
the logits are Transformers', of the merged weights."""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference_models as stored
from tiny_models import write_model, write_tiny

from edgellm import LLM, EngineConfig, SamplingParams
from edgellm.cli.options import adapter
from edgellm.errors import ModelFileError, OptionError, UnsupportedError
from edgellm.gguf import open_gguf
from edgellm.kernels.adapters import Adapters, Delta
from edgellm.lora import AdapterSet

DATA = stored.DATA.parent / "lora"
NAMES = ("gemma3", "llama")
MAX_ERROR, MAX_Q8_ERROR = 1e-4, 0.05
OPTIONS = {"max_tokens": 16, "temperature": 1.0, "seed": 3, "ignore_eos": True}
WAYS: tuple[dict[str, float] | None, ...] = (None, {}, {"other": 0.5}, {"llama": 1.0, "other": -0.7}, {"llama": 0.25})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lora")
    for name in NAMES:
        (folder / "adapters").mkdir(exist_ok=True)
        (folder / "adapters" / f"{name}.gguf").write_bytes(lzma.decompress((DATA / f"{name}.gguf.xz").read_bytes()))
        stored.unpack(name, folder)
    stored.requantise(folder / "llama.gguf", folder / "llama.Q8_0.gguf", "Q8_0")
    write_adapter(folder / "adapters" / "other.gguf", folder / "llama.gguf", form="F16")
    return folder


def write_adapter(
    path: Path, model: Path, form: str = "F32", metadata: dict[str, Any] | None = None, **tensors: Any
) -> Path:
    """A random adapter of rank 8 for two matrices of a model. tensors: others, or None to leave one out."""
    rng = np.random.default_rng(1)
    values: dict[str, Any] = {}
    with open_gguf(model) as file:
        architecture = file.require("general.architecture")
        for name in ("blk.0.attn_q.weight", "blk.1.ffn_down.weight"):
            rows, width = (int(n) for n in file.tensors[name].shape)
            values[f"{name}.lora_a"] = (rng.normal(size=(8, width)) / 8).astype(np.float32)
            values[f"{name}.lora_b"] = (rng.normal(size=(rows, 8)) / 4).astype(np.float32)
    keys = {"general.architecture": architecture, "general.type": "adapter", "adapter.type": "lora"} | (metadata or {})
    values = {name: value for name, value in (values | tensors).items() if value is not None}
    return write_model(path, {k: v for k, v in keys.items() if v is not None}, values, {"default": form})


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_says_what_transformers_says_of_merged_weights(name: str, files: Path) -> None:
    with np.load(DATA / f"{name}.npz") as data:
        ids, rows, expected = data["ids"], data["rows"], data["logits"]
    found = stored.run_adapted(files / f"{name}.gguf", [(files / "adapters" / f"{name}.gguf", 1.0)], ids, rows)
    assert np.abs(found - expected).max() <= MAX_ERROR * np.abs(expected).max()
    plain = stored.expected(name)[2]
    assert np.abs(plain - expected).max() > 0.1 * np.abs(expected).max(), "an adapter that does nothing proves nothing"


@pytest.mark.parametrize("name", NAMES)
def test_the_cpu_says_what_the_reference_says(name: str, files: Path) -> None:
    path, made_for = files / "adapters" / f"{name}.gguf", files / f"{name}.gguf"
    with np.load(DATA / f"{name}.npz") as data:
        ids, rows = data["ids"], data["rows"]
    with LLM.load(made_for, threads=2, spec="off", lora=[(path, 0.5)]) as llm:
        for scale, found in ((0.5, llm.logits(ids)), (2.0, llm.logits(ids, lora={name: 2.0}))):
            expected = stored.run_adapted(made_for, [(path, scale)], ids, rows)
            assert np.sqrt(np.mean(np.square(found[rows] - expected))) <= MAX_Q8_ERROR * expected.std()


def test_two_adapters_add_up_and_a_scale_of_zero_is_off(files: Path) -> None:
    first, second = files / "adapters" / "llama.gguf", files / "adapters" / "other.gguf"
    ids = np.arange(3, 40)
    one = stored.run_adapted(files / "llama.gguf", [(first, 1.0), (second, 0.0)], ids)
    both = stored.run_adapted(files / "llama.gguf", [(first, 1.0), (second, 0.5)], ids)
    assert np.array_equal(one, stored.run_adapted(files / "llama.gguf", [(first, 1.0)], ids))
    assert np.abs(one - both).max() > 1e-2
    with LLM.load(files / "llama.gguf", threads=2, spec="off", precise=True, lora=[first, second]) as llm:
        found = llm.logits(ids, lora={"llama": 1.0, "other": 0.5})
    assert np.sqrt(np.mean(np.square(found - both))) <= 0.01 * both.std()


def test_sequences_of_one_batch_use_different_adapters_with_the_bits_they_have_alone(files: Path) -> None:
    ids = [int(i) for i in stored.expected("llama")[0]]
    adapters = [files / "adapters" / "llama.gguf", (files / "adapters" / "other.gguf", 0.5)]
    with LLM.load(files / "llama.Q8_0.gguf", threads=1, spec="off") as llm:
        plain, plain_logits = llm.generate(ids[:100], **OPTIONS).token_ids, llm.logits(ids)
    with LLM.load(files / "llama.Q8_0.gguf", threads=1, spec="off", lora=adapters) as llm:
        alone = [llm.generate(ids[:100], lora=way, **OPTIONS).token_ids for way in WAYS]
        logits = llm.logits(ids)
        assert llm.logits(ids, lora={}).tobytes() == plain_logits.tobytes()
    assert alone[1] == plain and len(set(map(tuple, alone))) == len(WAYS)
    with LLM.load(
        files / "llama.Q8_0.gguf", threads=2, prefill_chunk=7, max_sequences=5, spec="off", lora=adapters
    ) as llm:
        assert llm.logits(ids).tobytes() == logits.tobytes()
        streams = [llm.stream(ids[:100], lora=way, **OPTIONS) for way in WAYS]
        assert [stream.finish().token_ids for stream in streams] == alone
        assert [llm.generate(ids[:100], lora=way, **OPTIONS).token_ids for way in WAYS] == alone
    with LLM.load(files / "llama.Q8_0.gguf", threads=2, spec="ngram", lora=adapters) as llm:
        speculator = llm.loaded.engine.speculator
        assert speculator is not None
        speculator._always = True
        assert [llm.generate(ids[:100], lora=way, **OPTIONS).token_ids for way in WAYS] == alone


def test_a_cached_beginning_is_of_the_adapters_it_was_computed_with(files: Path) -> None:
    ids = list(range(3, 103))
    with LLM.load(files / "llama.Q8_0.gguf", threads=2, lora=[files / "adapters" / "llama.gguf"]) as llm:
        reused = []
        for lora in ({}, None, {"llama": 0.5}, {"llama": 1.0}, {"llama": 0.0}, {"llama": 0.5}):
            reused.append(llm.generate(ids, max_tokens=1, lora=lora).timings.reused_tokens)
        assert reused == [0, 0, 0, 99, 99, 99]


def test_a_request_names_its_adapters(files: Path) -> None:
    with LLM.load(files / "llama.gguf", threads=1, lora={files / "adapters" / "other.gguf": 0.25}.items()) as llm:
        assert llm.adapters == {"other": 0.25}
        with pytest.raises(
            OptionError, match="lora names an adapter 'style' that is not there; the adapters are other"
        ):
            llm.generate("a", lora={"style": 1.0})
        assert llm.embed("a b").shape == (1, 64)
    with LLM.load(files / "llama.gguf", threads=1) as llm, pytest.raises(OptionError, match="loaded without any"):
        llm.generate("a", lora={"style": 1.0})


@pytest.mark.parametrize("lora", ["other", {"other": "much"}, {"other": float("nan")}, {"other": 1e9}])
def test_what_is_no_choice_of_adapters(lora: Any) -> None:
    with pytest.raises(OptionError, match="lora"):
        SamplingParams(lora=lora)


@pytest.mark.parametrize("lora", [3, [3], [("a", "b")], [("a", 1, 2)]])
def test_what_is_no_list_of_adapters(lora: Any) -> None:
    with pytest.raises(OptionError, match="lora"):
        EngineConfig(lora=lora)


def test_the_command_line_names_a_path_and_a_scale(tmp_path: Path) -> None:
    assert adapter("a/b.gguf") == ("a/b.gguf", 1.0)
    assert adapter("a/b.gguf:0.5") == ("a/b.gguf", 0.5)
    assert adapter(r"C:\b.gguf") == (r"C:\b.gguf", 1.0)
    assert adapter(r"C:\b.gguf:-2") == (r"C:\b.gguf", -2.0)


Q = "blk.0.attn_q.weight"
REFUSALS: dict[str, tuple[type[Exception], str, dict[str, Any]]] = {
    "another architecture": (ModelFileError, "for 'gemma3' models", {"metadata": {"general.architecture": "gemma3"}}),
    "a model": (ModelFileError, "is not an adapter", {"metadata": {"general.type": "model"}}),
    "nothing said": (ModelFileError, "general.type is not given", {"metadata": {"general.type": None}}),
    "another kind": (UnsupportedError, "adapters of the type 'boft'", {"metadata": {"adapter.type": "boft"}}),
    "one that begins later": (
        UnsupportedError,
        "alora.invocation_tokens",
        {"metadata": {"adapter.alora.invocation_tokens": [1, 2]}},
    ),
    "no number": (ModelFileError, "adapter.lora.alpha is 'high'", {"metadata": {"adapter.lora.alpha": "high"}}),
    "half": (ModelFileError, "lacks its other half", {f"{Q}.lora_b": None}),
    "a norm": (UnsupportedError, "blk.0.attn_norm.weight", {"blk.0.attn_norm.weight": np.ones(64, np.float32)}),
    "another shape": (ModelFileError, "is 128 x 64 in the model", {f"{Q}.lora_a": np.ones((8, 48), np.float32)}),
    "another rank": (ModelFileError, "is 128 x 64 in the model", {f"{Q}.lora_a": np.ones((4, 64), np.float32)}),
    "a layer too many": (
        ModelFileError,
        "'blk.9.attn_q.weight', which the model has not; the nearest it has is blk.",
        {f"blk.9.attn_q.weight.lora_{half}": np.ones((8, 8), np.float32) for half in "ab"},
    ),
    "a low-rank norm": (
        UnsupportedError,
        "adapters of what rms_norm reads",
        {f"output_norm.weight.lora_{half}": np.ones((8, 8), np.float32) for half in "ab"},
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_an_adapter_that_does_not_fit_is_refused_by_name(case: str, files: Path, tmp_path: Path) -> None:
    kind, message, changes = REFUSALS[case]
    path = write_adapter(tmp_path / "wrong.gguf", files / "llama.gguf", **changes)
    with open_gguf(files / "llama.gguf") as file, pytest.raises(kind, match=message) as caught:
        AdapterSet(file, stored.build(file), [(str(path), 1.0)])
    assert "\n" not in str(caught.value) and "wrong.gguf" in str(caught.value)


def test_a_token_table_that_is_the_output_too_cannot_be_adapted(files: Path, tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "tied.gguf", "llama", vocab=128)
    table = {f"token_embd.weight.lora_{half}": np.ones((n, 8), np.float32) for half, n in (("a", 128), ("b", 64))}
    path = write_adapter(tmp_path / "tied_adapter.gguf", model, **table)
    with (
        open_gguf(model) as file,
        pytest.raises(UnsupportedError, match=r"token_embd.weight.*both to read and to write"),
    ):
        AdapterSet(file, stored.build(file), [(str(path), 1.0)])


def test_two_of_one_name_and_an_adapter_as_a_model_are_refused(files: Path) -> None:
    path = str(files / "adapters" / "other.gguf")
    with open_gguf(files / "llama.gguf") as file, pytest.raises(OptionError, match="two adapters are called other"):
        AdapterSet(file, stored.build(file), [(path, 1.0), (path, 0.5)])
    with pytest.raises(ModelFileError, match=r"is an adapter, not a model: .*--lora other.gguf"):
        LLM.load(path)


def test_parts_of_one_matrix_share_its_adapter(files: Path) -> None:
    """As in fused weights: rows of B follow `start`, A x is computed once."""
    from edgellm.kernels import reference
    from edgellm.kernels.ops import Builder

    rng = np.random.default_rng(5)
    weights = {"table": rng.normal(size=(9, 8)).astype(np.float32), "w": rng.normal(size=(24, 8)).astype(np.float32)}
    weights |= {"a": rng.normal(size=(3, 8)).astype(np.float32), "b": rng.normal(size=(24, 3)).astype(np.float32)}
    builder = Builder()
    x = builder.embed("table", 8)
    total = builder.add(builder.linear(x, "w", 8, start=16), builder.linear(x, "w", 8, start=8))
    program = builder.finish(builder.linear(total, "table", 9))
    adapted = Adapters((Delta(0, "w", "a", "b", 3, 2.0),)).beside(program)
    assert sum(op.weights == ("a",) for op in adapted.ops) == 1 and adapted.hidden == program.hidden
    found = reference.run(adapted, weights, [1, 2, 3], adapter_scales=[0.5])
    merged = weights | {"w": weights["w"] + weights["b"] @ weights["a"]}
    np.testing.assert_allclose(found, reference.run(program, merged, [1, 2, 3]), rtol=1e-4, atol=1e-4)
