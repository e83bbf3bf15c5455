#!/usr/bin/env python3
"""Writes docs/api.md from the comments of include/weft/weft.h: scripts/api_doc.py. With --check it writes nothing and
says by its exit code whether the page is what the header says."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADER = ROOT / "include/weft/weft.h"
PAGE = ROOT / "docs/api.md"

COMMENT = r"/\*(?P<text>(?:[^*]|\*(?!/))*)\*/"


def lines_of(comment):
    """A comment's lines without the stars in front of them."""
    return [re.sub(r"^\s*\* ?", "", line).rstrip() for line in comment.strip().splitlines()]


def paragraphs(comment):
    """Its paragraphs, each in one line."""
    blocks = "\n".join(lines_of(comment)).split("\n\n")
    return [" ".join(block.split()) for block in blocks if block.strip()]


def signature(text):
    return re.sub(r"\n\s+", " ", text.replace("WEFT_API ", "")).strip()


def function(match):
    name = re.search(r"(weft\w+)\(", match["code"])[1]
    text = " ".join(paragraphs(match["text"]))
    meaning, _, errors = text.partition(" Errors: ")
    out = [f"### {name}", "", "```c", signature(match["code"]), "```", "", meaning]
    if errors:
        out += ["", f"*Errors:* {errors}"]
    return out + [""]


def results(source):
    body = re.search(r"typedef enum \{([^}]*)\} weftResult_t;", source)[1]
    rows = re.findall(r"(weft\w+) = (\d+),?[ \t]*(?:/\*(.*?)\*/)?", body)
    told = {"weftSuccess": "done", "weftUnhandledCudaError": "a call of CUDA failed",
            "weftOutOfMemory": "no memory left"}
    table = ["| code | value | meaning |", "| --- | --- | --- |"]
    for name, value, meaning in rows:
        if name != "weftNumResults":
            table.append(f"| `{name}` | {value} | {meaning.strip() or told.get(name, '')} |")
    return table


def types(source):
    """Structures, enumerations and macros, as the header has them."""
    begin = source.index("/* ---- types ---- */")
    end = source.index("/* ---- version and errors ---- */")
    text = source[begin:end].partition("\n")[2]
    text = re.sub(r"/\* clang-format (on|off) \*/\n", "", text)
    return ["```c", text.strip(), "```", ""]


def conventions(source):
    text = re.match(COMMENT, source)["text"]
    out = []
    for paragraph in paragraphs(text.split("Conventions, stated once", 1)[1]):
        title, _, rest = paragraph.partition(". ")
        if title[0].isupper() and len(title) < 25 and rest:
            paragraph = f"**{title}.** {rest}"
        out += [paragraph, ""]
    return out


def page(source):
    out = ["# The C interface", "",
           "Written by `scripts/api_doc.py` from `include/weft/weft.h`, which is the whole interface; do not edit.",
           "Names, order of arguments and meaning are NCCL's host API with the prefix `weft`, but for what is marked",
           "\"Weft only\". `weft/weft_mpi.h` adds `weftCommInitMpi`.", "",
           "## Conventions", ""]
    out += conventions(source)
    out += ["## Result codes", ""] + results(source)
    out += ["", "0 to 7 are NCCL's. `weftGetErrorString` gives a few words for a code, `weftGetLastError` the whole sentence.", "",
            "## Types", ""] + types(source)
    section = re.compile(r"/\* ---- (?P<title>[a-z ]+) ----(?P<more>[^/]*)\*/")
    call = re.compile(COMMENT + r"\n(?P<code>WEFT_API [^;]*;)")
    sections = [m for m in section.finditer(source) if m["title"] != "types"]
    for number, this in enumerate(sections):
        end = sections[number + 1].start() if number + 1 < len(sections) else len(source)
        out += [f"## {this['title'].strip().capitalize()}", ""]
        for paragraph in paragraphs(this["more"]):
            out += [paragraph, ""]
        for match in call.finditer(source, this.end(), end):
            out += function(match)
    return "\n".join(out).rstrip() + "\n"


def main():
    source = HEADER.read_text()
    right = page(source)
    functions = set(re.findall(r"^WEFT_API [^;(]*?(weft\w+)\(", source, re.M))
    left_out = sorted(name for name in functions if f"### {name}\n" not in right)
    if left_out:
        sys.exit(f"api_doc: no comment in {HEADER.name} right above {', '.join(left_out)}")
    if "--check" in sys.argv[1:]:
        if PAGE.read_text() != right:
            sys.exit("api_doc: docs/api.md is not what include/weft/weft.h says; run scripts/api_doc.py")
        return
    PAGE.write_text(right)


if __name__ == "__main__":
    main()
