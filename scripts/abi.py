#!/usr/bin/env python3
"""Lists the binary interface of libweft.so, or compares it with the list of the last release.

  scripts/abi.py build/lib/libweft.so                        compares with the newest list in tests/install/abi
  scripts/abi.py build/lib/libweft.so --write FILE           writes the list, at a release

A list has a line for each exported function with its signature, each structure with its size, each member with offset and
size, and each enumerator and integer macro with its value. Compatible are new functions, new enumerators, and new members at the
end of a structure that begins with its size. Anything else is named, and the exit code is 1. docs/dev/versions.md has the policy.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include"
LISTS = ROOT / "tests/install/abi"
COUNTS = re.compile(r"^enum weftNum")  # the number of enumerators grows with them
SKIPPED_MACROS = {"WEFT_MAJOR", "WEFT_MINOR", "WEFT_PATCH", "WEFT_VERSION_CODE"}


def source():
    text = (INCLUDE / "weft/weft.h").read_text()
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def functions(text, library):
    """Exported functions with the signatures that the header gives them."""
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    exported = {line.split()[-1].split("@")[0] for line in symbols.splitlines()}
    for result, name, arguments in re.findall(r"^WEFT_API ([^;(]*?)(\w+)\(([^;]*)\);", text, re.M):
        if name in exported:
            types = [re.sub(r"\b\w+$", "", " ".join(each.split())).strip() or each.strip() for each in arguments.split(",")]
            yield f"function {name}: {' '.join(result.split())} ({', '.join(types)})"


def questions(text):
    """Lines of C that print the list's other lines."""
    for body, name in re.findall(r"typedef struct \{(.*?)\} (\w+);", text, re.S):
        yield f'printf("struct {name}: %zu bytes\\n", sizeof({name}));'
        for member in re.findall(r"(\w+)(?:\[\w+\])?;", body):
            at = f"offsetof({name}, {member}), sizeof((({name}*)0)->{member})"
            yield f'printf("member {name}.{member}: at %zu, %zu bytes\\n", {at});'
    for body in re.findall(r"typedef enum \{(.*?)\} \w+;", text, re.S):
        for name in re.findall(r"(\w+) =", body):
            yield f'printf("enum {name}: %lld\\n", (long long){name});'
    for name in re.findall(r"^#define (WEFT_\w+) \(?-?(?:0x)?[0-9a-f]+u?\)?\s*$", text, re.M):
        if name not in SKIPPED_MACROS:
            yield f'printf("macro {name}: %lld\\n", (long long){name});'


def listing(library):
    text = source()
    program = "#include <stddef.h>\n#include <stdio.h>\n#include <weft/weft.h>\nint main(void) {\n" + "\n".join(questions(text)) + "\n}\n"
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "list.c").write_text(program)
        subprocess.run(["cc", "-w", f"-I{INCLUDE}", path / "list.c", "-o", path / "list"], check=True)
        told = subprocess.run([path / "list"], check=True, capture_output=True, text=True).stdout.splitlines()
    return sorted(list(functions(text, library)) + told)


def broken(old, new):
    """Sentences on what of the list `old` is not in `new` as it was. A structure with a size in front may have grown."""
    said = dict(line.split(": ", 1) for line in new)
    versioned = {line.split(".")[0].split()[1] for line in old if re.match(r"member \w+\.version:", line)}
    for line in old:
        what, value = line.split(": ", 1)
        if what not in said:
            yield f"{what} ({value}) is gone"
        elif said[what] != value:
            grown = int(re.search(r"\d+", said[what])[0]) > int(re.search(r"\d+", value)[0]) if "function" not in what else False
            if not (grown and (COUNTS.match(what) or (what.startswith("struct ") and what.split()[1] in versioned))):
                yield f"{what} was {value}, and is {said[what]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library")
    parser.add_argument("--write", metavar="FILE", help="write the list instead of comparing")
    asked = parser.parse_args()
    new = listing(asked.library)
    if len(new) < 100:
        sys.exit(f"abi: only {len(new)} lines: the header is not understood")
    if asked.write:
        pathlib.Path(asked.write).write_text("\n".join(new) + "\n")
        return
    last = max(LISTS.glob("weft-*.txt"), key=lambda path: [int(part) for part in re.findall(r"\d+", path.stem)])
    problems = list(broken(last.read_text().splitlines(), new))
    if problems:
        sys.exit(f"abi: not compatible with {last.stem}:\n  " + "\n  ".join(problems))
    print(f"compatible with {last.stem}: {len(new)} lines")


if __name__ == "__main__":
    main()
