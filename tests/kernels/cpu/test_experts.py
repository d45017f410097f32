"""Mixtures of experts on the CPU: the choice against reference.py, the whole in every format and way of computing it, and
which pages of the weights are touched."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import cpu_kernels as cpu
import cpu_programs as programs
import numpy as np
import pytest
from numpy.typing import NDArray

from edgellm.kernels import reference
from edgellm.kernels.cpu import lower_experts, weights
from edgellm.kernels.cpu.memory import address
from edgellm.kernels.expert_ops import Routing
from edgellm.kernels.ops import GATED_ACTIVATIONS, Builder, CacheLayer, Program

HIDDEN, FFN, VOCAB = 256, 256, 61
ROUTINGS = {
    "softmax": Routing(16, 3),
    "all": Routing(5, 5, normalised=True),
    "one": Routing(40, 1, "sigmoid", scale=2.5),
    "after": Routing(33, 4, "softmax_of_used"),
    "v2": Routing(16, 3, "softmax", False, 16.0, 4, 2, 1),
    "v3": Routing(64, 6, "sigmoid", True, 2.5, 8, 4, 2),
}


def run_route(level: str, logits: NDArray[np.float32], routing: Routing, bias: NDArray[np.float32] | None) -> Any:
    """-> experts i32[T, U] and weights f32[T, U]."""
    rows, used = cpu.make_rows(logits, 7.0), routing.num_used
    out, bias_rows = cpu.make_rows(np.zeros((len(logits), 2 * used), np.float32)), None
    if bias is not None:
        bias_rows = cpu.make_rows(bias[None])
    arguments = [address(rows), rows.strides[0], routing.num_experts, used, address(out), out.strides[0]]
    arguments += [lower_experts._SCORES[routing.scores], int(routing.normalised), cpu.float_word(routing.scale)]
    arguments += [0 if bias_rows is None else address(bias_rows)]
    arguments += [routing.num_groups, routing.num_groups_used, routing.group_best]
    cpu.call(level, "route", arguments, range(len(logits)))
    return out[:, :used].view(np.int32), out[:, used : 2 * used]


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("name", ROUTINGS)
def test_route(name: str, has_bias: bool) -> None:
    routing, rng = ROUTINGS[name], np.random.default_rng(len(name))
    logits = rng.standard_normal((50, routing.num_experts)).astype(np.float32)
    logits[10] = np.round(logits[10])  # many equals
    logits[11] = 0
    bias = rng.standard_normal(routing.num_experts).astype(np.float32) if has_bias else None
    chosen, shares = np.split(reference.route(logits, routing, bias), 2, axis=1)
    for level in cpu.LEVEL_NAMES:
        got, found = run_route(level, logits, routing, bias)
        np.testing.assert_array_equal(got, chosen)
        np.testing.assert_allclose(found, shares, rtol=2e-6, atol=1e-7)


def test_a_router_without_sense_stays_among_the_experts() -> None:
    logits = np.full((4, 16), np.nan, np.float32)
    logits[1:, 3], logits[2:, 5], logits[3] = np.inf, -np.inf, -np.inf
    for routing in (ROUTINGS["softmax"], ROUTINGS["v2"]):
        got, _ = run_route(cpu.LEVEL_NAMES[-1], logits, routing, None)
        assert ((got >= 0) & (got < 16)).all()


# ---- whole programs ----
def make_program(
    form: str, routing: Routing, activation: str = "silu", biased: bool = False, fused: bool = False, down: str = ""
) -> tuple[Program, programs.MemorySource]:
    source, b, rng = programs.MemorySource(), Builder(), np.random.default_rng(3)

    def put(name: str, *shape: int, form: str = "F32", size: float = 1.0) -> str:
        values = rng.standard_normal((int(np.prod(shape[:-1])), shape[-1])).astype(np.float32)
        values *= size * shape[-1] ** -0.5 if len(shape) > 1 else size
        source.put(name, values, form)
        source.tensors[name] = programs.Tensor(shape, form)
        return name

    def put_vector(name: str, *shape: int) -> str:
        put(name, *shape)
        return name

    experts = routing.num_experts
    x = b.embed(put("embed", VOCAB, HIDDEN, size=HIDDEN**0.5), HIDDEN)
    q, k, v = (b.linear(x, put(f"a{c}", 32, HIDDEN), 32) for c in "qkv")
    x = b.add(x, b.linear(b.attention(q, k, v, 1, CacheLayer(1, 32), 32**-0.5), put("o", HIDDEN, 32), HIDDEN))
    for i in range(2):
        y = b.rms_norm(x, put_vector(f"norm{i}", HIDDEN), 1e-5)
        routed = b.route(b.linear(y, put(f"router{i}", experts, HIDDEN), experts), routing)
        gate, up = put(f"gate{i}", experts, FFN * (1 + fused), HIDDEN, form=form), None
        if not fused:
            up = put(f"up{i}", experts, FFN, HIDDEN, form=form)
        last = put(f"down{i}", experts, HIDDEN, FFN, form=down or form)
        biases = None
        if biased:
            biases = (put(f"bg{i}", experts, FFN), put(f"bu{i}", experts, FFN), put(f"bd{i}", experts, HIDDEN))
        x = b.add(x, b.experts(y, routed, routing, FFN, gate, up, last, activation, biases))
        if i == 0:
            x = b.logit_rows(x)
    return b.finish(b.linear(b.rms_norm(x, "norm0", 1e-5), "embed", VOCAB)), source


CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("F32", "softmax", {}),
    ("F16", "v3", {"fused": True}),
    ("BF16", "one", {"biased": True}),
    ("Q8_0", "all", {"biased": True}),
    ("Q4_0", "v2", {"fused": True, "down": "F16"}),
    ("Q4_K", "softmax", {"down": "Q6_K"}),
    ("Q6_K", "after", {"down": "Q8_0"}),
    ("MXFP4", "after", {"activation": "swiglu_clamped", "biased": True}),
    ("IQ4_XS", "one", {"down": "F32"}),
    ("Q5_K", "v3", {"activation": "gelu"}),
    ("F32", "after", {"activation": "swiglu_clamped", "biased": True, "down": "Q5_1"}),
]


@pytest.mark.parametrize("form, name, options", CASES)
def test_the_same_bits_however_computed(form: str, name: str, options: dict[str, Any]) -> None:
    program, source = make_program(form, ROUTINGS[name], **options)
    rng = np.random.default_rng(5)
    ids, others = rng.integers(0, VOCAB, 150), [rng.integers(0, VOCAB, n) for n in (40, 9)]
    results = {}
    for threads, packed in ((1, True), (2, True), (2, False)):
        with programs.Machine(program, source, 192, num_threads=threads, packed=packed) as machine:
            for chunk in (512, 1, 2, 3, 7, 40):
                results[threads, packed, chunk] = machine.logits(ids, chunk=chunk)[0]
            results[threads, packed, "three"] = machine.logits(others[0], ids, others[1], chunk=5)[1]
    base = results.pop((1, True, 512))
    for way, got in results.items():
        assert np.array_equal(got, base), way
    with programs.Machine(program, source, 192, precise=True) as machine:
        got = machine.logits(ids)[0]
        assert np.array_equal(machine.logits(ids, chunk=3)[0], got) and np.array_equal(
            machine.logits(ids, chunk=1)[0], got
        )
    want = reference.run(program, programs.dequantised(program, source), ids)
    errors = programs.row_errors(got, want)
    # A token near a tie between experts goes elsewhere by any rounding.
    assert np.median(errors) < 2e-3 and np.quantile(errors, 0.9) < 0.02, (np.median(errors), errors.max())


@pytest.mark.parametrize("activation", [a for a in GATED_ACTIVATIONS if a not in ("silu", "gelu")])
def test_activations(activation: str) -> None:
    program, source = make_program("F32", Routing(4, 2), activation)
    ids = np.random.default_rng(6).integers(0, VOCAB, 20)
    with programs.Machine(program, source, 64) as machine:
        got = machine.logits(ids)[0]
    want = reference.run(program, programs.dequantised(program, source), ids)
    assert np.median(programs.row_errors(got, want)) < 1e-3


def test_a_token_reads_what_its_experts_are() -> None:
    program, source = make_program("Q8_0", Routing(8, 2))
    raw = weights.raw_matrices(program, source)
    of_experts = sum(m.data.nbytes for name, m in raw.items() if name[:-1] in ("gate", "up", "down"))
    others = sum(m.data.nbytes for name, m in raw.items() if name[:-1] not in ("gate", "up", "down"))
    assert weights.decode_bytes(program, raw) == others + of_experts // 4


# ---- what is touched ----
class MappedSource(programs.MemorySource):
    """The same weights, mapped from a file."""

    def __init__(self, source: programs.MemorySource, path: Path) -> None:
        super().__init__()
        self.tensors, self._maps = source.tensors, {}
        for name in source.tensors:
            path = path.with_name(name)
            data = source.data(name).tobytes() + bytes(mmap.PAGESIZE)
            with path.open("wb", buffering=0) as file:  # page by page: a system that has them in large lumps maps lumps
                for at in range(0, len(data), mmap.PAGESIZE):
                    file.write(data[at : at + mmap.PAGESIZE])
            with path.open("rb") as file:
                self._maps[name] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._bytes[name] = np.frombuffer(self._maps[name], np.uint8, len(source.data(name)))


def present_pages(data: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which pages of an array this process has touched, by the kernel's own table."""
    first, end = address(data) // mmap.PAGESIZE, -(-(address(data) + data.nbytes) // mmap.PAGESIZE)
    with Path("/proc/self/pagemap").open("rb", buffering=0) as file:
        file.seek(8 * first)
        entries = np.frombuffer(file.read(8 * (end - first)), np.uint64)
    return entries >> np.uint64(63) == 1


