"""Deaths, disagreement, wrong arguments: an exception that says what is wrong, never a hang."""
import concurrent.futures
import datetime
import multiprocessing
import os
import re
import resource
import signal
import sys
import threading
import time

import pytest
import torch
import torch.distributed as dist

from ranks import Ranks, shared
from weft_torch._extension import extension


DEADLINE = 30  # seconds: half of a group's timeout, so an exception before it comes from noticing, not from waiting


def raises(kind, words, function, *arguments, **named):
    """Checks that the call raises, and that its sentence has the words."""
    try:
        function(*arguments, **named)
    except kind as error:
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"{missing} not in: {error}"
        return
    raise AssertionError(f"no {kind}")


def rank_wrong_arguments():
    size = dist.get_world_size()
    meta = torch.empty(3, device="meta")
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    from torch._C._distributed_c10d import AllgatherOptions
    options = dist.AllreduceOptions()
    raises(ValueError, ["is on meta", "cpu"], backend.allreduce, [meta], options)
    raises(ValueError, ["layout", "to_dense"], backend.allreduce, [torch.eye(3).to_sparse()], options)
    raises(ValueError, ["clone()"], dist.all_reduce, torch.zeros(1).expand(4))
    raises(ValueError, ["BAND", "integers"], dist.all_reduce, torch.zeros(2), dist.ReduceOp.BAND)
    raises(ValueError, ["AVG", "Bool"], dist.all_reduce, torch.zeros(2, dtype=torch.bool), dist.ReduceOp.AVG)
    raises(ValueError, ["PRODUCT", "complex"], backend.reduce, [torch.zeros(2, dtype=torch.complex64)], _product())
    raises(ValueError, ["all_gather_into_tensor", "times"], dist.all_gather_into_tensor, torch.zeros(3), torch.zeros(3))
    raises(ValueError, ["reduce_scatter_tensor", "times"], dist.reduce_scatter_tensor, torch.zeros(3), torch.zeros(3))
    raises(ValueError, ["must be equal"], dist.all_gather, [torch.zeros(2) for _ in range(size)], torch.zeros(3))
    whole = torch.zeros(3 * size)
    raises(ValueError, ["output list of all_gather", "share memory"], dist.all_gather, [torch.zeros(2)] * size, torch.zeros(2))
    raises(ValueError, ["output list of all_to_all", "share memory"], dist.all_to_all,
           [whole[each:each + 2] for each in range(size)], [torch.zeros(2) for _ in range(size)])
    rows, columns = torch.zeros(size, 2), torch.zeros(2, size).t()
    raises(ValueError, ["must be contiguous", "input", "contiguous()"], dist.all_to_all_single, rows, columns)
    raises(ValueError, ["must be contiguous", "output"], dist.all_to_all_single, columns, rows)
    raises(ValueError, ["one for each"], backend.allgather, [[torch.zeros(2)]], [torch.zeros(2)], AllgatherOptions())
    splits = [4] + [1] * (size - 1)
    raises(ValueError, ["split sizes of the input of", f"[{splits[0]}, 1", f"{size} numbers", "4 rows"], dist.all_to_all_single,
           torch.zeros(4), torch.zeros(4), splits, splits)
    own = [2 if each == dist.get_rank() else 1 for each in range(size)]
    raises(ValueError, [f"gives this rank, {dist.get_rank()}, 6 elements", "3 elements for them"], dist.all_to_all_single,
           torch.zeros(size, 3), torch.zeros(size + 1, 3), [1] * size, own)
    raises(NotImplementedError, ["order of the calls", "give src"], dist.recv, torch.zeros(1))
    raises(ValueError, ["with this rank itself waits for its receive", "batch_isend_irecv()"], dist.isend, torch.zeros(1), dist.get_rank())
    raises(ValueError, ["with this rank itself waits for its send"], dist.irecv, torch.zeros(1), dist.get_rank())
    raises(ValueError, ["longer than 0"], backend.set_timeout, datetime.timedelta(0))
    dist.barrier()  # none of it has harmed the group


