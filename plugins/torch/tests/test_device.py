"""Tensors of an accelerator, on the stand-in device: collectives, streams, memory, errors, groups, training.

Nothing here says that a GPU does the same.
"""
import datetime
import os
import threading
import time

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _get_work_registry_size
from torch.distributed._functional_collectives import allow_inflight_collective_as_graph_input_ctx

import stand_in
import test_collectives
from ranks import Ranks
from test_failures import raises

DEVICE = stand_in.NAME
TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])


@pytest.fixture(scope="module")
def environment():
    return stand_in.environment()


_kept = {}


@pytest.fixture
def ranks(environment):
    """ranks(size, prepare): ranks that tests of this module share, new ones after a failure."""
    def get(size, prepare=stand_in.lazily):
        key = size, prepare.__name__
        if key not in _kept or _kept[key].failed:
            _kept[key] = Ranks(size, environment=environment, prepare=prepare)
        return _kept[key]
    return get


def teardown_module():
    for each in _kept.values():
        each.close()


def store():
    return dist.distributed_c10d._get_default_store()


def full(count, value):
    return torch.full((count,), float(value)).to(DEVICE)


# ---- Collectives

def rank_on_device(name, *arguments):
    """A function of test_collectives, with every tensor that names no device on this one."""
    torch.set_default_device(DEVICE)
    try:
        getattr(test_collectives, name)(*arguments)
    finally:
        torch.set_default_device(None)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("name", ["rank_all_reduce", "rank_reduce", "rank_reduce_scatter", "rank_broadcast_and_gathers",
                                  "rank_all_to_all", "rank_coalesced"])
def test_collective(ranks, name, asynchronous):
    ranks(2).call(rank_on_device, name, asynchronous, seconds=300)


@pytest.mark.parametrize("name", ["rank_scaled_sum", "rank_many_works", "rank_objects"])
def test_more(ranks, name):
    ranks(2).call(rank_on_device, name, seconds=300)


def rank_every_one_of_four():
    """Ranks of two devices, two on each."""
    rank, size = dist.get_rank(), dist.get_world_size()
    tensor = full(70000, rank + 1)
    dist.all_reduce(tensor)
    assert tensor.cpu().eq(10).all()
    whole = full(size * 3, 0)
    dist.all_gather_into_tensor(whole, full(3, rank))
    assert whole.cpu().equal(torch.arange(4.0).repeat_interleave(3))
    part = full(3, 0)
    dist.reduce_scatter_tensor(part, torch.arange(12.0).to(DEVICE))
    assert part.cpu().equal(torch.arange(12.0)[rank * 3:][:3] * 4)
    dist.barrier()


def test_four_ranks_on_two_devices(ranks):
    ranks(4, stand_in.eagerly).call(rank_every_one_of_four)


# ---- Streams

def rank_works_are_in_stream_order():
    """A collective follows what is in the current stream; wait() makes the stream wait, and not the host."""
    rank, device = dist.get_rank(), getattr(torch, DEVICE)
    dist.all_reduce(full(1000, 0))  # the first operation on new memory may keep its caller
    for asynchronous in (True, False):
        dist.barrier()
        tensor, ones = full(1000, rank), full(1000, 1)
        held = device.Held()
        tensor.copy_(ones)  # in the stream, behind the hold
        work = dist.all_reduce(tensor, async_op=asynchronous)
        if asynchronous:
            assert not work.is_completed()
            work.wait()
            assert not work.is_completed()
        event = torch.Event(DEVICE)
        event.record()
        assert not event.query(), "the current stream waits for the collective"
        held.release()
        assert tensor.cpu().eq(2).all()
        if asynchronous:
            assert work.is_completed() and work.is_success()
            assert TORCH < (2, 13) or work.exception() is None


def rank_collectives_and_computation_overlap():
    """While a collective waits for rank 1, the current stream of rank 0 goes on."""
    tensor, other = full(1000, 1), full(1000, 5)
    dist.all_reduce(tensor)
    dist.barrier()
    if dist.get_rank() == 1:
        store().wait(["go"])
    work = dist.all_reduce(tensor, async_op=True)
    if dist.get_rank() == 0:
        assert (other + 1).cpu().eq(6).all()
        assert not work.is_completed()
        store().set("go", "")
    work.wait()
    assert tensor.cpu().eq(4).all()


