"""The pages of the project, taken apart for the tests beside this file: prose, headings, links, code and commands.

A page is a Markdown file of the tree, without the design log, which tells of the past. DOCS_BUILD names the build folder.
"""
import functools
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("DOCS_BUILD", ROOT / "build"))
HISTORY = "docs/dev/design-log/"

LINK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
WORD = re.compile(r"[A-Za-z0-9][\w'’.%/-]*")


@functools.cache
def tracked():
    """All files of the tree, as paths relative to it. Without git, as in an archive of the source: all but those of builds."""
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    names = out.stdout.splitlines() if out.returncode == 0 else [
        str(path.relative_to(ROOT)) for path in sorted(ROOT.rglob("*")) if not re.match(r"build|\.git/", str(path.relative_to(ROOT)))]
    return [name for name in names if (ROOT / name).is_file()]


def plain(text):
    """Markdown without links and emphasis."""
    return re.sub(r"[*]{1,2}([^*]+)[*]{1,2}", r"\1", LINK.sub(r"\1", text))


class Page:
    def __init__(self, name):
        self.name, self.path = name, ROOT / name
        self.text = self.path.read_text()
        self.blocks = []      # (line, language, lines) of each block of code
        self.paragraphs = []  # (line, text) of each paragraph or item of a list
        self.lines = []       # (line, text) of everything that is no block of code
        self.headings = []    # texts
        self._take_apart()

    def _take_apart(self):
        block, paragraph, start = None, [], 0
        for number, line in enumerate(self.text.splitlines() + [""], 1):
            fence = re.match(r"\s*```(\S*)", line)
            if fence and block is None:
                block = (number + 1, fence[1], [])
                line = ""
            elif fence:
                self.blocks.append(block)
                block, line = None, ""
            elif block is not None:
                block[2].append(line)
                continue
            elif line.startswith("    ") and not paragraph:
                self.blocks.append((number, "", [line]))
                continue
            else:
                self.lines.append((number, line))
            heading = re.match(r"#+ +(.*)$", line)
            if heading:
                self.headings.append(heading[1])
            prose = "" if heading or line.lstrip().startswith(("|", "<")) else line
            body = re.sub(r"^\s*(?:[*-]|\d+\.)\s+", "", prose)
            if paragraph and (not body.strip() or body != prose):
                self.paragraphs.append((start, " ".join(paragraph)))
                paragraph = []
            if body.strip():
                start = start if paragraph else number
                paragraph.append(body.strip())

    def words(self):
        """Words outside of tables and code; a piece of code in a sentence is one word."""
        return sum(len(WORD.findall(CODE.sub("CODE", plain(text)))) for text in [text for _, text in self.paragraphs] + self.headings)

    def anchors(self):
        """What a heading can be linked by, as GitHub makes it."""
        seen, found = {}, set()
        for heading in self.headings:
            slug = re.sub(r"[^\w\- ]", "", plain(heading).replace("`", "").lower()).replace(" ", "-")
            count = seen.get(slug, 0)
            seen[slug] = count + 1
            found.add(slug if count == 0 else f"{slug}-{count}")
        return found

    def links(self):
        """(line, target) of each link and picture."""
        for number, line in self.lines:
            for match in LINK.finditer(CODE.sub("", line)):
                yield number, match[2]
            for match in re.finditer(r'(?:src|srcset|href)="([^"]+)"', line):
                yield number, match[1]

    def inline_code(self):
        for number, line in self.lines:
            for match in CODE.finditer(line):
                yield number, match[1]

    def commands(self):
        """(line, command) of each command in a block of code or in the text. Comments are cut off; a line that ends with a
        backslash goes on in the next."""
        for first, language, lines in self.blocks:
            if language not in ("", "sh", "bash", "yaml"):
                continue
            joined = ""
            for offset, line in enumerate(lines):
                joined += re.sub(r"(^|\s)#.*$", "", line).rstrip()
                if joined.endswith("\\"):
                    joined = joined[:-1]
                    continue
                if joined.strip():
                    yield first + offset, joined.strip().removeprefix("$ ")
                joined = ""
        yield from self.inline_code()


@functools.cache
def pages():
    return [Page(name) for name in tracked() if name.endswith(".md") and not name.startswith(HISTORY)]


@functools.cache
def tree_text(*folders):
    """All text of the sources in these folders, to look names up in."""
    ends = (".h", ".cc", ".c", ".cu", ".cuh", ".py", ".sh", ".cmake", ".txt", ".in", ".toml", ".md")
    return "\n".join((ROOT / name).read_text(errors="replace") for name in tracked()
                     if name.startswith(folders) and name.endswith(ends) and not name.startswith(("docs/", "tests/tools/docs/")))


@functools.cache
def names_in(*folders):
    """All words of the sources in these folders."""
    return frozenset(re.findall(r"\w+", tree_text(*folders)))


@functools.cache
def help_of(tool, *command):
    """What `tool command --help` prints; None where the tool is not built."""
    path = BUILD / "bin" / tool
    if not path.exists():
        return None
    out = subprocess.run([path, *command, "--help"], capture_output=True, text=True, timeout=60,
                         env={**os.environ, "WEFT_TUNE": "off"})
    return out.stdout + out.stderr
