"""What the pages state is what the source says: names of settings, functions and keys, defaults, the version, pictures."""
import csv
import functools
import json
import math
import re
import subprocess
import sys
import unittest

from pages import BUILD, ROOT, Page, help_of, names_in, pages, tracked, tree_text

# Names that a page shows as wrong on purpose.
WRONG_ON_PURPOSE = {"WEFT_ALG"}
# Files of others.
GIVEN = {"libcuda.so.1", "libpmix.so", "libpmix.so.2", "pytorch_model.bin"}


@functools.cache
def settings():
    out = subprocess.run([BUILD / "bin/weft_info", "--settings", "--json"], check=True, capture_output=True, text=True).stdout
    return {each["name"]: each for each in json.loads(out)["settings"]}


@functools.cache
def loom_keys():
    """Keys of Loom's config with their defaults, as `loom train --help` says them."""
    found = {}
    for line in (help_of("loom", "train") or "").splitlines():
        match = re.match(r"^\s+((?:model|data|parallel|optimizer|loss_scale|run)\.\w+)\s+(.*)$", line)
        if match:
            found[match[1]] = match[2]
    return found


def number(text):
    """A value without its unit: "600 s", "256M" and "4" as what a setting's default says."""
    return re.sub(r"\s*(?:s|µs|B|ms)$", "", text.strip().strip("`"))


