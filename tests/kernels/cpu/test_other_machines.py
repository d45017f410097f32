"""Levels that this machine lacks give the bits of those it has: ARM's in an emulator, VNNI's with one instruction replaced."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping

import cpu_kernels as cpu
import expected_products as oracle
import foreign_machine
import numpy as np
import other_levels
import pytest
from random_weights import make_random

from edgellm.kernels import cache_formats, formats
from edgellm.kernels.cpu import ahead, cache_kernels, isa, lower, objects, slots, store, target, tasks, weights
from edgellm.kernels.cpu.memory import address
from edgellm.kernels.cpu.rope_table import RopeTable
from edgellm.kernels.ops import Rope

# One format for each way that weights reach the multiply-add.
ARM_FORMATS = ("Q4_0", "Q5_0", "Q8_0", "Q4_K", "Q6_K", "Q2_K", "Q3_K", "IQ4_NL", "MXFP4", "IQ2_XS", "IQ1_S")
CACHE_FORMATS = cache_kernels.FORMATS
ROW_KERNELS = (
    *("norm", "gated", "rope", "store_kv", "attend", "combine", "expand_q4_k", "pack_q4_k"),
    *(name for form in CACHE_FORMATS for name in cache_kernels.names(form, form).values()),
)
ARM_LEVELS = ("generic", "dotprod", "i8mm")
TILES = {name: weights.linear_kernels(formats.get(name)) for name in cpu.INT8_FORMATS}

emulated_arm = pytest.mark.skipif(bool(foreign_machine.lacking()), reason=foreign_machine.lacking() or "nothing lacks")


def extreme_rows(name: str, width: int) -> np.ndarray:
    """Random groups with sane scales; in the last rows every other byte that is no scale is at an end of its range."""
    weights = make_random(name, 16, width, 1.0, np.random.default_rng((2, width)))
    if name == "Q8_0":
        groups = weights[8:].reshape(-1, formats.get(name).group_bytes)
        groups[:, 2:] = np.random.default_rng(3).choice(np.array([0x80, 0x7F], np.uint8), groups[:, 2:].shape)
    return weights


def assert_products(level: str, name: str, tokens: int) -> None:
    """Products of a level's tile kernel are the documented ones, random weights and extreme ones."""
    x = np.random.default_rng(1).standard_normal((6, 512)).astype(np.float32)
    x[4] = np.random.default_rng(4).choice([-127.0, 127.0], 512)
    weights = extreme_rows(name, 512)
    got = cpu.product(level, name, weights, x, tokens)
    want = oracle.expected_product(name, weights, x)
    assert np.array_equal(got.view(np.uint32), want.view(np.uint32))


# ---- what is in the machine code ----
@functools.cache
def get_assembly(target_name: str) -> Mapping[str, str]:
    names = ["tile_q4_0_1", "tile_q4_0_4", "tile_q8_0_4", "store_v_f16"]
    return other_levels.assembly(target_name, "linux", names)


@pytest.mark.parametrize(
    ("name", "instruction", "on_one_token"),
    [
        ("x86-64-avx512vnni", r"vpdpbusd\s+-?\d*\(%[^)]*\)\{1to8\}", True),
        ("x86-64-avxvnni", r"\{vex\}\s+vpdpbusd\s+%ymm", True),
        ("x86-64-avx2", r"vpmaddubsw\s+%ymm", True),
        ("arm64-i8mm", r"smmla\s+v", False),
        ("arm64-dotprod", r"sdot\s+v\d+\.4s, v\d+\.16b, v\d+\.4b\[", True),
        ("arm64-generic", r"sadalp\s+v", True),
    ],
)
def test_matrix_kernels_multiply_as_their_level_does(name: str, instruction: str, on_one_token: bool) -> None:
    code = get_assembly(name)
    for kernel in ("tile_q4_0_4", "tile_q8_0_4", *(["tile_q4_0_1"] if on_one_token else [])):
        tokens = int(kernel[-1])
        # 8 steps, on ARM 16 registers of four rows; smmla does two tokens and two steps at once.
        least = {"smmla": 32}.get(instruction[:5], 8 * tokens * (2 if name.startswith("arm64") else 1))
        least -= 2 * tokens if instruction.startswith("sadalp") else 0  # the first sums are of their own kind
        assert len(re.findall(instruction, code[kernel])) >= least, (kernel, code[kernel])
        spills = re.findall(r"\(%rsp\)|\[sp", code[kernel])
        assert len(spills) <= 24, (
            f"{kernel} keeps {len(spills)} times something on the stack"
        )  # arguments, saved registers


