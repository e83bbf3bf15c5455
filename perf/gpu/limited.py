"""Runs one command with a time limit, its output going to a file as it comes, and ends all that it started."""
import ctypes
import os
import signal
import subprocess
import time
from dataclasses import dataclass

GRACE_S = 5       # between the request to end and the kill
STUCK_S = 10      # after which a process that does not even end when killed is left alone
SUBREAPER = 36    # PR_SET_CHILD_SUBREAPER
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


@dataclass
class Ended:
    code: int | None  # None: the process could not be ended
    seconds: float
    timed_out: bool


def adopt_orphans():
    """What a command leaves behind becomes this process's child, so that it can be ended. Where the kernel cannot, nothing changes."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)


def _die_with_parent():
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)


def descendants():
    """The processes that this one and its children have started and that still are."""
    parents = {}
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/stat", encoding="ascii", errors="replace") as stat:
                parents[int(entry)] = int(stat.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue  # no process, or one that has ended meanwhile
    ours, found = {os.getpid()}, set()
    while ours:
        ours = {child for child, parent in parents.items() if parent in ours} - found
        found |= ours
    return found


def end_descendants():
    """Kills them, and takes leave of those that end."""
    until = time.monotonic() + STUCK_S
    while (left := descendants()) and time.monotonic() < until:
        for process in left:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        time.sleep(0.01)


def run(command, environment, limit_s, output, folder):
    """Runs `command` in `folder` for at most `limit_s` seconds; `output` is an open file. OSError where it cannot be started."""
    begin = time.monotonic()
    child = subprocess.Popen(command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=output,
                             stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=_die_with_parent)
    timed_out, code = False, None
    try:
        code = child.wait(timeout=limit_s)
    except subprocess.TimeoutExpired:
        timed_out = True
        os.killpg(child.pid, signal.SIGTERM)
        try:
            child.wait(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            try:
                child.wait(timeout=STUCK_S)
            except subprocess.TimeoutExpired:
                pass
    finally:
        end_descendants()
    return Ended(code if not timed_out else child.returncode, time.monotonic() - begin, timed_out)
