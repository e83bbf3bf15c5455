"""The results of steps as lines of JSON, each on the disk before the next step begins.

A line: {"step", "status", "seconds", "card", "command", "values", "reason", "last_lines"}. status is started, ok, failed,
skipped or timeout. A step's last line counts; `started` as the last one says that the run was cut off in that step.
"""
import json
import os


class Results:
    """A file of results, which it goes on with if it is there. Not thread-safe."""

    def __init__(self, path):
        self._path = path
        torn = os.path.exists(path) and os.path.getsize(path) > 0 and not _ends_with_newline(path)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        if torn:  # a run that was cut off while it wrote
            os.write(self._file, b"\n")

    def add(self, **line):
        os.write(self._file, (json.dumps(line) + "\n").encode())
        os.fsync(self._file)


def _ends_with_newline(path):
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"


def read(paths):
    """{step: its last line} of files of results, in the order of the first lines. An incomplete line is ignored."""
    last = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for text in file:
                try:
                    line = json.loads(text)
                except ValueError:
                    continue
                earlier = last.get(line["step"])
                if earlier and earlier["status"] == "ok" and line["status"] in ("skipped", "started"):
                    continue  # another run had no time for what is known
                last[line["step"]] = line
    return last