def rank_a_missing_wait_shows():
    """Without wait() the current stream reads what was there before, and with it the result."""
    tensor = full(1000, 1)
    dist.all_reduce(tensor)
    dist.barrier()
    if dist.get_rank() == 1:
        store().wait(["read"])
    work = dist.all_reduce(tensor, async_op=True)
    if dist.get_rank() == 0:
        early = tensor.cpu()
        store().set("read", "")
        assert early.eq(2).all()
    work.wait()
    assert tensor.cpu().eq(4).all()


def rank_works_keep_their_tensors():
    """Memory that a collective uses serves no other tensor until wait() or its end, also of a Work that was dropped."""
    rank, size = dist.get_rank(), dist.get_world_size()
    gathered = full(size * 4096, 0)
    dist.all_gather_into_tensor(gathered, full(4096, rank))
    dist.barrier()
    if rank == 1:
        store().wait(["allocated"])
    source = full(4096, rank + 7)
    address = source.data_ptr()
    work = dist.all_gather_into_tensor(gathered, source, async_op=True)
    del source
    if rank == 0:
        others = [full(4096, -1) for _ in range(20)]
        assert address not in [each.data_ptr() for each in others]
        store().set("allocated", "")
    work.wait()
    assert gathered.cpu().equal(torch.arange(7.0, 7 + size).repeat_interleave(4096))
    # Strided tensors are copied; the copies live as long.
    strided = torch.arange(8192.0).to(DEVICE)[::2]
    dist.all_reduce(strided, async_op=True)
    del work
    noise = [full(4096, -1) for _ in range(20)]
    dist.barrier()
    assert strided.cpu().equal(torch.arange(8192.0)[::2] * size), noise[0][0]
    before = getattr(torch, DEVICE).reused_blocks()
    dist.all_reduce(full(1, 1))
    full(4096, 0), full(4096, 0)
    assert getattr(torch, DEVICE).reused_blocks() > before, "what is over is given back"


def rank_futures_have_streams():
    """A Future is complete at once; callbacks run in streams that wait for the result."""
    rank, device = dist.get_rank(), getattr(torch, DEVICE)
    tensor = full(1000, rank + 1)
    dist.all_reduce(full(1000, 0))
    dist.barrier()
    held = device.Held()
    future = dist.all_reduce(tensor, async_op=True).get_future()
    assert future.done()
    seen = []

    def callback(done):
        seen.append(torch.accelerator.current_stream().stream_id)
        return done.value()[0]
    chained = future.then(callback)
    assert seen and seen[0] != torch.accelerator.current_stream().stream_id
    held.release()
    assert chained.wait().cpu().eq(3).all()


def rank_works_that_were_waited_for_leave_torch():
    """torch keeps a Work for programs of torch.compile until somebody waits for it, by its stream or by Python."""
    with allow_inflight_collective_as_graph_input_ctx():
        for wait in ("wait", "synchronize"):
            work = dist.all_reduce(full(10, 1), async_op=True)
            assert _get_work_registry_size() == 1
            getattr(work, wait)()
            assert _get_work_registry_size() == 0


def rank_a_future_before_the_end_of_coalesced_calls():
    group, tensor = dist.group.WORLD, full(10, 1)
    group._start_coalescing(torch.device(DEVICE))
    work = group.allreduce([tensor])
    raises(dist.DistBackendError, ["weft:all_reduce", "coalesced calls"], work.get_future)
    group._end_coalescing(torch.device(DEVICE)).wait()
    assert work.get_future().wait()[0].cpu().eq(2).all()


def rank_waits_with_a_timeout():
    rank = dist.get_rank()
    tensor = full(10, 1)
    dist.all_reduce(tensor)
    dist.barrier()
    if rank == 1:
        store().wait(["late"])
    work = dist.all_reduce(tensor, async_op=True)
    if rank == 0:
        raises(dist.DistBackendError, ["weft:all_reduce", "not complete after 100 ms"], work.wait,
               datetime.timedelta(milliseconds=100))
        store().set("late", "")
    work.wait(datetime.timedelta(seconds=30))
    assert work.is_completed() and tensor.cpu().eq(4).all()


