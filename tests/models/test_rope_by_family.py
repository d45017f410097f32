"""Case O11 for every family: factors of the frequencies and scaling for long contexts are honoured, or refused by name."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import reference_models as stored
import stored_headers as headers

from edgellm.errors import EdgeLLMError, UnsupportedError
from edgellm.gguf import open_gguf
from edgellm.kernels import reference
from edgellm.kernels.ops import Program, Rope
from edgellm.kernels.rope import cos_sin, magnitude

FAR = np.array([0, 1, 100, 5000], np.int64)
WITHOUT_ROPE = {"bert", "xlm-roberta-rank", "mamba2", "granitehybrid", "granitehybrid-dense"}
"""The converter of Granite's hybrids switches rope off; other files of it may have it on."""
ON = {"rope.scaling.finetuned": True}
WITH_FACTORS = {"arcee", "cohere2", "gemma4", "granite", "granitehybrid", "granitemoe", "llama", "mistral3"}
"""Architectures that read rope_freqs.weight: those whose converter may write it, and Cohere's."""
WINDOWS_UNSCALED = {"gemma3", "gemma-embedding", "gemma4", "olmo2"}
"""Layers with a window keep their positions as they are, whatever the others do."""
SHARES_A_BASE = {"cohere2", "gemma2", "gpt-oss", "olmo2"}
"""Layers with a window turn by the others' base if the file names none of their own."""
TURNING = [name for name in headers.NAMES if name not in WITHOUT_ROPE]
every_turning_model = pytest.mark.parametrize("name", TURNING)
NO_SCALING = {
    f"rope.scaling.{key}": None
    for key in ("type", "factor", "attn_factor", "yarn_log_multiplier", "original_context_length")
}


def scaled(name: str, kind: str, factor: float = 4.0, **keys: object) -> list[tuple[Rope, int | None]]:
    """How a stored model turns with such a scaling, each rotation with the window of its layer."""
    header = headers.read(name).set(**NO_SCALING)
    more = {"rope.scaling.type": kind, "rope.scaling.factor": factor, **keys}
    return list(headers.ropes(header.set(**more).build()))


def plain(name: str) -> list[tuple[Rope, int | None]]:
    return list(headers.ropes(headers.read(name).set(**NO_SCALING).build()))


def is_scaled(name: str, window: int | None) -> bool:
    return window is None or headers.read(name).architecture not in WINDOWS_UNSCALED


def has_windows_only(name: str) -> bool:
    return all(window is not None for _, window in plain(name))


def test_the_lists_are_those_of_models_that_exist() -> None:
    architectures = {headers.read(name).architecture for name in headers.NAMES}
    assert architectures >= WITH_FACTORS | WINDOWS_UNSCALED | SHARES_A_BASE
    assert {name for name in headers.NAMES if not plain(name)} == WITHOUT_ROPE