class Facts(unittest.TestCase):
    def test_names_of_ours_exist(self):
        known = names_in("include/", "src/", "plugins/", "tests/", "CMakeLists.txt", "cmake/", "perf/", "scripts/", "tools/")
        for page in pages():
            for match in re.finditer(r"\b(?:WEFT|TORCH_WEFT|LOOM)_[A-Z][A-Z_]*[A-Z]\b(?![a-z_*])", page.text):
                with self.subTest(page=page.name, name=match[0]):
                    self.assertTrue(match[0] in WRONG_ON_PURPOSE or match[0] in known, f"{page.name} names {match[0]}, which nothing reads")

    def test_settings_exist(self):
        macros = names_in("include/", "CMakeLists.txt", "cmake/", "tests/", "src/weft/CMakeLists.txt")
        for page in pages():
            for match in re.finditer(r"(?<![\w-])(WEFT_[A-Z_]+)=", page.text):
                with self.subTest(page=page.name, name=match[1]):
                    self.assertTrue(match[1] in settings() or match[1] in WRONG_ON_PURPOSE or match[1] in macros,
                                    f"{page.name} sets {match[1]}, which is no setting")

    def test_functions_exist(self):
        known = names_in("include/weft/")
        for page in pages():
            for match in re.finditer(r"\bweft[A-Z]\w+\b", page.text):
                with self.subTest(page=page.name, name=match[0]):
                    self.assertTrue(match[0] in known or match[0] == "weftInvalid", f"{page.name} names {match[0]}, which weft.h does not have")

    def test_keys_of_the_config_exist(self):
        keys = loom_keys()
        self.assertGreater(len(keys), 50, "loom train --help lists its keys differently")
        for page in pages():
            for line, code in page.inline_code():
                for match in re.finditer(r"(?<![\w./-])(?:model|data|parallel|optimizer|loss_scale|run)\.[a-z]\w*(?![\w./(])", code):
                    if re.search(r"\.(?:out|safetensors|json|md|cc|h|py|to|loss|cpp)$", match[0]) and match[0] != "run.out":
                        continue
                    with self.subTest(page=page.name, line=line, key=match[0]):
                        self.assertIn(match[0], keys, f"{page.name}:{line}: Loom has no key {match[0]}")

    def test_stated_defaults_are_right(self):
        """A page states a default as `NAME` (default VALUE), `NAME`, default VALUE, `NAME=VALUE` (the default), or `NAME_S`, VALUE s. A name is that of
        a setting, of a key of Loom, or of an option whose tool tells its default."""
        tools = "\n".join(help_of(tool) or "" for tool in ("weft_run", "weft_info", "all_reduce_perf"))
        checked = 0
        for page in pages():
            told = re.findall(r"`([\w.-]+)`(?: \(|, )default:? `?([^\s)`|,;]+(?: (?:s|ms|µs)\b)?)", page.text)
            told += re.findall(r"`([\w.-]+)=([^`]*)` \(the default\)", page.text)
            for name, stated in told + re.findall(r"`(WEFT_\w+_S)`, ([\d.]+ s)\b", page.text):
                with self.subTest(page=page.name, name=name):
                    if name in settings():
                        right = settings()[name]["default"]
                    elif name in loom_keys():
                        right = loom_keys()[name].strip('"').split()[0].strip('",')
                    elif match := re.search(rf"{re.escape(name)} [^\n=]*=(\S+)", tools):
                        right = match[1]
                    else:
                        continue
                    self.assertEqual(number(stated), number(str(right)), f"{page.name} says that {name} is {stated} by default")
                    checked += 1
        self.assertGreater(checked, 10, "too few stated defaults are found in the pages")

    def test_names_of_files_are_those_of_the_source(self):
        """A file that a page names without a folder is in the tree, is written or read by the sources, or is made by a command."""
        known = tree_text("src/", "tools/", "perf/", "plugins/", "scripts/", "cmake/", "CMakeLists.txt", "examples/", "tests/install/")
        files = {name.rpartition("/")[2] for name in tracked()}
        for page in pages():
            commands = "\n".join("\n".join(lines) for _, _, lines in page.blocks)
            for line, code in page.inline_code():
                if re.fullmatch(r"[\w.-]+\.(?:json|jsonl|html|so|so\.\d|safetensors|pc|bin|cc|h|py|sh)", code):
                    with self.subTest(page=page.name, line=line, file=code):
                        stem = code.rpartition(".")[0]
                        self.assertTrue(code in files or code in known or code in commands or code in GIVEN or
                                        re.search(rf"(?:OUTPUT_NAME|NAMES?) {re.escape(stem.removeprefix('lib'))}\b", known),
                                        f"{page.name}:{line}: nothing knows a file {code}")

    def test_version_is_the_same_everywhere(self):
        version = re.search(r"project\(weft VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
        self.assertRegex((ROOT / "CHANGELOG.md").read_text(), rf"(?m)^## {re.escape(version)}\b")
        self.assertRegex((ROOT / "CITATION.cff").read_text(), rf"(?m)^version: {re.escape(version)}$")
        lists = sorted(path.stem for path in (ROOT / "tests/install/abi").glob("weft-*.txt"))
        self.assertIn(f"weft-{version}", lists)

    def test_errors_that_troubleshooting_quotes_are_in_the_source(self):
        """Of each quoted sentence, the pieces between numbers, names and ellipses stand in a string of the source."""
        source = re.sub(r'"\s*\n\s*(?:f?")', "", tree_text("src/", "plugins/", "tools/", "scripts/"))
        page = Page("docs/how-to/troubleshooting.md")
        checked = 0
        for line, code in page.inline_code():
            pieces = [each.strip() for each in re.split(r"…|\d+(?:[-.]\d+)*|'[^']*'|: |\bits input\b|\bAllReduce of\b|\bworld\b|WEFT_\w+|/proc\S*|\bN\b", code)]
            pieces = [each.strip(" :;,()") for each in pieces if len(each.split()) >= 3]
            if not pieces or re.match(r"(?:build/|[A-Z_]+=|--|kill|ldd|pip|ip |\{|srun|perf/|cpu:|fi_info|not enough|Address already|Could not find a package|ensurepip|libweft)", code):
                continue
            for piece in pieces:
                with self.subTest(line=line, quoted=piece):
                    self.assertIn(piece.strip(), source, f"{page.name}:{line}: no error of ours says this")
                    checked += 1
        self.assertGreater(checked, 15)

    def test_means_of_speed_ups_are_those_of_the_cells(self):
        """The table of docs/results/collectives.md against docs/results/data/collectives.csv, scenario by scenario."""
        cells = {}
        with open(ROOT / "docs/results/data/collectives.csv", newline="") as rows:
            for row in csv.DictReader(rows):
                cells.setdefault(row["scenario"], []).append(float(row["speed_up"]))
        page = (ROOT / "docs/results/collectives.md").read_text()
        table = re.findall(r"^\| (\d.*?) \| ([\d.]+)(?: \(EPYC\); [\d.]+)? \| (.*) \|$", page.partition("## Speed-ups")[2].partition("## ")[0], re.M)
        self.assertEqual(len(table), len(cells))
        means = sorted((math.exp(sum(map(math.log, ratios)) / len(ratios)), ratios) for ratios in cells.values())
        for (mean, ratios), (scenario, stated, slower) in zip(means, sorted(table, key=lambda row: float(row[1]))):
            with self.subTest(scenario=scenario):
                self.assertAlmostEqual(float(stated), mean, delta=0.006)
                count, of = map(int, re.search(r"(\d+) of (\d+)", slower).groups())
                self.assertEqual(of, len(ratios))
                self.assertTrue(sum(each < 1 for each in ratios) <= count <= sum(each <= 1 for each in ratios), slower)  # 1 is rounded

    def test_pictures_are_what_the_scripts_draw(self):
        done = subprocess.run([sys.executable, "-B", ROOT / "scripts/draw_pictures.py", "--check"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
