#!/usr/bin/env python3
"""Checks the sizes of classes: check_classes.py [--all] [FOLDER].

A class or struct below FOLDER (default: src/weft and src/loom) has at most 40 functions and 20 members, and at most one `.cc` file defines its
functions. Prints each class that breaks a rule; with --all, the counts of every class. The exit code is 1 if a class breaks a rule.

Every function that the class declares counts, but for deleted and defaulted ones, and every data member, but for constants (`static
constexpr`). What nested classes have is theirs. The source is read as text: macros are not expanded.
"""
import re
import sys
from collections import defaultdict
from pathlib import Path

MOST_FUNCTIONS, MOST_MEMBERS = 40, 20

# Classes that may break a rule, by name, and why.
EXCEPTIONS = {
    "weft::Settings": "one member for each setting",
    "weft::device::cuda::Driver": "one function for each of the CUDA driver's that Weft calls",
    "weft::nccl::Config": "NCCL's own structure, member for member",
    "loom::ops::Operators": "a table: one member for each operator",
    "loom::cuda::AttentionArguments": "what a kernel is called with, member for member",
    "loom::model::ModelSpec": "one member for each choice that makes a model",
    "loom::model::FamilyKeys": "one member for each key of config.json",
    "loom::program::Job": "one member for each thing that determines a program",
    "loom::train::Config::Parallel": "one member for each key",
    "loom::text::BpeTokenizer": "what reads its files is a file of its own",
    "loom::text::WordPieceTokenizer": "what reads its files is a file of its own",
}

NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)[LuU]?\'(?:\\.|[^\'\\\n])+\'',
                     re.DOTALL | re.MULTILINE)
ATTRIBUTE = re.compile(r"\[\[.*?\]\]|\bWEFT_[A-Z_]+\b(?:\((?:[^()]|\([^()]*\))*\))?|\balignas\((?:[^()]|\([^()]*\))*\)")
CLASS = re.compile(r"^(?:class|struct|union)\b\s*([\w:]*)(?:<[^{]*>)?\s*(?:final\s*)?(?::.*)?$", re.DOTALL)
NO_MEMBER = re.compile(r"^(?:using|typedef|friend|static_assert|enum|namespace)\b|^(?:class|struct|union)\s+\w+$|^(?:static\s+|inline\s+)*constexpr\b")


class Class:
    def __init__(self, path):
        self.path, self.functions, self.members = path, [], []


def end_of_braces(text, at):
    depth = 0
    for i in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
    raise ValueError("unbalanced braces")


def without_angles(head):
    """A declaration without template arguments, so that its parentheses are those of a function."""
    head = re.sub(r"\boperator\s*(?:\(\)|[^\s\w(]+)", "operator_", head)
    head = re.sub(r"->|<=|>=|<<", "", head)
    while (shorter := re.sub(r"<[^<>]*>", "", head)) != head:
        head = shorter
    return re.sub(r"^\s*template\s*", "", head).strip()


def is_function(head):
    plain = without_angles(head)
    return "(" in plain.split("=")[0] and not NO_MEMBER.match(re.sub(r"^(?:static\s+|inline\s+)*constexpr\b", "", plain).strip())


def declarations(text):
    """(head, body) of each declaration of a scope. The body is None for a declaration without one; the braces of initializers are left out."""
    begin = i = depth = 0
    head = ""
    while i < len(text):
        c = text[i]
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(c, 0)
        if depth == 0 and c == ":" and re.fullmatch(r"\s*(?:public|private|protected)\s*", head + text[begin:i]):
            head, begin = "", i + 1
        elif depth == 0 and c == ";":
            yield (head + text[begin:i]).strip(), None
            head, begin = "", i + 1
        elif depth == 0 and c == "{":
            head, end = (head + text[begin:i]).strip(), end_of_braces(text, i)
            inside, begin = text[i + 1:end - 1], end
            plain = without_angles(head)
            after = text[end:].lstrip()[:1]
            if CLASS.match(plain) or re.match(r"(?:inline\s+)?namespace\b|extern\b\s*0?$|enum\b", plain) or not plain:
                yield head, inside
                head = "" if re.match(r"(?:inline\s+)?namespace\b|extern\b", plain) else "declared "  # struct { … } name;
            elif is_function(head) and after not in (",", "{"):
                yield head, inside
                head = ""
                if after == ";":
                    end = begin = text.index(";", end) + 1
            i = end - 1
        i += 1


