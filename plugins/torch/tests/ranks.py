"""Ranks as processes that stay: a test sends them a function, each runs it in a process group, and returns its result."""
import datetime
import importlib
import multiprocessing
import os
import pathlib
import signal
import sys
import tempfile
import time
import traceback

HERE = pathlib.Path(__file__).parent


def _serve(connection, rank, size, backend, store_path, timeout, environment, prepare):
    os.environ.update(environment)
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.path.insert(0, str(HERE))
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    options = prepare(rank) if prepare else {}
    dist.init_process_group(backend, store=dist.FileStore(store_path, size), rank=rank, world_size=size,
                            timeout=datetime.timedelta(seconds=timeout), **options)
    connection.send(("ready", None))
    while True:
        asked = connection.recv()
        if asked is None:
            break
        module, name, arguments = asked
        try:
            connection.send(("result", getattr(importlib.import_module(module), name)(*arguments)))
        except BaseException as error:  # reported to the test, whatever it is
            connection.send(("error", f"{type(error).__name__}: {error}\n{traceback.format_exc()}"))
    dist.destroy_process_group()


class RankError(AssertionError):
    """A rank raised; the text is "Type: message" and the rank's traceback."""


class Ranks:
    """`prepare(rank)` runs in each rank before the group is made, and returns options for init_process_group()."""

    def __init__(self, size, backend="weft", timeout=60, environment=None, prepare=None):
        self.size, self.failed = size, False
        self.folder = tempfile.TemporaryDirectory(prefix="weft-torch-")
        context = multiprocessing.get_context("spawn")
        self.processes, self.connections = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, daemon=True, args=(
                theirs, rank, size, backend, self.folder.name + "/store", timeout, environment or {}, prepare))
            process.start()
            theirs.close()
            self.processes.append(process)
            self.connections.append(ours)
        wrong = [f"rank {rank}: {text}" for rank, (kind, text) in enumerate(self._answers(300)) if kind != "ready"]
        if wrong:
            raise RankError("\n".join(wrong))

    def _answer(self, rank, end):
        if not self.connections[rank].poll(max(0.0, end - time.monotonic())):
            return ("silent", "does not answer")
        try:
            return self.connections[rank].recv()
        except EOFError:
            return ("died", "died")

    def _answers(self, seconds, ranks=None):
        end = time.monotonic() + seconds
        return [self._answer(rank, end) for rank in (range(self.size) if ranks is None else ranks)]

    def kill_at(self, rank, flag, seconds=60):
        """Kills a rank when the file `flag` is there."""
        end = time.monotonic() + seconds
        while not flag.exists() and time.monotonic() < end:
            time.sleep(0.02)
        os.kill(self.processes[rank].pid, signal.SIGKILL)

    def start(self, function, *arguments):
        for connection in self.connections:
            connection.send((function.__module__, function.__name__, arguments))

    def outcomes(self, ranks=None, seconds=90):
        """[(kind, result or text)] of the ranks, kind "result", "error", "died" or "silent"."""
        return self._answers(seconds, ranks)

    def call(self, function, *arguments, seconds=90):
        """Runs function(*arguments) on every rank; returns their results. Raises if one raised."""
        self.start(function, *arguments)
        outcomes = self.outcomes(seconds=seconds)
        wrong = [f"rank {rank}: {text}" for rank, (kind, text) in enumerate(outcomes) if kind != "result"]
        if wrong:
            self.failed = True
            raise RankError("\n".join(wrong))
        return [result for _, result in outcomes]

    def close(self):
        for connection in self.connections:
            try:
                connection.send(None)
            except OSError:
                pass
        for process in self.processes:
            process.join(1 if self.failed else 20)
            if process.is_alive():
                process.kill()
        self.folder.cleanup()


_shared = {}


def shared(size, backend="weft"):
    """Ranks that tests share, new ones after a failure. They are ended by conftest.py."""
    made = _shared.get((size, backend))
    if made is not None and made.failed:
        made.close()
        made = None
    if made is None:
        made = _shared[(size, backend)] = Ranks(size, backend)
    return made


def close_shared():
    for ranks in _shared.values():
        ranks.close()