def test_levels_convert_halves_as_their_cpu_can() -> None:
    for name, instruction in (("x86-64-avxvnni", "vcvtps2ph"), ("arm64-generic", "fcvtn"), ("arm64-i8mm", "fcvtn")):
        assert instruction in get_assembly(name)["store_v_f16"], name


def test_levels_use_nothing_that_they_do_not_name() -> None:
    for name in ("x86-64-generic", "x86-64-avx2", "x86-64-avxvnni", "x86-64-avx512vnni"):
        code = "".join(get_assembly(name).values())
        assert "%zmm" not in code, name  # 256 bits also where there are 512
        assert ("%ymm" in code) == (name != "x86-64-generic")
        assert ("{1to" in code) == (name == "x86-64-avx512vnni")


def test_objects_are_of_their_systems_kind() -> None:
    begins = {
        "windows x86-64-avx2": "6486",  # COFF, machine 0x8664
        "windows arm64-dotprod": "64aa",
        "macos arm64-dotprod": "cffaedfe",  # Mach-O, 64 bits
        "macos x86-64-generic": "cffaedfe",
        "linux arm64-generic": "7f454c46",  # ELF
    }
    made = json.loads(other_levels.run("kinds", *begins))
    assert made.keys() == begins.keys()
    assert all(made[name].startswith(start) for name, start in begins.items()), made


# ---- VNNI ----
@pytest.fixture(scope="module")
def vnni_kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Tiles of the level avxvnni for every format, as AVX2 can run them; the tiles of avx512vnni are the same text."""
    cpu.get_level("avx2")
    folder = cpu.paths.home() / "test-kernels" / f"emulated-vnni-{store.source_hash()[:24]}"
    folder.mkdir(parents=True, exist_ok=True)
    names = [tile for tiles in TILES.values() for tile in tiles]
    missing = [n for n in names if store.read_object(folder, n) is None]
    if missing:
        other_levels.run("emulated", str(folder), *missing)
    codes = {n: code for n in names if (code := store.read_object(folder, n)) is not None}
    objects._load(codes, isa.AVX2, "emulated vnni")
    return {n: objects._loaded["emulated vnni", n] for n in names}


@pytest.mark.parametrize("tokens", cpu.WAYS_TO_MULTIPLY)
@pytest.mark.parametrize("name", cpu.INT8_FORMATS)
def test_vnni_products(name: str, tokens: int, vnni_kernels: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = dict(cpu.get_kernels("avx2")) | vnni_kernels
    monkeypatch.setattr(cpu, "get_kernels", lambda _: kernels)
    assert_products("avxvnni", name, tokens)


def test_the_replaced_instruction_is_what_the_manual_says() -> None:
    """VPDPBUSD, Intel SDM volume 2: four products of an unsigned and a signed byte are added to a word, nothing saturates."""
    import ctypes

    import llvmlite.binding as llvm

    text = f"""