def scan(text, path, scope, classes, definitions):
    """Takes in the classes of a scope, and which classes' functions a `.cc` defines there."""
    for head, body in declarations(text):
        plain = without_angles(head)
        if body is not None and (found := CLASS.match(plain)):
            name = "::".join(scope + ([found[1]] if found[1] else [f"(unnamed in {path.name})"]))
            classes.setdefault(name, Class(path))
            scan_class(body, path, scope + [found[1]], classes, definitions, classes[name])
        elif body is not None and (found := re.match(r"(?:inline\s+)?namespace\b\s*([\w:]*)", plain)):
            scan(body, path, scope + (found[1].split("::") if found[1] else [f"({path.name})"]), classes, definitions)
        elif body is not None and plain.startswith("extern"):
            scan(body, path, scope, classes, definitions)
        elif body is not None and (found := re.search(r"([\w:]+)::~?\w+\s*$", plain.split("(")[0])):
            definitions["::".join(scope + found[1].split("::"))].add(path)


def scan_class(text, path, scope, classes, definitions, owner):
    for head, body in declarations(text):
        plain = without_angles(head)
        if body is not None and CLASS.match(plain):
            scan(head + "{" + body + "};", path, scope, classes, definitions)
            continue
        if plain.startswith("declared"):
            plain = plain[len("declared"):].strip()
        if is_function(head):
            if not re.search(r"=\s*(?:delete|default)\s*$", plain):
                owner.functions.append(plain.split("(")[0].split()[-1])
        elif plain and not NO_MEMBER.match(plain):
            while (shorter := re.sub(r"\([^()]*\)|\[[^\[\]]*\]", "", plain)) != plain:
                plain = shorter
            owner.members += [part.split("=")[0].split(":")[0].split()[-1] for part in plain.split(",")]


def check(root, show_all):
    """What breaks the rules below one folder, and how many classes there are."""
    classes, definitions = {}, defaultdict(set)
    for path in sorted(root.rglob("*")):
        if path.suffix not in (".h", ".cc", ".cu"):
            continue
        text = NO_CODE.sub(lambda found: "" if found[0].lstrip()[:1] in "/#" else "0", path.read_text(encoding="utf-8"))
        scan(ATTRIBUTE.sub(" ", text), path.relative_to(root), [], classes, definitions)
    wrong = []
    for name, c in sorted(classes.items()):
        files = sorted(str(path) for path in definitions[name] if path.suffix == ".cc")
        said = f"{name} ({c.path}): {len(c.functions)} functions, {len(c.members)} members"
        if show_all:
            print(said)
        if name in EXCEPTIONS:
            continue
        if len(c.functions) > MOST_FUNCTIONS or len(c.members) > MOST_MEMBERS:
            wrong.append(said)
        if len(files) > 1:
            wrong.append(f"{name} ({c.path}): functions in {', '.join(files)}")
    return wrong, set(classes)


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--all"]
    source = Path(__file__).resolve().parent.parent / "src"
    wrong, names = [], set()
    for root in [Path(arguments[0])] if arguments else [source / "weft", source / "loom"]:
        found, classes = check(root, "--all" in sys.argv)
        wrong += found
        names |= classes
    if not arguments:
        wrong += [f"{name} is an exception, but no class" for name in EXCEPTIONS if name not in names]
    print("\n".join(wrong) if wrong else f"{len(names)} classes, none above {MOST_FUNCTIONS} functions or {MOST_MEMBERS} members")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
