"""Phi-3's two sets of factors: which is used by the length of the context, on the reference and in an engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import reference_models as stored

from edgellm import LLM
from edgellm.errors import ModelFileError
from edgellm.gguf import open_gguf
from edgellm.kernels import reference
from edgellm.kernels.context_rope import with_context


def factors_of(program) -> set[str]:
    return {name for op in program.ops if op.name == "rope" for name in op.weights}


def test_the_context_s_length_chooses_the_factors(converted) -> None:
    long, short = {"rope_factors_long.weight"}, {"rope_factors_short.weight"}
    program = converted("phi3-longrope").build()
    assert factors_of(program) == long  # 512 tokens, and the first training had 64
    for context, wanted in ((64, short), (65, long)):
        chosen = with_context(program, context)
        assert factors_of(chosen) == wanted
        assert with_context(chosen, 512) == program
    assert factors_of(converted("phi3").build()) == short
    plain = converted("phi3-window").build()
    assert with_context(plain, 1) == plain


def test_a_model_loaded_for_a_short_context_uses_the_short_ones(tmp_path: Path) -> None:
    path = stored.unpack("phi3-longrope", tmp_path)
    ids = [int(i) for i in stored.expected("phi3-longrope")[0][:60]]
    with open_gguf(path) as file:
        weights, program = stored.FileWeights(file), stored.build(file)
        long, short = (reference.run(with_context(program, n), weights, ids) for n in (512, 64))
    for options in ({"max_context": 64}, {"window": 64}):
        with LLM.load(path, threads=1, spec="off", cache_type_k="f16", cache_type_v="f16", **options) as llm:
            found = llm.logits(ids)
        assert np.abs(found - short).max() < 0.1 * np.abs(long - short).max()


def test_one_set_alone_is_named(converted) -> None:
    for there, missing in (("short", "long"), ("long", "short")):
        file = converted("phi3-longrope")
        del file.shapes[f"rope_factors_{missing}.weight"]
        with pytest.raises(
            ModelFileError, match=f"rope_factors_{there}.weight but lacks rope_factors_{missing}.weight"
        ):
            file.build()
    with pytest.raises(ModelFileError, match=r"phi3\.context_length"):
        converted("phi3-longrope", context_length=None).build()