def rank_barrier_blocks_the_host():
    """After a barrier the device is done with what this rank has given it before."""
    device = getattr(torch, DEVICE)
    tensor = full(1000, 1)
    dist.all_reduce(tensor)
    held = device.Held()
    work = dist.all_reduce(tensor, async_op=True)
    threading.Timer(0.3, held.release).start()
    dist.barrier()
    assert work.is_completed() and torch.accelerator.current_stream().query()


@pytest.mark.parametrize("function", [
    rank_works_are_in_stream_order, rank_collectives_and_computation_overlap, rank_a_missing_wait_shows,
    rank_works_keep_their_tensors, rank_futures_have_streams, rank_works_that_were_waited_for_leave_torch,
    rank_a_future_before_the_end_of_coalesced_calls, rank_waits_with_a_timeout, rank_barrier_blocks_the_host],
    ids=lambda each: each.__name__[5:])
def test_streams(ranks, function):
    ranks(2).call(function)


# ---- Messages

def rank_pairs():
    """Without device_id two ranks exchange messages while the third does nothing; batches are of all."""
    rank, size = dist.get_rank(), dist.get_world_size()
    if rank < 2:
        mine, theirs = full(5000, rank), full(5000, -1)
        works = [dist.isend(mine, 1 - rank), dist.irecv(theirs, 1 - rank)]
        for work in works:
            work.wait()
        assert theirs.cpu().eq(1 - rank).all()
    dist.barrier()
    right, left = (rank + 1) % size, (rank - 1) % size
    mine, theirs = full(5000, rank), full(5000, -1)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, right), dist.P2POp(dist.irecv, theirs, left)]):
        work.wait()
    assert theirs.cpu().eq(left).all()
    if rank == 0:
        dist.send(mine, 1)
    elif rank == 1:
        dist.recv(theirs, 0)
        assert theirs.cpu().eq(0).all()


@pytest.mark.parametrize("prepare", [stand_in.lazily, stand_in.eagerly], ids=lambda each: each.__name__)
def test_messages(ranks, prepare):
    ranks(3, prepare).call(rank_pairs)


# ---- Groups

def rank_groups_borrow():
    """With device_id, groups open nothing, also on the device: (open files before, after)."""
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.all_reduce(full(100, 1))
    before, groups = len(os.listdir("/proc/self/fd")), []
    for number in range(6):
        members = [list(range(size)), [0, size - 1], [2, 1]][number % 3]
        group = dist.new_group(members, backend="weft")
        if rank in members:
            groups.append(group)
            tensor = full(1, rank)
            dist.all_reduce(tensor, group=group)
            assert tensor.cpu().item() == sum(members)
    after = len(os.listdir("/proc/self/fd"))
    if TORCH >= (2, 13):  # torch 2.11 splits groups of CUDA alone
        half = dist.split_group(split_ranks=[[0, 1], [2, 3]])
        tensor = full(3, 1)
        dist.all_reduce(tensor, group=half)
        assert tensor.cpu().eq(2).all() and half.size() == 2
        groups.append(half)
    for group in groups:
        dist.destroy_process_group(group)
    return before, after


def test_groups_on_the_device_open_no_connection(ranks):
    for before, after in ranks(4, stand_in.eagerly).call(rank_groups_borrow):
        assert after <= before + 2  # files of new blocks of the device


