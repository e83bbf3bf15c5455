"""Every command in the pages exists: programs, their options, targets of make, scripts, keys of Loom's config, labels of ctest."""
import re
import shlex
import subprocess
import unittest

from pages import BUILD, ROOT, Page, help_of, pages, tree_text

TOOLS = {"weft_run", "weft_info", "weft_sim", "loom"}
LOOM_COMMANDS = {"train", "plan", "report", "eval", "sample", "tokenize", "export", "inspect"}
ENDS = {"|", "&&", ";", "||", "&", ">", "2>", "<"}  # … and what begins with one, such as <(


def words_of(command):
    try:
        return shlex.split(command.replace("…", "..."), comments=False)
    except ValueError:
        return command.split()


def program(word):
    """The name of a program of the build, where the word is one."""
    match = re.match(r"^(?:\./)?(?:build|\$bin|.*/build)/bin/(\w+)$", word)
    return match[1] if match else word if word in TOOLS or re.fullmatch(r"\w+_perf", word) else None


def runs(words):
    """(program, words that are its arguments) of each program of ours in a command."""
    current, arguments = None, []
    for word in words:
        if (name := program(word)) or word in ENDS or word.startswith("<("):
            if current:
                yield current, arguments
            current, arguments = name, []
        elif current:
            arguments.append(word)
    if current:
        yield current, arguments


def options_of(arguments):
    """The options up to the program that the command starts, if it starts one."""
    for word in arguments:
        if word == "--" or word in ENDS or program(word):
            return
        match = re.match(r"^(--[a-zA-Z][\w-]*(?:\.[\w]+)?|-[a-zA-Z]+)(?:=.*)?$", word)
        if match:
            yield match[1]


def has_option(text, option):
    return re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text) is not None


class Commands(unittest.TestCase):
    def each(self):
        for page in pages():
            for line, command in page.commands():
                yield f"{page.name}:{line}", command

    def test_programs_and_options_exist(self):
        seen = 0
        for where, command in self.each():
            for name, arguments in runs(words_of(command)):
                sub = [arguments[0]] if name == "loom" and arguments and arguments[0] in LOOM_COMMANDS else []
                with self.subTest(where=where, command=command):
                    if name.startswith("test_"):  # tests/<layer> or tests/loom/<layer>; its options are GoogleTest's
                        folder = re.sub(r"^loom_", "loom/", name.removeprefix("test_"))
                        self.assertTrue((ROOT / "tests" / folder).is_dir(), f"{where}: no program {name}")
                        continue
                    text = help_of(name, *sub)
                    self.assertIsNotNone(text, f"{where}: no program {name}")
                    for option in options_of(arguments):
                        if "." in option:
                            section_key = option.removeprefix("--")
                            self.assertTrue(has_option(help_of("loom", "train"), section_key), f"{where}: no key {section_key}")
                        elif name == "loom" and not sub:
                            continue
                        else:
                            self.assertTrue(has_option(text, option), f"{where}: {name} has no option {option}")
                        seen += 1
        self.assertGreater(seen, 100, "commands are no longer found in the pages")

    def test_reference_lists_every_option(self):
        """docs/reference/tools.md has each option of each tool, and what it says of a default is what the tool says."""
        page = Page("docs/reference/tools.md")
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for _, line in page.lines if line.startswith("|")]
        for tool, *command in [("weft_run",), ("weft_info",), ("weft_sim",), ("all_reduce_perf",), *(("loom", each) for each in sorted(LOOM_COMMANDS))]:
            text = help_of(tool, *command).partition("Keys of the config")[0]
            for names, default in re.findall(r"^ +((?:-{1,2}[\w-]+,?)+)(?: [^\n=]*=(\S+))?", text, re.M):
                spellings = [each for each in names.split(",") if each not in ("-h", "--help", "--version")]
                if not spellings:
                    continue
                with self.subTest(tool=tool, option=spellings):
                    told = [row for row in rows for each in spellings if any(re.search(rf"`{re.escape(each)}(?: [^`]*)?`", cell) for cell in row)]
                    self.assertTrue(told or any(f"`{each}`" in page.text for each in spellings), f"no {names} of {tool} {' '.join(command)}")
                    if re.fullmatch(r"[1-9][\d.]*[KMG]?", default):
                        said = [row[2] for row in told if len(row) == 3 and row[2] and any(f"`{each}" in row[0] for each in spellings)]
                        self.assertTrue(not said or any(default in each for each in said), f"{names} of {tool}: the default is {default}")

    def test_targets_of_make_exist(self):
        makefile = (ROOT / "Makefile").read_text()
        targets = set(re.findall(r"^([a-z][\w-]*):", makefile, re.M))
        for where, command in self.each():
            match = re.match(r"^(?:[A-Z_]+=\S+ )*make((?: [\w=$/.\-]+)*)", command)
            for word in (match[1].split() if match else []):
                with self.subTest(where=where, command=command):
                    if re.fullmatch(r"[a-z][a-z-]*", word):
                        self.assertIn(word, targets, f"{where}: make has no target {word}")
                    elif "=" in word:
                        name = word.partition("=")[0]
                        self.assertTrue(re.search(rf"\b{name}\b", makefile), f"{where}: the Makefile does not know {name}")

    def test_scripts_and_their_options_exist(self):
        for where, command in self.each():
            words = words_of(command)
            for at, word in enumerate(words):
                if not re.fullmatch(r"(?:scripts|perf|examples)/[\w/]+\.(?:py|sh)", word):
                    continue
                with self.subTest(where=where, command=command):
                    path = ROOT / word
                    self.assertTrue(path.exists(), f"{where}: no {word}")
                    # An option is declared in the script, in a package beside it, or in what the script calls.
                    text = path.read_text() + tree_text(word.partition("/")[0] + "/")
                    for option in options_of(words[at + 1:]):
                        self.assertTrue(has_option(text, option), f"{where}: {word} has no option {option}")

    def test_cmake_options_and_test_labels_exist(self):
        lists = tree_text("CMakeLists.txt", "cmake/", "tests/", "src/", "perf/", "plugins/")
        listed = subprocess.run(["ctest", "--test-dir", BUILD, "--print-labels"], capture_output=True, text=True).stdout
        labels = set(re.findall(r"^  (\S+)$", listed, re.M))
        for where, command in self.each():
            with self.subTest(where=where, command=command):
                for name in re.findall(r"-D([A-Z]\w+)=", command):
                    if not name.startswith("CMAKE_"):
                        self.assertTrue(re.search(rf"\b{name}\b", lists), f"{where}: CMake does not know {name}")
                for label in re.findall(r"\bctest\b.* -L (\w+)", command):
                    self.assertIn(label, labels, f"{where}: no test has the label {label}")


if __name__ == "__main__":
    unittest.main()