def rank_batch_raises():
    """Calls after a batch that raised were only recorded: an all_gather left its outputs as they were."""
    rank, size = dist.get_rank(), dist.get_world_size()
    to, source = (rank + 1) % size, (rank - 1) % size
    for wrong, kind in ((torch.zeros(1).expand(3), ValueError), (torch.eye(3).to_sparse(), NotImplementedError)):
        batch = [dist.P2POp(dist.isend, torch.ones(3), to), dist.P2POp(dist.irecv, wrong, source)]
        raises(kind, [], dist.batch_isend_irecv, batch)
        check_the_group_works()
    for device in (None, torch.device("cpu")):
        works = []
        try:
            with dist._coalescing_manager(device=device, async_ops=True):
                works.append(dist.broadcast(torch.ones(2), 0, async_op=True) if device else dist.all_reduce(torch.ones(2)))
                raise InterruptedError
        except InterruptedError:
            pass
        if device:
            raises(dist.DistBackendError, ["weft:broadcast was not sent", "coalesced"], works[0].wait)
        check_the_group_works()


def check_the_group_works():
    rank, size = dist.get_rank(), dist.get_world_size()
    gathered = [torch.full((3,), -1.0) for _ in range(size)]
    dist.all_gather(gathered, torch.full((3,), float(rank)))
    assert [each.tolist() for each in gathered] == [[float(each)] * 3 for each in range(size)]
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    assert tensor.eq(size).all(), tensor
    received = torch.zeros(3)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.full((3,), float(rank)), (rank + 1) % size),
                                        dist.P2POp(dist.irecv, received, (rank - 1) % size)]):
        work.wait()
    assert received.eq((rank - 1) % size).all(), received


def rank_threads_coalesce():
    """Two threads of rank 0 exchange coalesced messages, each with a rank of its own, in one group."""
    group, device = dist.group.WORLD, torch.device("cpu")
    both = threading.Barrier(2 if dist.get_rank() == 0 else 1)

    def talk(peer):
        received = torch.zeros(50)
        both.wait(DEADLINE)
        group._start_coalescing(device)
        both.wait(DEADLINE)
        group.send([torch.full((50,), float(dist.get_rank()))], peer, 0)
        group.recv([received], peer, 0)
        both.wait(DEADLINE)
        group._end_coalescing(device).wait()
        assert received.eq(peer).all(), received

    if dist.get_rank() > 0:
        return talk(0)
    with concurrent.futures.ThreadPoolExecutor() as threads:
        for each in [threads.submit(talk, peer) for peer in (1, 2)]:
            each.result()


def _product():
    options = dist.ReduceOptions()
    options.reduceOp = dist.ReduceOp.PRODUCT
    options.rootRank = 0
    return options


def rank_monitored_barrier():
    """Rank 1 stays away from the second one."""
    dist.group.WORLD.monitored_barrier(datetime.timedelta(seconds=20))
    if dist.get_rank() != 1:
        raises(dist.DistBackendError, ["Rank 1 failed to pass", "within 3000 ms"], dist.group.WORLD.monitored_barrier,
               datetime.timedelta(seconds=3), True)  # the others come within it
    dist.barrier()


