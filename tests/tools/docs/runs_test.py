"""The pages' commands of weft_info, weft_sim and the perf tools run and end with 0: those that stand in blocks of code and need
no file, GPU, root or other library. Perf tools get two small sizes, since what is tested is the command."""
import os
import re
import subprocess
import tempfile
import unittest

from commands_test import ENDS, words_of
from pages import BUILD, pages

NEEDS_MORE = re.compile(r"--device|--backend|my-cluster|cluster\.json|\bcluster\.sh\b|[|<>&;]|\.\.\.|\b[A-Z]{3,}\b(?!_)")
RUNS = re.compile(r"^(?:WEFT_LOG=\w+ |WEFT_ALGO='[^']*' )?build/bin/(?:weft_info|weft_sim|weft_run .*build/bin/\w+_perf)\b")


class Runs(unittest.TestCase):
    def test_commands_end_with_0(self):
        done = set()
        for page in pages():
            for first, _, lines in page.blocks:
                for offset, line in enumerate(lines):
                    command = re.sub(r"\s#.*$", "", line).strip().removeprefix("$ ")
                    if RUNS.match(command) and not NEEDS_MORE.search(command) and command not in done:
                        done.add(command)
                        with self.subTest(where=f"{page.name}:{first + offset}", command=command):
                            self.run_one(command)
        self.assertGreater(len(done), 10, "commands are no longer found in the pages")

    def run_one(self, command):
        words = [str(BUILD / word.removeprefix("build/")) if word.startswith("build/bin/") else word for word in words_of(command)]
        self.assertFalse(ENDS & set(words))
        variables = dict(word.split("=", 1) for word in words if re.match(r"^WEFT_\w+=", word))
        words = [word for word in words if not re.match(r"^WEFT_\w+=", word)]
        if re.search(r"build/bin/(?!overlap|startup)\w+_perf", command):
            words += ["--sizes", "8,1K"]
        if "weft_run" in words[0]:
            words[1:1] = ["--timeout", "120"]
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "WEFT_TUNE": "off", "WEFT_RECORDER_DIR": "none", **variables}
            ended = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=180)
        self.assertEqual(ended.returncode, 0, f"{command}\n{ended.stdout[-500:]}{ended.stderr[-1000:]}")


if __name__ == "__main__":
    unittest.main()
