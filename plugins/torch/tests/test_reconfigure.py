"""torch 2.14's reconfigure(): ranks leave, come back and change their order."""
import datetime
import threading
import time

import pytest
import torch
import torch.distributed as dist

from ranks import Ranks
from weft_torch._extension import extension

pytestmark = pytest.mark.skipif(not hasattr(dist, "_reconfigure"), reason="torch has reconfigure from 2.14")


def _enabled(rank):
    return {"enable_reconfigure": True}


def _store():
    return dist.PrefixStore("test", dist.distributed_c10d._get_default_store())


def _handles(number, size):
    """All ranks' handles, by the ranks that the processes were started with."""
    _store().set(f"{number}/{_own()}", dist._get_reconfigure_handle())
    return [_store().get(f"{number}/{rank}").decode() for rank in range(size)]


def _own():
    return int(dist._get_reconfigure_handle().split(":")[1])


def _meet(name, size):
    """Through the store: the reconfigure() of one rank ends what others still wait for in the group before."""
    _store().set(f"{name}/{_own()}", "")
    _store().wait([f"{name}/{rank}" for rank in range(size)])


def _sum_of_ranks():
    """The sum of what the ranks of the group were started as."""
    tensor = torch.full((1000,), float(_own()))
    dist.all_reduce(tensor)
    later = torch.full((3,), float(_own()))
    dist.all_reduce(later, async_op=True).wait()
    assert later.eq(tensor[0]).all()
    return tensor[0].item()


def rank_changes_its_group():
    assert dist._supports_reconfigure()
    with pytest.raises(dist.DistBackendError, match="call reconfigure\\(\\) first"):
        dist.all_reduce(torch.ones(1))
    own, first, seen = _own(), _handles("first", 3), []

    def reconfigure(uuid, handles):
        dist._reconfigure(uuid, handles, timeout=datetime.timedelta(seconds=60)).wait()
        seen.append((dist.get_rank(), dist.get_world_size(), _sum_of_ranks()))

    reconfigure(1, first)
    _meet("summed", 3)
    if own != 1:  # which leaves, reversed
        reconfigure(2, [first[2], first[0]])
        gathered = [torch.zeros(1), torch.zeros(1)]
        dist.all_gather(gathered, torch.tensor([float(own)]))
        assert [each.item() for each in gathered] == [2, 0]
    _meet("came", 3)
    reconfigure(3, set(first))  # and comes back
    return seen


def test_ranks_leave_and_come_back():
    ranks = Ranks(3, prepare=_enabled)
    try:
        assert ranks.call(rank_changes_its_group) == [
            [(0, 3, 3.0), (1, 2, 2.0), (0, 3, 3.0)],
            [(1, 3, 3.0), (1, 3, 3.0)],
            [(2, 3, 3.0), (0, 2, 2.0), (2, 3, 3.0)],
        ]
    finally:
        ranks.close()


def rank_asks_for_what_cannot_be():
    handles = _handles("wrong", 2)
    with pytest.raises(ValueError, match="given twice"):
        dist._reconfigure(1, handles + handles[:1])
    with pytest.raises(ValueError, match="do not have this rank's"):
        dist._reconfigure(1, [handles[1 - _own()]])
    dist._reconfigure(1, handles).wait()
    with pytest.raises(ValueError, match="uuid 1 of reconfigure was used"):
        dist._reconfigure(1, handles)
    _meet("connected", 2)
    if _own() == 0:
        with pytest.raises(dist.DistBackendError, match="Only 1 of 2 ranks"):
            dist._reconfigure(2, handles, timeout=datetime.timedelta(seconds=1))
        with pytest.raises(dist.DistBackendError, match="call reconfigure"):
            dist.all_reduce(torch.ones(1))


def test_what_cannot_be_is_a_sentence():
    ranks = Ranks(2, prepare=_enabled)
    try:
        ranks.call(rank_asks_for_what_cannot_be)
    finally:
        ranks.close()


def test_a_reconfigured_group_can_be_split_and_shrunk():
    """Ranks are threads, turned round by the handles; the children are of ranks 0 and 2."""
    store, sums = dist.HashStore(), {}
    groups = [extension().ReconfigurableBackend(store, rank, 3, datetime.timedelta(seconds=60)) for rank in range(3)]
    turned = [group.get_reconfigure_handle() for group in groups][::-1]

    def divide(own):
        options = dist.distributed_c10d.ReconfigureOptions()
        options.uuid, options.handles = 1, turned
        groups[own].reconfigure(options)
        pair = groups[own].split(store, [0, 2], groups[own].options)
        if own == 1:
            assert pair is None
            return
        shrunk, tensors = groups[own].shrink([1], 0, None), []
        for child in (pair, shrunk):
            tensors.append(torch.full((3,), float(own)))
            child.allreduce([tensors[-1]], dist.AllreduceOptions()).wait()
        sums[own] = [tensor[0].item() for tensor in tensors]

    threads = [threading.Thread(target=divide, args=(own,), daemon=True) for own in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert sums == {0: [2, 2], 2: [2, 2]}


@pytest.mark.parametrize("end", ["abort", "shutdown"])
def test_an_end_during_reconfigure_ends_the_wait_and_the_group(end):
    store = dist.HashStore()
    group = extension().ReconfigurableBackend(store, 0, 2, datetime.timedelta(seconds=60))
    own, options = group.get_reconfigure_handle(), dist.distributed_c10d.ReconfigureOptions()

    def end_it():
        while not store.check(["weft/reconfigured/1/weft/arrived"]):  # add() of a HashStore wakes no wait()
            time.sleep(0.01)
        getattr(group, end)()

    thread = threading.Thread(target=end_it, daemon=True)
    thread.start()
    options.uuid, options.handles = 1, [own, "of a rank that never comes"]
    with pytest.raises(dist.DistBackendError, match="was aborted on this rank"):  # else: Only 1 of 2 ranks came
        group.reconfigure(options)
    thread.join()
    options.uuid, options.handles = 2, [own]
    with pytest.raises(dist.DistBackendError, match="aborted or shut down"):
        group.reconfigure(options)


def rank_aborts_before_a_reconfigure():
    dist.distributed_c10d._abort_process_group()
    return dist.is_initialized()


def test_torch_aborts_a_group_without_ranks():
    ranks = Ranks(1, prepare=_enabled)
    try:
        assert ranks.call(rank_aborts_before_a_reconfigure) == [False]
    finally:
        ranks.failed = True  # it has no group to destroy
        ranks.close()


def rank_goes_on_after_a_death():
    handles = _handles("all", 3)
    dist._reconfigure(1, handles).wait()
    _meet("connected", 3)
    if _own() == 2:
        import os
        os._exit(1)
    with pytest.raises(dist.DistBackendError, match="rank 2"):
        dist.all_reduce(torch.ones(1))
    _meet("failed", 2)
    dist._reconfigure(2, handles[:2]).wait()
    return _sum_of_ranks()


def test_the_others_go_on_after_a_death():
    ranks = Ranks(3, prepare=_enabled)
    try:
        ranks.start(rank_goes_on_after_a_death)
        outcomes = ranks.outcomes()
        assert outcomes[:2] == [("result", 1.0)] * 2 and outcomes[2][0] == "died", outcomes
    finally:
        ranks.failed = True
        ranks.close()