def rank_subgroups():
    """new_group() and ProcessGroup.split_group(), of some ranks and of one."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for ranks in ([0, size - 1], [1], list(range(size))):
        group = dist.new_group(ranks, backend="weft")
        if rank in ranks:
            tensor = torch.ones(2)
            dist.all_reduce(tensor, group=group)
            assert tensor.eq(len(ranks)).all()
            dist.destroy_process_group(group)
    halves = [list(range(size // 2)), list(range(size // 2, size))]
    mine = halves[rank >= size // 2]
    half = dist.group.WORLD.split_group(mine, group_name=f"half {mine}", group_desc="a half")
    tensor = torch.ones(2)
    half.allreduce([tensor]).wait()
    assert tensor.eq(len(mine)).all() and half.size() == len(mine)
    half.shutdown()


@pytest.mark.parametrize("function", [rank_wrong_arguments, rank_batch_raises, rank_monitored_barrier, rank_subgroups],
                         ids=lambda each: each.__name__[5:])
@pytest.mark.parametrize("size", [2, 4])
def test_arguments_and_groups(function, size):
    shared(size).call(function)


def test_threads_coalesce_apart():
    ranks = Ranks(3)
    try:
        ranks.call(rank_threads_coalesce)
    finally:
        ranks.close()


def test_a_batch_that_raises_leaves_a_group_that_torch_wraps():
    ranks = Ranks(2, environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})
    try:
        ranks.call(rank_batch_raises)
    finally:
        ranks.close()


def store():
    return dist.distributed_c10d._get_default_store()


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def rank_until_failure(asynchronous, last):
    """Reduces until it fails, and rank 2 until it has done so `last` times: (type, calls that succeeded, sentence)."""
    for step in range(10**9):
        if dist.get_rank() == 2 and step == last:
            die()
        try:
            work = dist.all_reduce(torch.ones(1000), async_op=asynchronous)
            if asynchronous:
                work.get_future().wait() if dist.get_rank() == 0 else work.wait()
        except (dist.DistBackendError, RuntimeError) as error:
            return type(error).__name__, step, str(error)


def check_loss(outcome, victim, steps):
    """The rank failed in one of these steps, by the loss of the victim and not by a deadline."""
    kind, result = outcome
    assert kind == "result", result
    name, step, sentence = result
    assert name in ("DistBackendError", "RuntimeError") and step in steps, result
    assert f"rank {victim}" in sentence and "timeout" not in sentence and "not finished" not in sentence, result


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_killed_rank_is_named_by_all_in_the_call_that_it_misses(asynchronous):
    ranks = Ranks(3)
    try:
        ranks.start(rank_until_failure, asynchronous, 50)
        for outcome in ranks.outcomes([0, 1], seconds=50):
            # A killed process may lose what its last call had still to send.
            check_loss(outcome, 2, (49, 50))
            assert outcome[1][0] == "DistBackendError", outcome
    finally:
        ranks.close()


def rank_backward_until_failure(last):
    """DDP's steps until one fails; rank 1 dies in a backward pass, when half of its gradients are ready."""
    from torch.nn.parallel import DistributedDataParallel
    layers = [torch.nn.Linear(64, 64) for _ in range(6)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.01)
    for step in range(10**9):
        if step == last and dist.get_rank() == 1:
            layers[3].weight.register_hook(lambda gradient: die())
        try:
            model(torch.ones(8, 64)).sum().backward()
        except RuntimeError as error:
            return type(error).__name__, step, str(error)


def test_a_rank_killed_in_the_backward_pass_is_named_in_that_pass():
    ranks = Ranks(3)
    try:
        ranks.start(rank_backward_until_failure, 5)
        for outcome in ranks.outcomes([0, 2], seconds=50):
            check_loss(outcome, 1, (5,))
    finally:
        ranks.close()


def rank_mismatch(kind):
    """Rank 1 differs from the others: the exception's sentence."""
    odd = dist.get_rank() == 1
    calls = {
        "shape": lambda: dist.all_reduce(torch.ones(5 if odd else 4)),
        "type": lambda: dist.all_reduce(torch.ones(4, dtype=torch.float32 if odd else torch.int32)),
        "call": lambda: dist.all_reduce(torch.ones(4)) if odd else dist.broadcast(torch.ones(4), 0),
        "splits": lambda: dist.all_to_all_single(torch.ones(3), torch.ones(4 if odd else 3), [1, 1, 1],
                                                 [2, 1, 1] if odd else [1, 1, 1]),
        "skip": lambda: [dist.all_reduce(torch.ones(count)) for count in ((6,) if odd else (4, 6))],
    }
    try:
        calls[kind]()
        dist.barrier()  # the root of a broadcast need not wait for the others, and hears of it later
    except dist.DistBackendError as error:
        return str(error)
    return None


@pytest.mark.parametrize("kind", ["shape", "type", "call", "splits", "skip"])
def test_a_mismatch_names_the_rank_that_differs(kind):
    ranks = Ranks(3)
    try:
        results = ranks.call(rank_mismatch, kind)
        for rank, result in enumerate(results):
            assert result is not None and "not finished" not in result, results  # not by the deadline
            assert rank == 1 or "rank 1" in result, results
        if kind == "splits":
            assert any("rank 1 called AlltoAllV of float (2 to rank 0, 1 from rank 0)" in each for each in results), results
    finally:
        ranks.close()


