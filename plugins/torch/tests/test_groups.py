"""Groups of some ranks share the connections of the default group."""
import os

import torch
import torch.distributed as dist

from ranks import Ranks, shared


def _descriptors():
    return len(os.listdir("/proc/self/fd"))


def rank_many_groups():
    """Ten groups of all ranks, of halves and of pairs; (open files before, after)."""
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.all_reduce(torch.ones(1))
    before, groups = _descriptors(), []
    for number in range(10):
        ranks = [list(range(size)), [0, size - 1], list(range(size // 2)), [2, 1]][number % 4]
        group = dist.new_group(ranks, backend="weft")
        if rank not in ranks:
            continue
        groups.append(group)
        tensor = torch.full((100,), float(rank))
        dist.all_reduce(tensor, group=group)
        assert tensor.eq(sum(ranks)).all(), (ranks, tensor)
        work = dist.broadcast(tensor, ranks[-1], group=group, async_op=True)
        work.wait()
    after = _descriptors()
    for group in groups:
        dist.destroy_process_group(group)
    return before, after


def test_groups_open_no_connection():
    for before, after in shared(4).call(rank_many_groups):
        assert after == before


def rank_same_name_again():
    """A group of the same ranks and name as one that has ended is another one."""
    for _ in range(3):
        group = dist.new_group([0, 1], backend="weft", use_local_synchronization=True, group_desc="again")
        tensor = torch.ones(5)
        dist.all_reduce(tensor, group=group)
        assert tensor.eq(2).all()
        dist.destroy_process_group(group)


def test_a_group_of_a_name_that_was_used_before():
    shared(2).call(rank_same_name_again)


def rank_nested_splits():
    """A half that is split again, whose parent ends before it."""
    rank = dist.get_rank()
    half = dist.group.WORLD.split_group([0, 1] if rank < 2 else [2, 3], group_name=f"half {rank // 2}")
    single = half.split_group([rank % 2], group_name=f"single {rank}")
    pair = half.split_group([1, 0], group_name=f"turned {rank // 2}")
    half.shutdown()
    for group, expected in ((single, 1.0), (pair, 2.0)):
        tensor = torch.ones(3)
        group.allreduce([tensor]).wait()
        assert tensor.eq(expected).all()
        group.shutdown()


def test_a_split_of_a_split_outlives_its_parent():
    shared(4).call(rank_nested_splits)


def rank_group_is_left():
    """Rank 1 destroys a group that rank 0 still uses. Both keep the default group."""
    from test_failures import raises
    group = dist.new_group([0, 1], backend="weft")
    dist.all_reduce(torch.ones(1), group=group)
    if dist.get_rank() == 0:
        raises(dist.DistBackendError, ["rank 1 has gone", "without this call"], dist.all_reduce, torch.ones(1), group=group)
    dist.destroy_process_group(group)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.eq(2).all()


def test_a_group_that_a_rank_has_left_fails_before_its_deadline():
    """That is 30 minutes."""
    shared(2).call(rank_group_is_left)


def rank_group_after_failure():
    """Ranks 0 and 1 make a group after the default group has failed on both."""
    rank = dist.get_rank()
    from test_failures import raises
    raises(dist.DistBackendError, ["rank"], dist.all_reduce, torch.ones(4 if rank == 2 else 3))
    if rank == 2:
        return
    group = dist.new_group([0, 1], backend="weft", use_local_synchronization=True)
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=group)
    assert tensor.eq(2).all()


def test_a_group_does_not_share_failures():
    ranks = Ranks(3)
    try:
        ranks.call(rank_group_after_failure)
    finally:
        ranks.close()


def rank_new_world():
    """Groups of a second default group do not borrow from the first one."""
    rank, size = dist.get_rank(), dist.get_world_size()
    store = dist.distributed_c10d._get_default_store()
    dist.destroy_process_group()
    dist.init_process_group("weft", store=dist.PrefixStore("again", store), rank=rank, world_size=size)
    group = dist.new_group(list(range(size)), backend="weft")
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=group)
    assert tensor.eq(size).all()


def test_a_second_default_group():
    ranks = Ranks(2)
    try:
        ranks.call(rank_new_world)
    finally:
        ranks.close()
