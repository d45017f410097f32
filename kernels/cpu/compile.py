"""Compile kernels with Numba into object files; the only file that imports it. Run by `objects.py` as a program:

    python -m edgellm.kernels.cpu.compile TARGET FOLDER NAME ...

A name is that of a chunk kernel ("norm"), or tile_FORMAT_ROWS, panel_, unpack_, pack_ or expand_FORMAT, or a part of a cache
format (cache_kernels.py), or peak_KIND. Prints each name when it is done. The target may be another machine's: Numba makes
LLVM's text only, and none of its code is ever run.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from .. import formats
from . import store, target
from .target import Target

_AT_MOST_256 = '"min-legal-vector-width"="256" "prefer-vector-width"="256"'


def compile_kernels(names: Sequence[str], made_for: Target, folder: Path, one_done: Callable[[str], None]) -> None:
    """Compile `names` into objects of `folder`; a process can do this for one target only."""
    machine = target.target_machine(made_for)
    for name in names:
        module = make_module(machine, name, kernel_text(made_for, name))
        store.write_object(folder, name, machine.emit_object(module))
        one_done(name)


def _source(name: str) -> tuple[Callable[..., None], int]:
    """-> the kernel's Python function and its number of int64 operands."""
    from . import activations, attention, cache_kernels, elementwise, experts, matmul, peak, read_memory, scan, walk

    for module in (walk, matmul, elementwise, activations, experts, attention, read_memory, scan):
        if name in module.KERNELS:
            return module.KERNELS[name], 4
    if name.startswith("peak_"):
        return peak.make(name.removeprefix("peak_")), 4
    if found := cache_kernels.find(name):
        return cache_kernels.make(*found), cache_kernels.OPERANDS[found[0]]
    return _format_source(*name.split("_", 1))


def _format_source(kind: str, rest: str) -> tuple[Callable[..., None], int]:
    from . import plain_words, simd, tiles, unpack_panel

    rest, _, rows = rest.rpartition("_") if kind == "tile" else (rest, "", "0")
    format = formats.get(rest.upper())
    packed = format.packed
    if kind == "expand":
        return packed.expand(simd), 4
    if kind == "pack":
        return packed.pack(simd), 5
    if kind == "unpack":
        return unpack_panel.make_unpack(packed), 3
    assert kind in ("tile", "panel"), f"no kernel is called {kind}_{rest}"
    if packed.codes is None:
        return packed.tile(plain_words.plain_words(format.name, packed.rest, int(rows))), 7
    words = tiles.tile_words(packed, int(rows)) if kind == "tile" else tiles.panel_words(packed)
    return packed.tile(words), 7


@contextlib.contextmanager
def _text_only() -> Iterator[None]:
    """Let Numba make LLVM's text and no machine code of its own: this machine has no instructions for another one's words.

    Nobody else compiles meanwhile; what was compiled here is not for calling."""
    from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.cpu import CPUContext

    def not_for_calling(context: Any, library: Any, *_: Any) -> Any:
        library.finalize()  # links and optimises the text
        return {}.get  # a built-in function, and another one each time: what Numba asks for

    changes: list[tuple[Any, str, Any]] = [
        (CPUContext, "get_executable", not_for_calling),
        (JITCodeLibrary, "_finalize_specific", lambda *_: None),
        (JITCPUCodegen, "_add_module", lambda *_: None),
    ]
    with global_compiler_lock:
        before = [getattr(owner, name) for owner, name, _ in changes]
        try:
            for owner, name, change in changes:
                setattr(owner, name, change)
            yield
        finally:
            for (owner, name, _), old in zip(changes, before, strict=True):
                setattr(owner, name, old)


def kernel_text(made_for: Target, name: str) -> str:
    """-> a kernel as LLVM text for a target, with a wrapper `void k_name(i64, ...)`.

    Numba's inner function is `i32 f(ptr result, ptr exception, i64 ...)`; the two slots get dummies, so the wrapper needs
    no Python.
    """
    from numba import njit, types

    from .vector import set_target

    set_target(made_for)
    source, count = _source(name)
    signature = (types.int64,) * count
    with _text_only():
        compiled = njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)(source)
        compiled.compile(signature)
        result = compiled.overloads[signature]
        text: str = result.library.get_llvm_str()
    operands = ", ".join(f"i64 %a{i}" for i in range(count))
    text = re.sub(r'"target-(cpu|features)"="[^"]*"', "", text)
    if made_for.arch == "x86-64":  # 256 bits also where 512 exist, for the reasons in dots.py
        text = re.sub(
            r"^(define .*?)((?: #\d+)?(?: !\S+ !\d+)* \{)$", rf"\1 {_AT_MOST_256}\2", text, flags=re.MULTILINE
        )
    return f"""{text}
define void @k_{name}({operands}) {{
  %slots = alloca [2 x ptr]
  %status = call i32 @"{result.fndesc.llvm_func_name}"(ptr %slots, ptr %slots, {operands})
  ret void
}}"""


def make_module(machine: Any, name: str, text: str) -> Any:
    """-> the module of a kernel's text that exports `k_name` and nothing else, ready for a machine to emit.

    Everything else becomes internal and dead code goes.
    """
    for what, value in (("datalayout", machine.target_data), ("triple", machine.triple)):
        text = re.sub(rf'^target {what} = ".*"$', f'target {what} = "{value}"', text, flags=re.MULTILINE)
    module = llvm.parse_assembly(text)
    for item in [*module.functions, *module.global_variables]:
        if not item.is_declaration and item.name != f"k_{name}":
            item.linkage = "internal"
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, builder)
    return module


def main(arguments: Sequence[str]) -> None:
    """TARGET (as text) FOLDER NAME ..."""
    made_for, folder, *names = arguments
    compile_kernels(names, Target.from_text(made_for), Path(folder), lambda name: print(name, flush=True))


if __name__ == "__main__":
    main(sys.argv[1:])
