"""Programs that end without destroy_process_group()."""
import os
import subprocess
import sys

import pytest

from launch import free_port

BEGIN = """
import threading, time, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("weft")
rank = dist.get_rank()
dist.barrier()
"""

# Each ends right after an operation, so that the end of Python meets the operation's callback.
MESSAGE = """
if rank == 1:
    dist.send(torch.ones(5_000_000), 0)
else:
    dist.recv(torch.zeros(5_000_000), 1)
"""

REDUCTION = """
tensor = torch.ones(1_000_000)
dist.all_reduce(tensor, async_op=True).wait()
print("sum", tensor[0].item())
"""

FUTURE = """
begun = threading.Event()

def callback(_):
    begun.set()
    time.sleep(0.5)
    print("called back", flush=True)

if rank == 0:
    work = dist.irecv(torch.zeros(1), 1)
    work.get_future().add_done_callback(callback)
    begun.wait()
else:
    time.sleep(0.2)
    dist.send(torch.ones(1), 0)
"""

# A blocked callback delays the end by 2 s. The process leaves before Python's own end, which would wait for the callback.
BLOCKED = """
import atexit, os
begun = threading.Event()

def callback(_):
    begun.set()
    threading.Event().wait()

if rank == 0:
    work = dist.irecv(torch.zeros(1), 1)
    work.get_future().add_done_callback(callback)
    begun.wait()
    from weft_torch._extension import extension
    begin = time.monotonic()
    extension().end_python_access()
    print("waited", time.monotonic() - begin, flush=True)
    os._exit(0)
else:
    time.sleep(0.2)
    dist.send(torch.ones(1), 0)
"""

# Handlers of atexit run in the opposite order of their registration, so this one runs before weft_torch's.
HANDLER = """
import atexit

@atexit.register
def late():
    future = dist.all_reduce(torch.ones(1_000_000), async_op=True).get_future()
    print("late", future.wait()[0][0].item(), flush=True)
"""

# An exception between irecv and its wait leaves such an operation to the end of the group.
UNFINISHED = """
if rank == 0:
    work = dist.irecv(torch.zeros(1), 1)
    dist.destroy_process_group()
else:
    time.sleep(8)
    dist.send(torch.ones(1), 0)
"""

# The child has no threads of Weft. It inherits that its parent's thread is inside a callback.
FORK = """
import os
begun = threading.Event()

def callback(_):
    begun.set()
    time.sleep(1)

if rank == 0:
    work = dist.irecv(torch.zeros(1), 1)
    work.get_future().add_done_callback(callback)
    begun.wait()
    child = os.fork()
    if child == 0:
        from weft_torch._extension import extension
        begin = time.monotonic()
        extension().end_python_access()
        os._exit(0 if time.monotonic() - begin < 0.5 else 1)
    print("child", os.waitpid(child, 0)[1], flush=True)
else:
    time.sleep(0.2)
    dist.send(torch.ones(1), 0)
"""


def run(program, ranks=2):
    """Starts the program on ranks without a launcher, which would end ranks itself: (exit codes, outputs)."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(free_port())}
    started = [subprocess.Popen([sys.executable, "-c", BEGIN + program], env={**environment, "RANK": str(rank)},
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(ranks)]
    try:
        outputs = [each.communicate(timeout=60)[0] for each in started]
    finally:
        for each in started:
            each.kill()
    return [each.returncode for each in started], outputs


@pytest.mark.parametrize("program, tries", [(MESSAGE, 3), (REDUCTION, 3), (FUTURE, 1)], ids=["message", "reduction", "future"])
def test_the_end_of_python_does_not_abort_a_thread_of_weft(program, tries):
    """Python ended the thread that released a tensor or ran a callback, and the process with it: SIGABRT."""
    for _ in range(tries):
        codes, outputs = run(program)
        assert codes == [0, 0], "\n".join(outputs)
        assert program is not FUTURE or "called back" in outputs[0], outputs


def test_a_handler_of_atexit_may_use_the_group_and_its_futures():
    codes, outputs = run(HANDLER)
    assert codes == [0, 0] and all("late 2.0" in output for output in outputs), "\n".join(outputs)


def test_a_blocked_callback_delays_the_end_by_two_seconds():
    codes, outputs = run(BLOCKED)
    waited = [float(line.split()[1]) for line in outputs[0].splitlines() if line.startswith("waited")]
    assert codes[0] == 0 and waited and 1.9 < waited[0] < 20, "\n".join(outputs)


def test_a_forked_child_does_not_wait_for_a_callback_of_its_parent():
    codes, outputs = run(FORK)
    assert codes == [0, 0] and "child 0" in outputs[0], "\n".join(outputs)


def test_a_group_that_waits_for_its_end_says_for_what_and_names_the_way_out():
    codes, outputs = run(UNFINISHED)
    assert codes == [0, 0] and "waits for operations that have begun" in outputs[0], "\n".join(outputs)
    assert "waits for operations" not in outputs[1], outputs[1]
