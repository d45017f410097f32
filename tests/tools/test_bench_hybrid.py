"""The model that bench_hybrid.py writes is a Qwen 3.5 that edgellm reads."""

from __future__ import annotations

from pathlib import Path

import bench_hybrid
import numpy as np
import pytest
import reference_models as stored

from edgellm.gguf import open_gguf

SMALL = bench_hybrid.Hybrid(
    layers=4, hidden=64, ffn=96, heads=4, kv_heads=2, head_dim=32, key_heads=2, value_heads=4, state=32
)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stored.unpack("qwen35", tmp_path_factory.mktemp("vocabulary"))


def test_it_writes_the_tensors_and_keys_of_a_qwen35(vocabulary: Path, tmp_path: Path) -> None:
    bench_hybrid.write_model(tmp_path / "small.gguf", vocabulary, SMALL)
    with open_gguf(tmp_path / "small.gguf") as file, open_gguf(vocabulary) as real:
        assert {n: t.shape for n, t in file.tensors.items()} == {n: t.shape for n, t in real.tensors.items()}
        logits = stored.run_reference(file, np.arange(3, 20))
    assert np.isfinite(logits).all()
    assert logits.std() > 0


def test_the_default_is_of_the_size_it_says(vocabulary: Path) -> None:
    shape = bench_hybrid.Hybrid()
    sizes = [np.prod(sizes) for _, sizes, _ in bench_hybrid.list_tensors(shape, 49152)]
    assert 0.55e9 < sum(sizes) < 0.65e9
    kinds = {name.split(".")[2]: form for name, _, form in bench_hybrid.list_tensors(shape, 256) if "blk" in name}
    assert (kinds["attn_qkv"], kinds["ffn_up"], kinds["ssm_conv1d"]) == ("Q5_K", "Q4_K", "F32")


def test_a_vocabulary_that_is_not_there_ends_with_code_2(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code = bench_hybrid.main(["--vocabulary", str(tmp_path / "none.gguf"), "--model", str(tmp_path / "x.gguf")])
    assert code == 2
    assert "none.gguf" in capsys.readouterr().err
