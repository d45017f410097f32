"""Kernels of levels that this machine lacks, made in a process of their own: a process has one target.

    python other_levels.py assembly TARGET SYSTEM NAME ...      a JSON object: kernel -> assembly
    python other_levels.py kinds "SYSTEM TARGET" ...            a JSON object: that -> an object's first bytes, as hex
    python other_levels.py emulated FOLDER NAME ...             objects of the level avxvnni that run on AVX2

Emulated: no free emulator has AVX-VNNI or AVX-512 (QEMU's translator knows neither), so the multiply-add is replaced in
LLVM's text by plain operations of the same meaning; all else is the level's own.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

MULTIPLY_ADD = "llvm.x86.avx512.vpdpbusd.256"


def run(*arguments: str) -> str:
    """Run this file as a program. -> what it prints."""
    done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def assembly(target_name: str, system: str, names: list[str]) -> dict[str, str]:
    """The assembly of kernels for a target."""
    result: dict[str, str] = json.loads(run("assembly", target_name, system, *names))
    return result


def plain_multiply_add(text: str) -> str:
    """A kernel's text with the multiply-add of unsigned and signed bytes written out."""
    declared = re.search(rf"^declare <8 x i32> @{re.escape(MULTIPLY_ADD)}\((.*)\).*$", text, re.MULTILINE)
    if declared is None:
        assert MULTIPLY_ADD not in text
        return text
    # Older LLVM passes bytes as eight words, newer as 32 bytes.
    operand = re.findall(r"<\d+ x i\d+>", declared[1])[1]
    phases = [", ".join(f"i32 {4 * row + phase}" for row in range(8)) for phase in range(4)]
    lines = [
        f"define <8 x i32> @multiply_add(<8 x i32> %a, {operand} %p, {operand} %q) {{",
        f"  %pb = bitcast {operand} %p to <32 x i8>",
        f"  %qb = bitcast {operand} %q to <32 x i8>",
        "  %pw = zext <32 x i8> %pb to <32 x i32>",
        "  %qw = sext <32 x i8> %qb to <32 x i32>",
        "  %m = mul <32 x i32> %pw, %qw",
    ]
    for i, phase in enumerate(phases):
        before = "%a" if i == 0 else f"%s{i - 1}"
        lines.append(f"  %m{i} = shufflevector <32 x i32> %m, <32 x i32> %m, <8 x i32> <{phase}>")
        lines.append(f"  %s{i} = add <8 x i32> {before}, %m{i}")
    lines += ["  ret <8 x i32> %s3", "}"]
    text = text.replace(declared[0], "\n".join(lines))
    return text.replace(f"@{MULTIPLY_ADD}", "@multiply_add")


def main(what: str, arguments: list[str]) -> None:
    """Do what the module's docstring says."""
    from edgellm.kernels.cpu import compile, isa, store, target

    if what == "emulated":
        folder, *names = arguments
        made_for = target.any_target(isa.AVXVNNI, target.system(), "x86-64")
        machine = target.target_machine(target.host_target(isa.AVX2))
        for name in names:
            text = plain_multiply_add(compile.kernel_text(made_for, name))
            module = compile.make_module(machine, name, text)
            store.write_object(Path(folder), name, machine.emit_object(module))
        return
    if what == "kinds":
        # A kernel whose text is the same for all of them: a process lowers words for one target only.
        text, result = compile.kernel_text(target.host_target(isa.GENERIC), "add_rows"), {}
        for both in arguments:
            machine = target.target_machine(target.named_target(*both.split()[::-1]))
            module = compile.make_module(machine, "add_rows", text)
            result[both] = machine.emit_object(module)[:8].hex()
        print(json.dumps(result))
        return
    target_name, system, *names = arguments
    made_for = target.named_target(target_name, system)
    machine = target.target_machine(made_for)
    modules = ((n, compile.make_module(machine, n, compile.kernel_text(made_for, n))) for n in names)
    print(json.dumps({n: machine.emit_assembly(module) for n, module in modules}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