def rank_late_groups():
    """Without device_id each group meets when it is first used on the device."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for members in ([0, 1], list(range(size))):
        group = dist.new_group(members, backend="weft")
        if rank in members:
            tensor = full(3, rank + 1)
            dist.all_reduce(tensor, group=group)
            assert tensor.cpu().eq(sum(members) + len(members)).all()


def test_groups_that_meet_late(ranks):
    ranks(3).call(rank_late_groups)


def rank_splits_of_the_same_ranks():
    """Two splits of the same ranks, which each rank uses first in another order; their data stays apart."""
    rank, device = dist.get_rank(), torch.device(DEVICE)
    # The ranks may name a split differently: torch.distributed.split_group() counts the groups that a rank is in.
    halves = [dist.group.WORLD.split_group([0, 1], group_name=name) for name in ("both", "both", f"of rank {rank}")]
    backends = [half._get_backend(device) for half in halves]
    tensors = [full(100, 10**number) for number in range(3)]
    works = [backends[number].allreduce([tensors[number]]) for number in ([0, 1, 2] if rank == 0 else [2, 1, 0])]
    for work in works:
        work.wait()
    assert [each[0].item() for each in tensors] == [2, 20, 200]
    for half in halves:
        half.shutdown()


def test_splits_of_the_same_ranks_are_used_in_any_order(ranks):
    ranks(2, stand_in.eagerly).call(rank_splits_of_the_same_ranks)


def rank_splits_that_meet_late():
    """Without device_id splits of the same ranks meet through the store, under names of their own."""
    rank, device = dist.get_rank(), torch.device(DEVICE)
    halves = [dist.group.WORLD.split_group([0, 1], group_name=f"of rank {rank}") for _ in range(2)]
    backends, threads = [half._get_backend(device) for half in halves], []
    tensors = [full(100, 10**number) for number in range(2)]
    for number in ([0, 1] if rank == 0 else [1, 0]):
        threads.append(threading.Thread(target=lambda n=number: backends[n].allreduce([tensors[n]]).wait()))
        threads[-1].start()
        time.sleep(0.1)
    for thread in threads:
        thread.join()
    assert [each[0].item() for each in tensors] == [2, 20]
    for half in halves:
        half.shutdown()


def test_splits_of_the_same_ranks_that_meet_late(ranks):
    ranks(2).call(rank_splits_that_meet_late)


def rank_aborts_while_its_communicator_is_made():
    """Rank 1 never comes. An abort ends rank 0's wait for it; set_timeout() does not wait with it."""
    if dist.get_rank() == 1:
        store().wait(["aborted"])
        return
    backend, tensor, seen = dist.group.WORLD._get_backend(torch.device(DEVICE)), full(10, 1), []

    def reduce():
        try:
            dist.all_reduce(tensor)
        except RuntimeError as error:
            seen.append(error)
    backend.set_timeout(datetime.timedelta(seconds=300))
    thread = threading.Thread(target=reduce)
    thread.start()
    time.sleep(1)  # now it waits for rank 1 in the store
    backend.set_timeout(datetime.timedelta(seconds=60))
    dist.group.WORLD.abort()
    thread.join(100)
    assert len(seen) == 1 and "aborted" in str(seen[0]), f"the abort did not end the rendezvous: {seen}"
    store().set("aborted", "")


def rank_shrinks_a_group_with_work_in_flight():
    """With flag 1, what is in flight on a device that device_id did not name ends, too."""
    tensor = full(1000, 1)
    dist.all_reduce(tensor)
    dist.barrier()
    if dist.get_rank() == 1:
        store().wait(["shrunk"])
        return
    work = dist.all_reduce(tensor, async_op=True)
    dist.group.WORLD._get_backend(torch.device(DEVICE)).shrink([1], 1)
    raises(dist.DistBackendError, ["abort"], work.wait)
    torch.accelerator.current_stream().synchronize()
    raises(dist.DistBackendError, ["abort"], dist.all_reduce, tensor)
    store().set("shrunk", "")


def rank_shrinks_on_the_device():
    if dist.get_rank() == 1:
        return
    dist.shrink_group([1])  # torch lets it go on with the device of device_id alone
    tensor = full(1000, dist.get_rank() + 1)
    dist.all_reduce(tensor)
    assert tensor.cpu().eq(3).all()


def test_a_group_can_shrink(environment):
    made = Ranks(3, environment=environment, prepare=stand_in.eagerly)
    try:
        made.call(rank_shrinks_on_the_device)
    finally:
        made.close()


# ---- Errors

def rank_wrong_devices():
    size = dist.get_world_size()
    dist.all_reduce(full(3, 1))
    used = full(3, 1).device.index
    elsewhere = torch.zeros(3).to(f"{DEVICE}:{1 - used}")
    raises(ValueError, [f"{DEVICE}:{1 - used}", f"{DEVICE}:{used}", "one device"], dist.all_reduce, elsewhere)
    raises(ValueError, ["cpu", f"{DEVICE}:{used}", "must be on one device"], dist.all_gather_into_tensor,
           torch.zeros(size * 3), full(3, 1))
    raises(ValueError, ["must be on one device"], dist.all_gather, [torch.zeros(3) for _ in range(size)], full(3, 1))
    backend = dist.group.WORLD._get_backend(torch.device(DEVICE))
    raises(ValueError, ["is on meta", f"cpu and {DEVICE}"], backend.allreduce, [torch.empty(3, device="meta")],
           dist.AllreduceOptions())
    raises(ValueError, ["device_id is cuda:0", f"cpu and {DEVICE}"], backend.eager_connect_single_device,
           torch.device("cuda:0"))
    group = dist.group.WORLD
    group._start_coalescing(torch.device(DEVICE))
    dist.all_reduce(torch.ones(1))
    dist.all_reduce(full(1, 1))
    raises(ValueError, ["cpu and", "apart"], group._end_coalescing, torch.device(DEVICE))
    dist.barrier()  # none of it has harmed the group


