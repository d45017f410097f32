"""Compile kernels with Numba into object files; the only file that imports it. Run by `objects.py` as a program:

    python -m edgellm.kernels.cpu.compile LEVEL FOLDER NAME ...

A name is that of a chunk kernel ("norm"), or tile_FORMAT_TOKENS, pack_FORMAT, expand_FORMAT or peak_KIND. Prints each
name when it is done.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from .. import formats
from . import isa, objects


def compile_kernels(names: Sequence[str], level: isa.Level, folder: Path, one_done: Callable[[str], None]) -> None:
    """Compile `names` for `level` into `folder`; a process can do this for one level only."""
    from . import vector

    started = getattr(compile_kernels, "level", level.name)
    assert started == level.name, "words are lowered to one level per process"
    compile_kernels.level = vector.LEVEL = level.name  # type: ignore[attr-defined]
    target = objects.target_machine(level)
    for name in names:
        objects.write_object(folder, name, _compile(target, name))
        one_done(name)


def _source(name: str) -> tuple[Callable[..., None], int]:
    """-> the kernel's Python function and its number of int64 operands."""
    from . import attention, elementwise, matmul, peak, read_memory, simd, tiles, walk

    kind, _, rest = name.partition("_")
    if kind == "tile":
        format_name, _, tokens = rest.rpartition("_")
        packed = formats.get(format_name.upper()).packed
        per_fetch = packed.fetch_bytes or packed.unit_bytes
        return packed.tile(tiles.tile_words(int(tokens), per_fetch)), 7
    if kind == "peak":
        return peak.make(rest), 4
    if kind == "expand":
        return formats.get(rest.upper()).packed.expand(simd), 4
    if kind == "pack" and rest != "matrix":
        return formats.get(rest.upper()).packed.pack(simd), 5
    for module in (walk, matmul, elementwise, attention, read_memory):
        if name in module.KERNELS:
            return module.KERNELS[name], 4
    raise AssertionError(f"no kernel is called {name}")


def _compile(target: Any, name: str) -> bytes:
    """-> an object that exports `void k_name(i64, ...)` and nothing else.

    Numba's inner function is `i32 f(ptr result, ptr exception, i64 ...)`; the two slots get dummies, so the wrapper needs
    no Python. Everything else becomes internal and dead code goes.
    """
    from numba import njit, types

    source, count = _source(name)
    signature = (types.int64,) * count
    compiled = njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)(source)
    compiled.compile(signature)
    result = compiled.overloads[signature]
    operands = ", ".join(f"i64 %a{i}" for i in range(count))
    text = re.sub(r'"target-(cpu|features)"="[^"]*"', "", result.library.get_llvm_str())
    text += f"""
define void @k_{name}({operands}) {{
  %slots = alloca [2 x ptr]
  %status = call i32 @"{result.fndesc.llvm_func_name}"(ptr %slots, ptr %slots, {operands})
  ret void
}}"""
    module = llvm.parse_assembly(text)
    for item in [*module.functions, *module.global_variables]:
        if not item.is_declaration and item.name != f"k_{name}":
            item.linkage = "internal"
    builder = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=2))
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, builder)
    code: bytes = target.emit_object(module)
    return code


def main(arguments: Sequence[str]) -> None:
    """LEVEL FOLDER NAME ..."""
    level = next(lv for lv in isa.LEVELS if lv.name == arguments[0])
    compile_kernels(arguments[2:], level, Path(arguments[1]), lambda name: print(name, flush=True))


if __name__ == "__main__":
    main(sys.argv[1:])