declare <8 x i32> @{other_levels.MULTIPLY_ADD}(<8 x i32>, <8 x i32>, <8 x i32>)
define void @go(ptr %a, ptr %p, ptr %q) {{
  %va = load <8 x i32>, ptr %a, align 1
  %vp = load <8 x i32>, ptr %p, align 1
  %vq = load <8 x i32>, ptr %q, align 1
  %r = call <8 x i32> @{other_levels.MULTIPLY_ADD}(<8 x i32> %va, <8 x i32> %vp, <8 x i32> %vq)
  store <8 x i32> %r, ptr %a, align 1
  ret void
}}"""
    machine = target.target_machine(target.host_target(isa.GENERIC))
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(other_levels.plain_multiply_add(text)), machine)
    engine.finalize_object()
    rng = np.random.default_rng(0)
    a, p = rng.integers(-9, 9, 8).astype(np.int32), rng.integers(0, 256, 32).astype(np.uint8)
    q = rng.integers(-128, 128, 32).astype(np.int8)
    p[:4], q[:4], p[4:8], q[4:8] = 255, 127, 255, -128
    want = a + (p.astype(np.int32) * q).reshape(8, 4).sum(axis=1)
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(engine.get_function_address("go"))
    function(a.ctypes.data, p.ctypes.data, q.ctypes.data)
    assert np.array_equal(a, want)


# ---- ARM ----
@pytest.fixture(scope="module")
def arena() -> foreign_machine.Arena:
    return foreign_machine.Arena()


@pytest.fixture(scope="module", params=ARM_LEVELS)
def arm(
    request: pytest.FixtureRequest, arena: foreign_machine.Arena, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[foreign_machine.ForeignMachine]:
    names = ["quantise", *(tile for name in ARM_FORMATS for tile in TILES[name])]
    names += ROW_KERNELS if request.param == "dotprod" else []
    level = isa.get_level(request.param)
    folder = ahead.build(names, target.any_target(level, "linux", "arm64"), cpu.paths.home() / "test-kernels")
    codes = {n: code for n in names if (code := store.read_object(folder, n)) is not None}
    machine = foreign_machine.ForeignMachine(codes, arena, tmp_path_factory.mktemp(level.name))
    yield machine
    machine.close()


@pytest.fixture
def on_arm(
    arm: foreign_machine.ForeignMachine, monkeypatch: pytest.MonkeyPatch
) -> Iterator[foreign_machine.ForeignMachine]:
    """The helpers of cpu_kernels call this machine's kernels under the level's name "arm", all others under theirs."""
    host, own = dict(cpu.get_kernels("generic")), cpu.get_kernels
    threads = cpu.threads
    own_function, own_chunk = threads.tile_function, threads.run_chunk
    first = min(host.values())
    assert first > len(arm.kernels), "addresses and numbers of kernels must differ"

    def tile_function(operands: int) -> object:
        return lambda k: (arm.tile_function if k < len(arm.kernels) else own_function)(operands)(k)

    def run_chunk(k: int, *arguments: object) -> None:
        (arm.run_chunk if k < len(arm.kernels) else own_chunk)(k, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(cpu, "get_kernels", lambda name: host | arm.kernels if name == "arm" else own(name))
    monkeypatch.setattr(cpu, "aligned", arm.arena.aligned)
    monkeypatch.setattr(threads, "tile_function", tile_function)
    monkeypatch.setattr(threads, "run_chunk", run_chunk)
    arm.arena.rewind()
    yield arm


@emulated_arm
@pytest.mark.emulated
@pytest.mark.parametrize("tokens", cpu.WAYS_TO_MULTIPLY)
@pytest.mark.parametrize("name", ARM_FORMATS)
def test_arm_products(name: str, tokens: int, on_arm: foreign_machine.ForeignMachine) -> None:
    assert_products("arm", name, tokens)
    x = np.random.default_rng(5).standard_normal((3, 96)).astype(np.float32)
    tiles = [cpu.write_tiles(level, x, tokens or 4) for level in ("arm", "generic")]
    assert np.array_equal(*tiles)


rows_on_arm = pytest.mark.parametrize("arm", ["dotprod"], indirect=True)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32) * 3


def put(machine: foreign_machine.ForeignMachine, values: np.ndarray) -> np.ndarray:
    """A copy in the memory that both machines see."""
    copy = machine.arena.aligned(values.nbytes).view(values.dtype).reshape(values.shape)
    copy[:] = values
    return copy


@emulated_arm
@pytest.mark.emulated
@rows_on_arm
def test_arm_rows(on_arm: foreign_machine.ForeignMachine) -> None:
    """norm, gated and rope, and a packed row written out: the same bytes as here."""
    weight = put(on_arm, floats(200, seed=1))
    tables = {pairs: RopeTable(Rope(20, 1e4, pairs=pairs), None, rows=3) for pairs in ("halves", "adjacent")}
    results: dict[str, list[bytes]] = {"arm": [], "generic": []}
    for level, made in results.items():
        x, y = cpu.make_rows(floats(3, 200)), cpu.make_rows(floats(3, 200, seed=2))
        out, stride = cpu.make_rows(np.zeros((3, 200), np.float32)), x.strides[0]
        arguments = [address(x), stride, address(weight), cpu.float_word(1e-5), 1, 200, address(out), stride]
        cpu.call(level, "norm", [*arguments, slots.STORE, 1, 1], range(3))
        made.append(out.tobytes())
        for activation in (slots.SILU, slots.GELU):
            arguments = [address(x), address(y), stride, stride // 128, 2, activation, address(out), stride]
            cpu.call(level, "gated", [*arguments, slots.ADD, 1, 1], range(3 * -(-stride // 256)))
            made.append(out.tobytes())
        for pairs, table in tables.items():
            table.take(np.arange(3))
            values = put(on_arm, table.values)
            arguments = [address(x), stride, 5, 40, 20, address(values), int(pairs == "halves")]
            cpu.call(level, "rope", [*arguments, address(out)], range(3))
            made.append(out.tobytes())
            cpu.call(level, "rope", [*arguments, address(x)], range(3))
            made.append(x.tobytes())
        raw = make_random("Q4_K", 9, 512, 1.0, np.random.default_rng(0))
        made += [cpu.pack(level, "Q4_K", raw, 512).tobytes(), cpu.expand(level, "Q4_K", raw, 512).tobytes()]
    assert results["arm"] == results["generic"]


@emulated_arm
@pytest.mark.emulated
@rows_on_arm
@pytest.mark.parametrize("form", CACHE_FORMATS)
@pytest.mark.parametrize(("count", "at", "window", "sinks"), [(70, 0, 0, 0), (3, 290, 200, 5)])
def test_arm_attention(
    count: int, at: int, window: int, sinks: int, form: str, on_arm: foreign_machine.ForeignMachine
) -> None:
    """Keys and values into the cache, attention over its tiles and splits, the splits joined: the same bytes as here."""
    kv, dim, total = 2, 40, at + count
    kind, blocks = cache_formats.get(form), -(-total // 64)
    table = put(on_arm, np.random.default_rng(0).permutation(blocks).astype(np.int32))
    positions, zeros = put(on_arm, np.arange(total)), put(on_arm, np.zeros(total, np.int64))
    work = put(on_arm, np.zeros((total, slots.TASK_WORDS), np.int64))
    where, cap = put(on_arm, np.zeros((total, 3), np.int64)), put(on_arm, np.array([1, -2, 3, 0], np.float32))
    n = tasks.share_out(work, where, positions[at:], np.zeros(count, np.int32), window or None, sinks, 4)
    results = {}
    for level in ("arm", "generic"):
        kernels = on_arm.addresses if level == "arm" else cpu.get_kernels(level)
        parts = {part: kernels[name] for part, name in cache_kernels.names(form, form).items()}
        q, k, v = (cpu.make_rows(floats(rows, width, seed=i)) for i, (rows, width) in enumerate(
            [(count, 4 * dim), (total, kv * dim), (total, kv * dim)]
        ))  # fmt: skip
        tiles = [kind.k_tile_bytes(dim), kind.v_tile_bytes(dim)]
        cache = on_arm.arena.aligned(blocks * kv * sum(tiles))
        places = [address(cache), address(cache) + kv * tiles[0], address(table), 0, 0, blocks]
        places += [kv * sum(tiles), *tiles, kv]
        partials = on_arm.arena.aligned(tasks.max_partial_rows(total, 1, 512) * 4 * lower.partial_bytes(dim))
        out = cpu.make_rows(np.zeros((count, 4 * dim), np.float32))
        context = {slots.POSITIONS: address(positions), slots.SEQUENCES: address(zeros), slots.THREADS: 1}
        arguments = [address(k), k.strides[0], address(v), v.strides[0], *places, dim]
        arguments += [parts["store_k"], parts["store_v"], dim]
        cpu.call(level, "store_kv", arguments, range(total * kv), context)
        context[slots.POSITIONS] = address(positions) + 8 * at
        arguments = [address(q), q.strides[0], *places, 2, dim, address(work), window, cpu.float_word(0.2)]
        arguments += [cpu.float_word(9.0), sinks, address(q), address(partials), lower.partial_bytes(dim)]
        arguments += [parts["ready"], parts["score"], parts["weigh"], kind.query_bytes(dim), dim, 0]
        cpu.call(level, "attend", arguments, range(n * kv), context)
        arguments = [address(partials), lower.partial_bytes(dim), 4, dim, address(where), address(cap)]
        arguments += [int(kind.rotated)]
        arguments += [address(out), out.strides[0], slots.STORE, 1, 1]
        cpu.call(level, "combine", arguments, range(count * 4), context)
        results[level] = [a.tobytes() for a in (cache, out)]
        assert np.isfinite(out).all() and np.abs(out[:, : 4 * dim]).min(axis=1).all()
    assert results["arm"] == results["generic"]