@every_turning_model
def test_linear_scaling_turns_as_a_quarter_of_the_position(name: str) -> None:
    pairs = list(zip(scaled(name, "linear"), plain(name), strict=True))
    assert any(is_scaled(name, window) for (_, window), _ in pairs)
    for (rope, window), (unscaled, _) in pairs:
        factors = None if rope.factors is None else np.linspace(1, 2, rope.dim // 2, dtype=np.float32)
        quarter = FAR if is_scaled(name, window) else 4 * FAR
        grown = replace(rope, temperature=0.0)  # Mistral 3's queries grow with the position itself
        want = cos_sin(replace(unscaled, temperature=0.0), quarter, factors)
        np.testing.assert_allclose(cos_sin(grown, 4 * FAR, factors), want, atol=2e-7)


@every_turning_model
def test_the_old_key_of_linear_scaling_and_a_missing_type_mean_the_same(name: str) -> None:
    header = headers.read(name).set(**NO_SCALING)
    want = header.set(**{"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}).build()
    assert header.set(**{"rope.scaling.factor": 4.0}).build() == want
    assert header.set(**{"rope.scale_linear": 4.0}).build() == want
    assert header.set(**{"rope.scaling.type": "none", "rope.scaling.factor": 4.0}).build() == header.build()


def yarn_angles(rope: Rope, base: float, context: int, whole_pairs: bool) -> np.ndarray:
    """Angles of ggml's rope_yarn with its default corners of 32 and 1 turns, by 4: f64[T, dim / 2]."""

    def corner(turns: float) -> float:
        return rope.dim * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = corner(32.0), corner(1.0)
    if whole_pairs:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(0.0, low), min(rope.dim - 1.0, high)
    pair = np.arange(rope.dim // 2)
    kept = 1 - np.clip((pair - low) / max(0.001, high - low), 0, 1)
    return FAR[:, None] * base ** (-2 * pair / rope.dim) * (kept + (1 - kept) / 4)


@every_turning_model
def test_yarn_is_honoured(name: str) -> None:
    context = {"rope.scaling.original_context_length": 256}
    for (rope, window), (unscaled, _) in zip(scaled(name, "yarn", **context), plain(name), strict=True):
        if not is_scaled(name, window):
            assert replace(rope, original_context=0) == replace(unscaled, original_context=0)
            continue
        assert magnitude(rope) == pytest.approx(1 + 0.1 * math.log(4))
        angles = yarn_angles(rope, unscaled.base, 256, whole_pairs=not name.startswith("gpt-oss"))
        rope = replace(rope, temperature=0.0)
        factors = None if rope.factors is None else np.ones(rope.dim // 2, np.float32)
        got = np.array(cos_sin(rope, FAR, factors)) / magnitude(rope)
        np.testing.assert_allclose(got, [np.cos(angles), np.sin(angles)], atol=1e-6)


@every_turning_model
def test_an_unknown_scaling_is_refused_by_name(name: str) -> None:
    header = headers.read(name)
    for kind in ("mystery", "dynamic", "llama3", "su"):
        with pytest.raises(UnsupportedError, match=rf"'{kind}' \({header.architecture}\.rope\.scaling\.type\)"):
            header.set(**{"rope.scaling.type": kind}).build()


@pytest.mark.parametrize("name", [n for n in TURNING if not any("rope_f" in t for t in headers.read(n).shapes)])
def test_longrope_without_factors_is_refused(name: str) -> None:
    header = headers.read(name)
    with pytest.raises(UnsupportedError, match="'longrope'"):
        header.set(**{"rope.scaling.type": "longrope"}).build()


@every_turning_model
@pytest.mark.parametrize("key", ["rope.scaling.factor", "rope.freq_base"])
def test_senseless_numbers_are_refused(name: str, key: str) -> None:
    for value in (0.0, -1.0, float("nan"), float("inf"), "x"):
        with pytest.raises(EdgeLLMError) as error:
            headers.read(name).set(**{key: value}).build()
        assert f"{headers.read(name).architecture}.{key} is " in str(error.value)


@pytest.mark.parametrize("name", sorted(WITHOUT_ROPE))
def test_models_without_rope_do_not_care_about_its_keys(name: str) -> None:
    header = headers.read(name)
    for kind in ("linear", "yarn", "mystery"):
        assert header.set(**{"rope.scaling.type": kind, "rope.scaling.factor": 4.0}).build() == header.build()


@pytest.mark.parametrize("name", ["granitehybrid", "granitehybrid-dense"])
def test_a_granite_hybrid_with_rope_switched_on_cares(name: str) -> None:
    header = headers.read(name).set(**ON)
    assert [rope.scaling for rope, _ in headers.ropes(header.build())] == ["none"] * 2
    linear = header.set(**{"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}).build()
    assert {(rope.scaling, rope.factor) for rope, _ in headers.ropes(linear)} == {("linear", 4.0)}
    with pytest.raises(UnsupportedError, match="'mystery'"):
        header.set(**{"rope.scaling.type": "mystery"}).build()


def with_factors(name: str) -> headers.Header:
    header = headers.read(name)
    header = header.set(**ON) if header.architecture == "granitehybrid" else header
    if "rope_freqs.weight" in header.shapes:
        return header
    rope = next(headers.ropes(header.build()))[0]
    return header.reshape({"rope_freqs.weight": (rope.dim // 2,)})


@pytest.mark.parametrize("name", headers.NAMES)
def test_factors_are_honoured_or_refused_never_skipped(name: str) -> None:
    if headers.read(name).architecture in WITH_FACTORS:
        ropes = list(headers.ropes(with_factors(name).build()))
        is_full_only = headers.read(name).architecture == "gemma4"
        turned = [rope for rope, window in ropes if rope.factors == "rope_freqs.weight"]
        assert turned and len(turned) == len([0 for _, window in ropes if window is None or not is_full_only])
        return
    for rows in (4, 8, 16):
        with pytest.raises(UnsupportedError, match=r"tensor 'rope_freqs\.weight' is not part of the"):
            headers.read(name).reshape({"rope_freqs.weight": (rows,)}).build()


def program_and_weights(name: str, folder: Path) -> tuple[Program, dict[str, np.ndarray]]:
    with open_gguf(stored.unpack(name, folder)) as file:
        weights = {tensor: values.copy() for tensor, values in stored.FileWeights(file).items()}
    header = with_factors(name)
    weights.setdefault("rope_freqs.weight", np.ones(header.shapes["rope_freqs.weight"], np.float32))
    return header.build(), weights


@pytest.mark.parametrize("name", [n for n in headers.NAMES if headers.read(n).architecture in WITH_FACTORS])
def test_factors_change_logits_far_out(name: str, tmp_path: Path) -> None:
    """The last half 8: the logits of the last of 120 ids are others, those of the first are not."""
    program, weights = program_and_weights(name, tmp_path)
    ids, count = stored.expected(name)[0][:120], len(weights["rope_freqs.weight"])
    half = np.ones(count // 2, np.float32)
    weights["rope_freqs.weight"] = np.append(half, half)
    last = [0, len(ids) - 1]
    with_ones = reference.run(program, weights, ids, last)
    eights = reference.run(program, weights | {"rope_freqs.weight": np.append(half, 8 * half)}, ids, last)
    np.testing.assert_allclose(eights[0], with_ones[0], rtol=1e-4, atol=1e-5)
    assert np.abs(eights[1] - with_ones[1]).max() > 1e-4 * np.abs(with_ones[1]).max()
    if "rope_freqs.weight" not in headers.read(name).shapes and "granitehybrid" not in name:
        without = reference.run(headers.read(name).build(), weights, ids, last)
        assert np.array_equal(with_ones, without), "ones are no factors"


@pytest.mark.parametrize("name", [n for n in headers.NAMES if headers.read(n).architecture in SHARES_A_BASE])
def test_layers_with_a_window_have_a_base_of_their_own_where_the_file_says_so(name: str) -> None:
    """Converters write rope.freq_base_swa wherever a model's configuration names two bases."""
    header = headers.read(name).set(**{"rope.freq_base_swa": None})
    shared = {rope.base for rope, _ in headers.ropes(header.build())}
    assert len(shared) == 1
    own = list(headers.ropes(header.set(**{"rope.freq_base_swa": 777.0}).build()))
    assert all((rope.base == 777.0) == (window is not None) for rope, window in own)
    assert any(rope.base == 777.0 for rope, _ in own) == any(window is not None for _, window in own)


@pytest.mark.parametrize("name", ["gemma3", "gemma-embedding", "gemma4", "gemma4-31b", "gemma4-experts"])
def test_gemma_s_windows_turn_by_ten_thousand_unless_the_file_says_otherwise(name: str) -> None:
    header = headers.read(name)
    for said, base in ((None, 10000.0), (777.0, 777.0)):
        ropes = headers.ropes(header.set(**{"rope.freq_base_swa": said}).build())
        assert {rope.base for rope, window in ropes if window is not None} == {base}
    with pytest.raises(EdgeLLMError, match="freq_base_swa is 0"):
        header.set(**{"rope.freq_base_swa": 0}).build()