@pytest.mark.parametrize("form", ["F32", "F16"])
@pytest.mark.parametrize("tokens", [1, 3, 20])
def test_pages_of_unused_experts_are_never_touched(form: str, tokens: int, tmp_path: Path) -> None:
    if not Path("/proc/self/pagemap").exists():
        pytest.skip("this system does not tell which pages a process has")
    routing = Routing(48, 1)
    program, memory = make_program(form, routing)
    source = MappedSource(memory, tmp_path / "weights")
    ids = np.random.default_rng(8).integers(0, VOCAB, tokens)
    with programs.Machine(program, source, 64, packed=False, num_threads=2) as machine:
        machine.logits(ids)
    of_name = programs.dequantised(program, memory)
    touched = present_pages(source.data("gate0"))
    op = next(op for op in program.ops if op.name == "route")
    chosen = set()
    values: dict[int, Any] = {}
    for one in program.ops:  # as far as the first choice
        inputs = [values[v.index] for v in one.inputs]
        values[one.output.index] = reference._apply(
            one, inputs, [of_name[w] for w in one.weights], program, ids, np.arange(tokens)
        )
        if one is op:
            chosen = set(values[one.output.index][:, 0].astype(int))
            break
    bytes_each = source.data("gate0").nbytes // routing.num_experts
    for e in range(routing.num_experts):
        pages = touched[e * bytes_each // mmap.PAGESIZE : (e + 1) * bytes_each // mmap.PAGESIZE]
        inner = pages[len(pages) // 3 : -(len(pages) // 3)]  # the system maps a few pages around one that is touched
        assert inner.all() if e in chosen else not inner.any(), (e, sorted(chosen))
