"""The gemma3 builder: which layers see what, which rope they use, and O25's windows against explicit masks."""

from __future__ import annotations

import numpy as np
import pytest

from edgellm.errors import ModelFileError, UnsupportedError
from edgellm.kernels import reference


def attribute(program, op_name: str, key: str) -> list:
    return [op.attributes[key] for op in program.ops if op.name == op_name]


def forward(w: dict[str, np.ndarray], ids: list[int], window: int) -> np.ndarray:
    """The tiny Gemma of conftest.py in float64, heads and pairs written out: independent of kernels/reference.py."""
    w = {name: value.astype(np.float64) for name, value in w.items()}
    n = len(ids)

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * w[name]

    def turn(x: np.ndarray, base: float) -> np.ndarray:
        angles = np.outer(np.arange(n), base ** (-np.arange(8) / 8))
        z = (x[:, :8] + 1j * x[:, 8:]) * np.exp(1j * angles)
        return np.hstack([z.real, z.imag])

    x = w["token_embd.weight"][ids] * np.sqrt(24.0)
    for i in range(7):
        reach, base = (n, 1e6) if i == 5 else (window, 10000.0)
        t = f"blk.{i}."
        h = norm(x, t + "attn_norm.weight")
        k = turn(norm(h @ w[t + "attn_k.weight"].T, t + "attn_k_norm.weight"), base)
        v = h @ w[t + "attn_v.weight"].T
        heads = []
        for rows in (slice(0, 16), slice(16, 32)):
            q = turn(norm(h @ w[t + "attn_q.weight"][rows].T, t + "attn_q_norm.weight"), base)
            out = np.zeros((n, 16))
            for p in range(n):
                seen = range(max(0, p - reach + 1), p + 1)
                weight = np.exp([q[p] @ k[s] / 4.0 for s in seen])
                out[p] = weight @ v[seen.start : seen.stop] / weight.sum()
            heads.append(out)
        x = x + norm(np.hstack(heads) @ w[t + "attn_output.weight"].T, t + "post_attention_norm.weight")
        h = norm(x, t + "ffn_norm.weight")
        g = h @ w[t + "ffn_gate.weight"].T
        g = g / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (g + 0.044715 * g**3)))
        x = x + norm((g * (h @ w[t + "ffn_up.weight"].T)) @ w[t + "ffn_down.weight"].T, t + "post_ffw_norm.weight")
    return norm(x, "output_norm.weight") @ w["token_embd.weight"].T


@pytest.mark.parametrize("length", [1, 7, 8, 9, 15, 16, 17, 20])
def test_logits_at_lengths_around_the_window(gemma3, length: int) -> None:
    file = gemma3()
    w = file.weights()
    ids = [i * 5 % 31 for i in range(length)]
    got = reference.run(file.build(), w, ids)
    np.testing.assert_allclose(got, forward(w, ids, 8), rtol=1e-4, atol=1e-4)
    if length > 8:
        assert np.abs(got[8:] - forward(w, ids, 9)[8:]).max() > 1e-3


def test_every_sixth_layer_sees_everything(gemma3) -> None:
    program = gemma3().build()
    assert [layer.window for layer in program.cache_layers] == [8, 8, 8, 8, 8, None, 8]
    bases = [rope.base for rope in attribute(program, "rope", "rope")[::2]]
    assert bases == [1e4, 1e4, 1e4, 1e4, 1e4, 1e6, 1e4]
    assert {rope.pairs for rope in attribute(program, "rope", "rope")} == {"halves"}
    assert attribute(program, "embed", "scale") == [24**0.5]


@pytest.mark.parametrize(
    ("pattern", "windows"),
    [
        (2, [8, None, 8, None, 8, None, 8]),
        (1, [None] * 7),
        (0, [8] * 7),
        (np.array([0, 1, 1, 1, 1, 1, 0], bool), [None, 8, 8, 8, 8, 8, None]),
    ],
)
def test_the_file_may_give_another_pattern(gemma3, pattern: object, windows: list) -> None:
    program = gemma3(**{"attention.sliding_window_pattern": pattern}).build()
    assert [layer.window for layer in program.cache_layers] == windows


def test_no_window_means_full_layers_everywhere(gemma3) -> None:
    for window in (0, None):
        program = gemma3(**{"attention.sliding_window": window}).build()
        assert {layer.window for layer in program.cache_layers} == {None}
        assert {rope.base for rope in attribute(program, "rope", "rope")} == {1e6}


def test_scaling_is_for_full_layers_only(gemma3) -> None:
    changes = {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0, "rope.freq_base_swa": 5000.0}
    ropes = attribute(gemma3(**changes).build(), "rope", "rope")[::2]
    assert [(r.base, r.scaling, r.factor) for r in ropes[4:6]] == [(5000.0, "none", 1.0), (1e6, "linear", 8.0)]


def test_attention_scale(gemma3) -> None:
    assert set(attribute(gemma3().build(), "attention", "scale")) == {16**-0.5}
    file = gemma3(block_count=62)  # the 27B model alone divides by the square root of hidden / heads
    for i in range(7, 62):
        file.shapes |= {n.replace("blk.0.", f"blk.{i}."): s for n, s in file.shapes.items() if n.startswith("blk.0.")}
    assert set(attribute(file.build(), "attention", "scale")) == {12**-0.5}


def test_faults_are_named(gemma3) -> None:
    with pytest.raises(ModelFileError, match="lacks gemma3.rope.freq_base"):
        gemma3(**{"rope.freq_base": None}).build()
    with pytest.raises(ModelFileError, match="sliding_window_pattern holds 3 values of bool, .* of 7 layers"):
        gemma3(**{"attention.sliding_window_pattern": np.ones(3, bool)}).build()
    with pytest.raises(UnsupportedError, match="attn_logit_softcapping"):
        gemma3(attn_logit_softcapping=30.0).build()
    file = gemma3()
    del file.shapes["blk.3.attn_q_norm.weight"]
    with pytest.raises(ModelFileError, match=r"lacks the tensor blk\.3\.attn_q_norm\.weight"):
        file.build()
    file = gemma3()
    file.shapes["v.blk.0.attn_q.weight"] = (8, 8)
    with pytest.raises(UnsupportedError, match=r"v\.blk\.0\.attn_q\.weight"):
        file.build()