def test_wrong_devices(ranks):
    ranks(2).call(rank_wrong_devices)


def rank_until_failure(flag):
    """Reduces until it fails: (exception, sentence)."""
    tensor = full(1000, 1)
    for step in range(10**9):
        try:
            dist.all_reduce(tensor, async_op=True).wait()
            tensor.cpu()
        except RuntimeError as error:
            return type(error).__name__, str(error)
        if step == 5 and dist.get_rank() == 2:
            open(flag, "w").close()
            time.sleep(1000)


def test_a_killed_rank_is_named(environment, tmp_path):
    made, flag = Ranks(3, environment=environment, prepare=stand_in.lazily), tmp_path / "begun"
    try:
        made.start(rank_until_failure, str(flag))
        made.kill_at(2, flag)
        for kind, result in made.outcomes([0, 1], seconds=60):
            assert kind == "result" and result[0] == "DistBackendError" and "rank 2" in result[1], result
    finally:
        made.close()


def rank_late_for_the_deadline():
    """Rank 1 stays away. Rank 0's stream goes on at the deadline, and the next call or wait() says why."""
    tensor = full(10, 1)
    dist.all_reduce(tensor)
    dist.barrier()
    if dist.get_rank() == 1:
        store().wait(["failed"])
        return
    backend = dist.group.WORLD._get_backend(torch.device(DEVICE))
    backend.set_timeout(datetime.timedelta(milliseconds=300))
    work = dist.all_reduce(tensor, async_op=True)
    while not work.is_completed():
        time.sleep(0.01)
    raises(dist.DistBackendError, ["not finished after 0.3 s", "rank 1"], work.wait)
    assert not work.is_success()
    if TORCH >= (2, 13):  # torch 2.11's binding of exception() cannot return one
        assert "rank 1" in str(work.exception())
    raises(dist.DistBackendError, ["rank 1"], dist.all_reduce, tensor)
    store().set("failed", "")


def rank_aborts():
    tensor = full(10, 1)
    dist.all_reduce(tensor)
    if dist.get_rank() == 1:
        store().set("has nothing under way", "")
        store().wait(["aborted"])
        return
    store().wait(["has nothing under way"])
    work = dist.all_reduce(tensor, async_op=True)
    dist.group.WORLD.abort()
    store().set("aborted", "")
    raises(dist.DistBackendError, ["abort"], work.wait)
    torch.accelerator.current_stream().synchronize()
    raises(dist.DistBackendError, ["init_process_group"], dist.all_reduce, tensor)


@pytest.mark.parametrize("function", [rank_late_for_the_deadline, rank_aborts, rank_aborts_while_its_communicator_is_made,
                                      rank_shrinks_a_group_with_work_in_flight], ids=lambda each: each.__name__[5:])
def test_failures(environment, function):
    made = Ranks(2, environment=environment, prepare=stand_in.lazily)
    try:
        made.call(function)
    finally:
        made.close()


# ---- Training

def _trained(device, shard):
    """Losses of three steps: of each rank's own rows."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).to(device)
    if shard:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh(device, (dist.get_world_size(),))
        for layer in (model[0], model[2]):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    else:
        model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.0005)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    rows = (torch.arange(32.0).view(4, 8) / 16 + dist.get_rank()).to(device)
    losses = []
    for _ in range(3):
        loss = model(rows).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def rank_trains(shard):
    ours, host = _trained(DEVICE, shard), _trained("cpu", shard)
    assert ours == host and ours[0] > ours[2], (ours, host)


@pytest.mark.parametrize("prepare", [stand_in.lazily, stand_in.eagerly], ids=lambda each: each.__name__)
@pytest.mark.parametrize("shard", [False, True], ids=["DDP", "FSDP2"])
def test_training_has_the_losses_of_the_host(ranks, shard, prepare):
    ranks(2, prepare).call(rank_trains, shard, seconds=300)
