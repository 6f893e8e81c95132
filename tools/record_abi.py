"""Writes raggrad/capi/test/capi_abi_test.c: what a C program that was compiled today takes for granted.

    tools/record_abi.py VERSION        `make abi-record` does that

The file is C. It compiles as long as such a program keeps working: functions, constants and members at the end of
structs may be added. abidiff would need a library with debug information, refuses structs that grow, which is what
struct_size is for, and sees no constants, because functions take them as int32_t.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEADERS = ["raggrad/capi/raggrad_c.h", "raggrad/capi/raggrad_c_batching.h"]
RECORD = ROOT / "raggrad/capi/test/capi_abi_test.c"

_FUNCTION = re.compile(r'__attribute__\(\(visibility\("default"\)\)\) ([^();]*?)(rg_\w+)(\([^;]*\));')
_STRUCT = re.compile(r"typedef struct (rg_\w+) \{(.*?)\} \1;", re.DOTALL)
_TYPEDEF = re.compile(r"typedef (\w+ )(rg_\w+);|typedef (\w+ )\(\*(rg_\w+)\)(\([^;]*\));")
_CONSTANT = re.compile(r"\b(RG_\w+) = (-?\d+)")
_MACRO = re.compile(r"^#define (RG_\w+) (\d+)$", re.MULTILINE)
# `int64_t a, b`, `rg_block c[3]`, `void (*d)(int)`: what comes before the name, the name, what comes after it.
_MEMBER = re.compile(r"^(.*?)(\w+(?:, \w+)*)((?:\[\d+\])?|\)\(.*\))$", re.DOTALL)

_HEAD = """// The C ABI of raggrad {version}, written by tools/record_abi.py. If this file no longer compiles, programs
// that use that version would break: change the code, or RG_ABI_VERSION and this file (make abi-record).
// clang-format off
{includes}
#define IS(expression, type) _Generic((expression), type: 1, default: 0)
#define MEMBER(name, member, offset, type) \\
  _Static_assert(offsetof(name, member) == (offset) && IS(((name*)0)->member, type), #name "." #member)

"""
_TAIL = """

// Every function above is linked.
int main(void) { return abi_rg_abi_version() == RG_ABI_VERSION ? 0 : 1; }
"""


def _c(*arguments: str, text: str) -> str:
    """Returns what the C compiler prints for this text."""
    command = ["cc", "-std=c11", f"-I{ROOT}", "-x", "c", *arguments, "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def _members(body: str) -> list[tuple[str, str]]:
    """Names and types, with arrays as their element's type."""
    found = []
    for declaration in body.split(";")[:-1]:
        before, names, after = _MEMBER.match(_one_line(declaration)).groups()
        type_ = before + after if after.startswith(")") else before.strip()
        found += [(name + "[0]" * after.startswith("["), type_) for name in names.split(", ")]
    return found


def _layouts(structs: dict[str, list[tuple[str, str]]], includes: str) -> list[int]:
    """Sizes of structs and offsets of their members, in order, from the compiler."""
    numbers = [f"sizeof({name})" for name in structs]
    numbers += [f"offsetof({name}, {member})" for name, members in structs.items() for member, _ in members]
    lines = [f'__asm__("@%c0" :: "i"({number}));' for number in numbers]
    printed = _c("-S", "-o", "-", text=f"{includes}void f(void) {{\n" + "\n".join(lines) + "\n}\n")
    return [int(number) for number in re.findall(r"^\s*@(\d+)$", printed, re.MULTILINE)]


def _macros() -> list[tuple[str, str]]:
    headers = sorted((ROOT / "raggrad/capi").glob("raggrad_c*.h"))
    return [macro for header in headers for macro in _MACRO.findall(header.read_text())]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def record(version: str) -> str:
    includes = "".join(f"#include <{header}>\n" for header in HEADERS)
    code = _c("-E", "-P", text=includes)
    lines = [f'_Static_assert({name} == {value}, "{name}");' for name, value in _macros() + _CONSTANT.findall(code)]
    for simple, name, result, pointer, parameters in _TYPEDEF.findall(code):
        if simple != "struct ":
            type_ = simple.strip() or f"{result}(*){_one_line(parameters)}"
            lines.append(f'_Static_assert(IS(({name or pointer})0, {type_}), "{name or pointer}");')

    structs = {name: _members(body) for name, body in _STRUCT.findall(code)}
    layouts = iter(_layouts(structs, includes))
    sizes = {name: next(layouts) for name in structs}
    for name, members in structs.items():
        relation = ">=" if members[0][0] == "struct_size" else "=="
        lines += ["", f'_Static_assert(sizeof({name}) {relation} {sizes[name]}, "{name}");']
        lines += [f"MEMBER({name}, {member}, {next(layouts)}, {type_});" for member, type_ in members]

    lines.append("")
    for result, name, parameters in _FUNCTION.findall(code):
        lines.append(f"{result}(*abi_{name}){_one_line(parameters)} = {name};")
    return _HEAD.format(version=version, includes=includes) + "\n".join(lines) + _TAIL


if __name__ == "__main__":
    RECORD.write_text(record(sys.argv[1]))