def rank_skips_a_call():
    if dist.get_rank() == 1:
        store().wait(["over"])
        return
    dist.group.WORLD._get_backend(torch.device("cpu")).set_timeout(datetime.timedelta(seconds=1))
    raises(dist.DistBackendError, ["not finished after 1 s", "rank 1"], dist.all_reduce, torch.ones(2))
    store().set("over", "")


def test_a_rank_that_skips_a_call_is_named_at_the_deadline():
    ranks = Ranks(2)
    try:
        ranks.call(rank_skips_a_call, seconds=50)
    finally:
        ranks.close()


def rank_wait_with_timeout():
    if dist.get_rank() == 1:
        store().wait(["waited"])
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        return
    tensor = torch.ones(3)
    work = dist.all_reduce(tensor, async_op=True)
    raises(dist.DistBackendError, ["not complete after 200 ms"], work.wait, datetime.timedelta(milliseconds=200))
    store().set("waited", "")
    work.wait()
    assert tensor.eq(2).all()


def rank_timeout(kind, asynchronous):
    """Rank 1 is late for the time that was set after the group was made; a longer one than the group's holds, too."""
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    options, long = dist.AllreduceOptions(), datetime.timedelta(hours=9)
    options.asyncOp = asynchronous
    backend.set_timeout(long)
    assert backend.options._timeout == long
    dist.all_reduce(torch.ones(1))
    if dist.get_rank() == 1:
        store().wait(["over"])
        return
    if kind == "group":
        backend.set_timeout(datetime.timedelta(milliseconds=300))
    else:
        options.timeout = datetime.timedelta(milliseconds=300)
    raises(dist.DistBackendError, ["not finished after 0.3 s", "rank 1"],
           lambda: backend.allreduce([torch.ones(3)], options).wait())
    store().set("over", "")


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("kind", ["group", "call"])
def test_a_late_rank_is_named_at_the_timeout(kind, asynchronous):
    ranks = Ranks(2)
    try:
        ranks.call(rank_timeout, kind, asynchronous)
    finally:
        ranks.close()


def rank_odd_timeouts():
    work = dist.irecv(torch.zeros(1), 1) if dist.get_rank() == 0 else None
    if work is None:
        store().wait(["waits"])
        dist.send(torch.ones(1), 0)
    else:
        threading.Timer(0.2, store().set, ["waits", ""]).start()
        work.wait(datetime.timedelta(days=400_000))
    for timeout in (datetime.timedelta(0), datetime.timedelta(seconds=-1), datetime.timedelta.max):
        raises(ValueError, ["timeout of a group is", "longer than 0"], dist.new_group, timeout=timeout)
    dist.all_reduce(torch.ones(1))


def test_a_timeout_may_be_longer_than_a_clock_but_not_negative():
    """torch hands timedelta.max on as a negative number. Milliseconds of 400,000 days are too many nanoseconds."""
    ranks = Ranks(2, timeout=datetime.timedelta(days=400_000).total_seconds())
    try:
        ranks.call(rank_odd_timeouts)
    finally:
        ranks.close()


def rank_has_no_thread():
    """The limit leaves no room for a thread's stack. The thread of callbacks begins with the first of them."""
    if dist.get_rank() == 1:
        store().wait(["refused"])
        dist.send(torch.ones(3), 0)
        return
    tensor = torch.zeros(3)
    work = dist.irecv(tensor, 1)
    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (taken + (2 << 20), before[1]))
    try:
        raises(dist.DistBackendError, ["thread"], work.get_future)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    store().set("refused", "")
    assert work.get_future().wait()[0].eq(1).all()


def test_a_future_without_a_thread_for_its_callback_is_refused():
    """It was never complete."""
    ranks = Ranks(2)
    try:
        ranks.call(rank_has_no_thread)
    finally:
        ranks.close()


