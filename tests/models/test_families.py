"""What dense families read of a file beyond shapes: defaults of old files, senseless values, variants that are refused."""

from __future__ import annotations

import numpy as np
import pytest

from edgellm.errors import EdgeLLMError
from edgellm.kernels.rope import magnitude


def attributes(program, op_name: str, key: str) -> list:
    return [op.attributes[key] for op in program.ops if op.name == op_name]


def test_mistral3_lets_queries_grow_but_not_keys(converted) -> None:
    ropes = attributes(converted("mistral3").build(), "rope", "rope")
    assert [(rope.temperature, rope.temperature_length) for rope in ropes[:2]] == [(0.5, 64), (0.0, 1)]
    assert {magnitude(rope) for rope in ropes} == {1.0}  # YaRN's is taken away again
    for none in (None, 0.0):
        ropes = attributes(converted("mistral3", **{"attention.temperature_scale": none}).build(), "rope", "rope")
        assert ropes[0] == ropes[1]
    stretched = converted("mistral3", **{"rope.scaling.yarn_log_multiplier": None}).build()
    assert magnitude(attributes(stretched, "rope", "rope")[0]) == pytest.approx(1 + 0.1 * np.log(8))


def test_smollm3_s_fourth_layers_do_not_turn(converted) -> None:
    names = [op.name for op in converted("smollm3").build().ops if op.name in ("rope", "attention")]
    assert names == ["rope", "rope", "attention"] * 3 + ["attention"] + ["rope", "rope", "attention"]


def test_gemma2_of_an_old_file_has_its_caps_and_window(converted) -> None:
    keys = ("attn_logit_softcapping", "final_logit_softcapping", "attention.sliding_window")
    program = converted("gemma2", **dict.fromkeys(keys)).build()
    assert set(attributes(program, "attention", "softcap")) == {50.0}
    assert attributes(program, "softcap", "cap") == [30.0]
    assert [layer.window for layer in program.cache_layers] == [4096, None, 4096, None]


def test_gemma2_27b_divides_by_another_root(converted) -> None:
    file = converted("gemma2", block_count=46, **{"attention.key_length": 32, "attention.value_length": 32})
    for name in [n for n in file.shapes if n.startswith("blk.")]:
        del file.shapes[name]
    one = {n: s for n, s in converted("gemma2").shapes.items() if n.startswith("blk.0.")}
    wide = {f"attn_{c}.weight": (heads * 32, 64) for c, heads in (("q", 4), ("k", 2), ("v", 2))}
    wide["attn_output.weight"] = (64, 128)
    for i in range(46):
        file.shapes |= {n.replace("blk.0.", f"blk.{i}."): wide.get(n.removeprefix("blk.0."), s) for n, s in one.items()}
    assert set(attributes(file.build(), "attention", "scale")) == {16**-0.5}


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        ("mistral3", "attention.temperature_scale", -1.0, "mistral3.attention.temperature_scale is -1.0"),
        ("mistral3", "attention.temperature_scale", np.ones(2), "mistral3.attention.temperature_scale is array"),
        ("mistral3", "rope.dimension_count", 8, "turn only 8 of a head's 16"),
        ("mistral3", "expert_count", 8, "mixture of experts"),
        ("gemma2", "final_logit_softcapping", 0.0, "gemma2.final_logit_softcapping is 0.0"),
        ("glm4", "nextn_predict_layers", 1, "glm4.nextn_predict_layers = 1"),
        ("glm4", "rope.dimension_sections", np.array([8, 12, 12, 0]), "glm4.rope.dimension_sections"),
        ("phi3", "attention.sliding_window", -1, "phi3.attention.sliding_window is -1"),
        (
            "olmo3",
            "attention.sliding_window_pattern",
            np.ones(3, bool),
            "olmo2.attention.sliding_window_pattern holds 3",
        ),
        ("qwen3", "attention.layer_norm_rms_epsilon", None, "lacks qwen3.attention.layer_norm_rms_epsilon"),
    ],
)
def test_senseless_or_unknown_settings_are_named(converted, name: str, key: str, value: object, message: str) -> None:
    with pytest.raises(EdgeLLMError) as error:
        converted(name, **{key: value}).build()
    assert message in str(error.value) and "\n" not in str(error.value)
