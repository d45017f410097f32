"""tools/bench_formats.py and its little program: what is built, what is counted, what is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import bench_formats
import bench_program
import numpy as np
import pytest

from edgellm.kernels import formats, reference
from edgellm.kernels.cpu.tape import TapeWriter

SHAPE = bench_program.Shape(256, 512)


def test_the_program_is_a_model_of_the_shape() -> None:
    program = bench_program.make_program(2, SHAPE)
    source = bench_program.RandomWeights(formats.get("Q4_K"), 2, SHAPE)
    sizes = {n: t.shape for n, t in source.tensors.items() if t.type_name == "Q4_K"}
    assert sizes == {
        f"{i}.{kind}": size
        for i in (0, 1)
        for kind, size in (("square", (256, 256)), ("gate", (512, 256)), ("up", (512, 256)), ("down", (256, 512)))
    }
    assert sum(rows * width for rows, width in sizes.values()) == 2 * SHAPE.layer_values
    assert {w for op in program.ops for w in op.weights} == set(source.tensors)
    weights = {}
    for name, tensor in source.tensors.items():
        rows = source.data(name).reshape(tensor.shape[0] if len(tensor.shape) == 2 else 1, -1)
        weights[name] = formats.get(tensor.type_name).dequantize(rows).reshape(tensor.shape)
    logits = reference.run(program, weights, [1, 2, 3])
    assert logits.shape == (3, 8) and np.isfinite(logits).all() and logits.std() > 0


@pytest.mark.parametrize("name", formats.FORMATS)
def test_random_rows_are_ordinary_numbers(name: str) -> None:
    format = formats.get(name)
    rows = bench_program.random_rows(format, 40, 256, np.random.default_rng(1))
    assert rows.shape == (40, format.row_bytes(256)) and (rows[0] == rows[32]).all() and (rows[0] != rows[1]).any()
    values = np.abs(format.dequantize(rows).reshape(40, -1, format.group_size)).max(axis=-1)
    assert (values >= bench_program.SMALLEST).all() and (values <= bench_program.LARGEST).all()


def test_only_stages_with_matrices_count() -> None:
    writer = TapeWriter({"norm": 1, "matmul": 2, "unheard_of": 3}, [])
    for kernel, reads, writes in (
        ("norm", 0, 1),  # a stage of its own
        ("matmul", 1, 2),  # two in one stage
        ("matmul", 1, 3),
        ("norm", 3, 4),
        ("unheard_of", 4, 5),
    ):
        writer.op(kernel, [], 1, None, [reads], [writes])
    assert bench_program.is_matrix_stage(writer.finish()).tolist() == [False, True, False, True]


class FakeBench:
    """Takes a second for one token, and half a second for each more; reads 10 GB."""

    packed_bytes, values = 10_000_000_000, 1_000_000_000

    def matrix_s(self, tokens: int) -> float:
        return 0.5 + tokens / 2


class FakeYardstick:
    """Becomes faster with every pass, so that medians differ from first and last."""

    def __init__(self, unit: float) -> None:
        self.unit, self.passes = unit, -1

    def rate(self) -> float:
        self.passes += 1
        return self.unit * (1 + self.passes)


def test_decode_and_small_batches() -> None:
    found = bench_formats.measure_few(FakeBench(), FakeYardstick(10e9), 3, ("decode", "small"))
    assert (found["decode_gbps"], found["read_gbps"]) == (10, 30)  # the first pass warms up: 20, 30, 40
    assert found["decode_share"] == pytest.approx(1 / 3, abs=1e-3)
    assert [found[f"rows_{m}"] for m in range(2, 9)] == [1.5, 2, 2.5, 3, 3.5, 4, 4.5]
    assert "decode_gbps" not in bench_formats.measure_few(FakeBench(), FakeYardstick(1), 1, ("small",))
    assert "rows_2" not in bench_formats.measure_few(FakeBench(), FakeYardstick(1), 1, ("decode",))


def test_prefill() -> None:
    found = bench_formats.measure_many(FakeBench(), FakeYardstick(1e12), 9, 9)
    assert (found["prefill_gops"], found["peak_gops"]) == (3.6, 3000) and found["peak_share"] == 0.001


def results() -> list[dict[str, Any]]:
    return [
        {"format": "Q4_0", "bits": 4.5, "packed_bits": 4.5, "peak_share": 0.6, "prefill_gops": 300, "peak_gops": 500.0},
        {"format": "Q4_1", "bits": 5.0, "packed_bits": 5.0, "peak_share": 0.8, "prefill_gops": 320, "peak_gops": 400.0},
        {"format": "Q2_K", "bits": 2.6, "packed_bits": 3.0, "peak_share": 0.9, "prefill_gops": 400, "peak_gops": 444.0},
        {
            "format": "Q8_0",
            "bits": 8.5,
            "packed_bits": 8.5,
            "decode_share": 0.9,
            "decode_gbps": 25.0,
            "read_gbps": 28.0,
        },
    ]


def test_prefill_is_compared_with_the_fastest_of_four_bits() -> None:
    measured = results()
    bench_formats.compare_prefill(measured)
    assert [r.get("of_best_4bit") for r in measured] == [1.333, 1, 0.889, None]
    alone = results()[2:]
    bench_formats.compare_prefill(alone)
    assert not any("of_best_4bit" in r for r in alone)


def test_markdown() -> None:
    text = bench_formats.make_section(results(), "a machine")
    assert text.startswith(
        "a machine; medians. Plain reading reached 28.0 GB/s, multiply-adds 444 GOP/s.\n\n| format |"
    )
    assert "| Q8_0 | 8.50 | 8.50 | - | 25.0 | 0.90 | - | - | - |" in text and "M=2" not in text
    small = bench_formats.make_section([{"format": "Q4_0", "bits": 4.5, "packed_bits": 4.5, "rows_8": 2.0}], "m")
    assert small.startswith("m; medians.\n") and "| Q4_0 | - | - | - | - | - | - | 2.00 |" in small


def test_the_chart_shows_what_was_measured() -> None:
    root = ElementTree.fromstring(bench_formats.draw(results(), "a machine"))
    words = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"Q2_K", "0.90, 25.0 GB/s", "400 GOP/s", "multiply-adds alone 444", "goal 0.8"} <= set(words)
    assert words.count("-") == 4
    assert "GOP/s" not in bench_formats.draw(results()[3:], "a machine")


def test_a_whole_measurement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--hidden", "256", "--ffn", "256", "--megabytes", "1", "--tokens", "9", "-r", "1", "-t", "2"]
    page, drawing = tmp_path / "page.md", tmp_path / "chart.svg"
    files = ["--markdown", str(page), "--chart", str(drawing)]
    assert bench_formats.main(["--formats", "q4_0", "Q8_0", *sizes, *files]) == 0
    text, last = capsys.readouterr().out.rstrip().rsplit("\n", 1)
    assert "prefill GOP/s" in text and "M=8" in text
    shown = json.loads(last)
    assert (shown["threads"], shown["hidden"]) == (2, 256)
    four, eight = shown["results"]
    assert (four["bits"], four["packed_bits"], eight["bits"], eight["packed_bits"]) == (4.5, 4.5, 8.5, 8.5)
    for r in (four, eight):
        assert all(r[key] > 0 for _, key, _ in bench_formats.FORMAT_COLUMNS[1:] + bench_formats.SMALL_COLUMNS[1:])
    assert four["of_best_4bit"] == 1 and "| Q8_0 | 8.50 |" in page.read_text()
    ElementTree.fromstring(drawing.read_text())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--hidden", "100"], "multiples of 256"),
        (["-r", "0"], "--rounds must be at least 1"),
        (["--only", "sleep"], "invalid choice"),
    ],
)
def test_senseless_options(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        bench_formats.main(options)
    assert done.value.code == 2 and said in capsys.readouterr().err


def test_an_unknown_format(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_formats.main(["--formats", "Q4_0", "Q99"]) == 2
    assert "Q99" in capsys.readouterr().err