def interrupted_while(store, key):
    """The notes of the exception that SIGINT raises in the constructor of rank 0 of 2, once `key` is in the store."""
    def interrupt():
        while not store.check([key]):
            time.sleep(0.01)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that runs this in the background ignores the signal
    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt) as raised:
        extension().WeftBackend(store, 0, 2, datetime.timedelta(seconds=2 * DEADLINE), "alone")
    assert time.monotonic() - begin < DEADLINE
    thread.join()
    return getattr(raised.value, "__notes__", ["before Python 3.11 exceptions have no notes"])


def test_ctrl_c_ends_the_wait_for_ranks():
    notes = interrupted_while(dist.HashStore(), "weft/arrived")
    assert "rank 0 of 2 waited for the others in the process group alone" in notes[0] or sys.version_info < (3, 11)


def test_ctrl_c_ends_the_wait_for_connections():
    store = dist.HashStore()
    store.add("weft/arrived", 1)  # of a rank that never connects
    notes = interrupted_while(store, "weft/read")
    assert "the ranks of the process group alone connected" in notes[0] or sys.version_info < (3, 11)


def serve_store(connection):
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    connection.send(server.port)
    connection.recv()


@pytest.mark.parametrize("how, words", [(signal.SIGSTOP, "did not answer within 1.5 s"), (signal.SIGKILL, "failed")],
                         ids=["hangs", "is-gone"])
def test_a_store_that_does_not_answer_is_named(how, words):
    """torch's own call of a server that hangs waits without end."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=serve_store, args=(theirs,), daemon=True)
    server.start()
    try:
        store = dist.TCPStore("127.0.0.1", ours.recv(), is_master=False)
        os.kill(server.pid, how)
        with pytest.raises(dist.DistBackendError, match=f"store of the process group alone {words}; see whether its server"):
            extension().WeftBackend(store, 0, 2, datetime.timedelta(seconds=1.5), "alone")
    finally:
        server.kill()


def rank_shrinks():
    """Ranks 0 and 2 go on without rank 1."""
    rank = dist.get_rank()
    if rank == 1:
        return
    group = dist.shrink_group([1])
    tensor = torch.full((3,), float(rank + 1))
    dist.all_reduce(tensor)
    assert tensor.eq(4).all() and dist.get_world_size() == 2, tensor
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    assert tensor.eq(8).all()


def test_a_group_can_shrink():
    ranks = Ranks(3)
    try:
        ranks.call(rank_shrinks)
    finally:
        ranks.close()


def rank_abort():
    """Rank 0 aborts while both wait; both get an exception, and the group is refused afterwards."""
    work = dist.all_reduce(torch.ones(2), async_op=True) if dist.get_rank() == 0 else dist.irecv(torch.ones(1), 0)
    group = dist.group.WORLD
    if dist.get_rank() == 0:
        time.sleep(0.3)
        group.abort()
    raises(dist.DistBackendError, ["abort"], work.wait)
    if dist.get_rank() == 0:
        raises(dist.DistBackendError, ["init_process_group"], dist.all_reduce, torch.ones(1))


@pytest.mark.parametrize("function", [rank_wait_with_timeout, rank_abort], ids=lambda each: each.__name__[5:])
def test_timeouts_and_abort(function):
    ranks = Ranks(2)
    try:
        ranks.call(function)
    finally:
        ranks.close()


LEAVES = """
import torch, torch.distributed as dist
dist.init_process_group("weft")
dist.barrier()
work = dist.irecv(torch.empty(1), 1 - dist.get_rank())
print("end", flush=True)
"""


def test_a_program_may_end_with_an_operation_in_flight(tmp_path):
    from launch import torchrun
    (tmp_path / "leaves.py").write_text(LEAVES)
    run = torchrun(tmp_path / "leaves.py")
    assert run.returncode == 0 and run.stdout.count("end") == 2, run.stdout + run.stderr


def test_a_setting_that_does_not_exist_is_told_with_its_rank(tmp_path):
    from launch import torchrun
    program = tmp_path / "starts.py"
    program.write_text("import torch.distributed as dist\ndist.init_process_group('weft')\n")
    run = torchrun(program, environment={"WEFT_ALG": "ring"})
    assert re.search(r"DistBackendError: rank [01]: .*WEFT_ALG is no setting of Weft; the nearest is WEFT_ALGO", run.stderr), run.stderr
