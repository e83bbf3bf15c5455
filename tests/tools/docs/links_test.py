"""Every link, anchor, picture and path in the pages leads somewhere; so does every page that the sources name."""
import re
import unittest

from pages import HISTORY, ROOT, Page, pages, tracked

FOLDERS = ("src", "tests", "docs", "scripts", "perf", "tools", "include", "examples", "plugins", "clusters", "cmake", ".ci", ".github")
PATH = re.compile(rf"^(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./*-]*$")
SOURCE = re.compile(r"^[\w./-]+/[\w.-]+\.(?:h|cc|c|cu|cuh|py|sh|json|txt)$")
# What is made by a build, by a run, or by the reader.
MADE = re.compile(r"^(?:build|run|run\.out|data|tokens|inst|checkpoints|models|model|DIR|FOLDER|site-packages|nvidia|lib|share|doc|weft|loom|"
                  r"usr|etc|dev|proc|tmp|step-\d+|http.*|~.*|/.*)(?:/|$)")


class Links(unittest.TestCase):
    def test_links_and_anchors_exist(self):
        by_path = {page.path.resolve(): page for page in pages()}
        for page in pages():
            for line, target in page.links():
                if re.match(r"[a-z]+:", target):
                    continue
                with self.subTest(page=page.name, line=line, link=target):
                    path, _, anchor = target.partition("#")
                    there = (page.path.parent / path).resolve() if path else page.path.resolve()
                    self.assertTrue(there.exists(), f"{page.name}:{line}: no {target}")
                    if anchor:
                        other = by_path.get(there) or Page(str(there.relative_to(ROOT)))
                        self.assertIn(anchor, other.anchors(), f"{page.name}:{line}: no heading for {target}")

    def test_paths_exist(self):
        files = tracked()
        for page in pages():
            for line, code in page.inline_code():
                name = code.strip().rstrip("/")
                with self.subTest(page=page.name, line=line, path=code):
                    if PATH.match(name):
                        self.assertTrue(any(ROOT.glob(name)), f"{page.name}:{line}: no {code}")
                    elif SOURCE.match(name) and not MADE.match(name):
                        self.assertTrue(any(("/" + each).endswith("/" + name) for each in files), f"{page.name}:{line}: no {code}")

    def test_pages_that_sources_name_exist(self):
        for name in tracked():
            if name.startswith((HISTORY, "tests/tools/docs/")) or not re.search(r"\.(h|cc|c|cu|cuh|py|sh|cmake|txt|json|md)$|Makefile$|\.ci/", name):
                continue
            text = (ROOT / name).read_text(errors="replace")
            for match in re.finditer(r"(?<![\w./-])docs/[\w/-]+(?:\.[\w-]+)+", text):
                with self.subTest(file=name, page=match[0]):
                    self.assertTrue((ROOT / match[0]).exists(), f"{name} names {match[0]}")

    def test_index_names_every_page(self):
        index = Page("docs/README.md")
        linked = {(index.path.parent / target.partition("#")[0]).resolve() for _, target in index.links() if ":" not in target}
        for page in pages():
            if page.name.startswith("docs/") and not page.name.startswith("docs/results/data/") and page.name != "docs/README.md":
                with self.subTest(page=page.name):
                    self.assertIn(page.path.resolve(), linked, f"docs/README.md has no link to {page.name}")


if __name__ == "__main__":
    unittest.main()
