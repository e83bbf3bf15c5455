"""Every collective, of every type, synchronous and asynchronous: beside what torch computes from all inputs, and gloo."""
import datetime
import functools
import operator
import time

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import WorkResult, _get_work_registry_size
from torch.distributed._functional_collectives import allow_inflight_collective_as_graph_input_ctx

from ranks import shared

SIZES = [2, 4]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
FP8 = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64]
COMPLEX = [torch.complex32, torch.complex64, torch.complex128]
ALL = [torch.bool, *INTEGERS, *FLOATS, *FP8, *COMPLEX]
Op = dist.ReduceOp


def values(rank, count, dtype):
    """Small whole numbers, so that sums are exact in every type: [count]."""
    plain = (torch.arange(count) * 3 + rank * 5 + 1) % 4
    if dtype == torch.bool:
        return plain % 2 == 1
    if dtype.is_complex:
        return torch.complex(plain.double(), (plain.double() + rank) % 3).to(dtype)
    return plain.to(dtype)


def bits(tensor):
    tensor = tensor.resolve_conj().contiguous()
    return torch.view_as_real(tensor).contiguous().view(torch.uint8) if tensor.is_complex() else tensor.view(torch.uint8)


def same(actual, expected, what):
    assert actual.dtype == expected.dtype and actual.shape == expected.shape, what
    assert torch.equal(bits(actual), bits(expected)), f"{what}: {actual} instead of {expected}"


def done(work, asynchronous):
    if asynchronous:
        assert work.wait() is True
        if torch.get_default_device().type != "cpu":  # there the current stream has waited, not the host
            torch.accelerator.current_stream().synchronize()
        assert work.is_completed() and work.get_future().done()


def expected_reduction(op, parts):
    dtype = parts[0].dtype
    if dtype == torch.bool:
        function = {Op.SUM: operator.or_, Op.MAX: operator.or_, Op.BOR: operator.or_, Op.PRODUCT: operator.and_,
                    Op.MIN: operator.and_, Op.BAND: operator.and_, Op.BXOR: operator.xor}[op]
        return functools.reduce(function, parts)
    if op in (Op.BAND, Op.BOR, Op.BXOR):
        function = {Op.BAND: operator.and_, Op.BOR: operator.or_, Op.BXOR: operator.xor}[op]
        return functools.reduce(function, [part.long() for part in parts]).to(dtype)
    wide = [part.to(torch.complex128 if dtype.is_complex else torch.float64) for part in parts]
    if op == Op.SUM:
        return sum(wide).to(dtype)
    if op == Op.AVG:
        return (sum(wide) / len(wide)).to(dtype) if not dtype in INTEGERS else (sum(wide) / len(wide)).trunc().to(dtype)
    function = {Op.PRODUCT: operator.mul, Op.MIN: torch.minimum, Op.MAX: torch.maximum}[op]
    return functools.reduce(function, wide).to(dtype)


def reductions():
    """(dtype, op) of all that Weft has."""
    for dtype in ALL:
        ops = [Op.SUM, Op.AVG]
        if dtype == torch.bool:
            ops = [Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX, Op.BAND, Op.BOR, Op.BXOR]
        elif not dtype.is_complex:
            ops += [Op.PRODUCT, Op.MIN, Op.MAX]
            ops += [Op.BAND, Op.BOR, Op.BXOR] if dtype in INTEGERS else []
        for op in ops:
            yield dtype, op


def rank_all_reduce(asynchronous):
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype, op in reductions():
        for count in (0, 1, 37):
            tensor = values(rank, count, dtype)
            done(dist.all_reduce(tensor, op, async_op=asynchronous), asynchronous)
            parts = [values(each, count, dtype) for each in range(size)]
            same(tensor, expected_reduction(op, parts), f"all_reduce {dtype} {op} {count}")


def rank_reduce(asynchronous):
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype, op in reductions():
        tensor, root = values(rank, 9, dtype), size - 1
        done(dist.reduce(tensor, root, op, async_op=asynchronous), asynchronous)
        parts = [values(each, 9, dtype) for each in range(size)]
        same(tensor, expected_reduction(op, parts) if rank == root else parts[rank], f"reduce {dtype} {op}")


def rank_reduce_scatter(asynchronous):
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype, op in reductions():
        expected = expected_reduction(op, [values(each, size * 5, dtype) for each in range(size)])[rank * 5:][:5]
        single = torch.empty(5, dtype=dtype)
        done(dist.reduce_scatter_tensor(single, values(rank, size * 5, dtype), op, async_op=asynchronous), asynchronous)
        same(single, expected, f"reduce_scatter_tensor {dtype} {op}")
        listed = torch.empty(5, dtype=dtype)
        inputs = [part.clone() for part in values(rank, size * 5, dtype).view(torch.uint8).view(size, -1)]
        inputs = [part.view(dtype) for part in inputs]
        done(dist.reduce_scatter(listed, inputs, op, async_op=asynchronous), asynchronous)
        same(listed, expected, f"reduce_scatter {dtype} {op}")
    uneven = [torch.full((each + 1,), float(rank)) for each in range(size)]
    output = torch.empty(rank + 1)
    done(dist.reduce_scatter(output, uneven, async_op=asynchronous), asynchronous)
    same(output, torch.full((rank + 1,), float(sum(range(size)))), "uneven reduce_scatter")


def rank_broadcast_and_gathers(asynchronous):
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in ALL:
        for count in (0, 7):
            mine, root = values(rank, count, dtype), size - 1
            parts = [values(each, count, dtype) for each in range(size)]
            tensor = mine.clone()
            done(dist.broadcast(tensor, root, async_op=asynchronous), asynchronous)
            same(tensor, parts[root], f"broadcast {dtype} {count}")
            outputs = [torch.empty(count, dtype=dtype) for _ in range(size)]
            done(dist.all_gather(outputs, mine, async_op=asynchronous), asynchronous)
            for actual, part in zip(outputs, parts):
                same(actual, part, f"all_gather {dtype} {count}")
            whole = torch.empty(size * count, dtype=dtype)
            done(dist.all_gather_into_tensor(whole, mine, async_op=asynchronous), asynchronous)
            same(whole, torch.cat([bits(part).flatten() for part in parts]).view(dtype), f"all_gather_into_tensor {dtype}")
            outputs = [torch.empty(count, dtype=dtype) for _ in range(size)] if rank == root else None
            done(dist.gather(mine, outputs, root, async_op=asynchronous), asynchronous)
            for actual, part in zip(outputs or [], parts):
                same(actual, part, f"gather {dtype} {count}")
            if hasattr(dist, "gather_single"):  # torch from 2.14
                whole = torch.empty(size, count, dtype=dtype) if rank == root else None
                done(dist.gather_single(mine, whole, root, async_op=asynchronous), asynchronous)
                for actual, part in zip([] if whole is None else whole, parts):
                    same(actual, part, f"gather_single {dtype} {count}")
            output = torch.empty(count, dtype=dtype)
            done(dist.scatter(output, parts if rank == root else None, root, async_op=asynchronous), asynchronous)
            same(output, parts[rank], f"scatter {dtype} {count}")
    uneven = [torch.empty(each + 1) for each in range(size)]
    done(dist.all_gather(uneven, torch.full((rank + 1,), float(rank)), async_op=asynchronous), asynchronous)
    for each, actual in enumerate(uneven):
        same(actual, torch.full((each + 1,), float(each)), "uneven all_gather")


def rank_all_to_all(asynchronous):
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in ALL:
        # What rank a sends to rank b: a × b + 1 elements, so also uneven; `even` ones have 3.
        def part(a, b, count):
            return values(a * size + b, count, dtype)
        outputs = [torch.empty(rank * each + 1, dtype=dtype) for each in range(size)]
        inputs = [part(rank, each, rank * each + 1) for each in range(size)]
        done(dist.all_to_all(outputs, inputs, async_op=asynchronous), asynchronous)
        for each, actual in enumerate(outputs):
            same(actual, part(each, rank, rank * each + 1), f"all_to_all {dtype}")
        join = lambda parts: torch.cat([bits(each).flatten() for each in parts]).view(dtype)  # noqa: E731
        single = torch.empty(sum(rank * each for each in range(size)), dtype=dtype)
        splits = [rank * each for each in range(size)]
        done(dist.all_to_all_single(single, join([part(rank, each, rank * each) for each in range(size)]), splits, splits,
                                    async_op=asynchronous), asynchronous)
        same(single, join([part(each, rank, rank * each) for each in range(size)]), f"uneven all_to_all_single {dtype}")
        even = torch.empty(size * 3, dtype=dtype)
        done(dist.all_to_all_single(even, join([part(rank, each, 3) for each in range(size)]), async_op=asynchronous),
             asynchronous)
        same(even, join([part(each, rank, 3) for each in range(size)]), f"all_to_all_single {dtype}")


def rank_coalesced(asynchronous):
    rank, size = dist.get_rank(), dist.get_world_size()
    tensors = [torch.full((count,), float(rank + 1)) for count in (0, 3, 1000)]
    with dist._coalescing_manager(async_ops=asynchronous) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    if asynchronous:
        manager.wait()
    for tensor in tensors:
        same(tensor, torch.full(tensor.shape, float(sum(range(size + 1)))), "coalesced all_reduce")
    outputs = [torch.empty(size * count) for count in (2, 5)]
    with dist._coalescing_manager(async_ops=asynchronous) as manager:
        for output, count in zip(outputs, (2, 5)):
            dist.all_gather_into_tensor(output, torch.full((count,), float(rank)))
    if asynchronous:
        manager.wait()
    for output, count in zip(outputs, (2, 5)):
        same(output, torch.arange(float(size)).repeat_interleave(count), "coalesced all_gather")
    outputs = [torch.empty(count) for count in (2, 5)]
    with dist._coalescing_manager(async_ops=asynchronous) as manager:
        for output, count in zip(outputs, (2, 5)):
            dist.reduce_scatter_tensor(output, torch.arange(float(size * count)))
    if asynchronous:
        manager.wait()
    for output, count in zip(outputs, (2, 5)):
        same(output, size * torch.arange(float(size * count))[rank * count:][:count], "coalesced reduce_scatter")
    # The older way, where each call reaches the backend between start and end.
    mine, ours = torch.full((3,), float(rank)), torch.full((2,), float(rank))
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=asynchronous) as manager:
        dist.broadcast(mine, 1)
        dist.broadcast(ours, 0)
    if asynchronous:
        manager.wait()
    same(mine, torch.full((3,), 1.0), "coalesced broadcast")
    same(ours, torch.full((2,), 0.0), "coalesced broadcast")


def rank_scaled_sum():
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in (*FLOATS, torch.complex64):
        tensor = torch.full((5,), float(rank + 1)).to(dtype)
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5))
        same(tensor, torch.full((5,), 0.5 * sum(range(size + 1))).to(dtype), f"PREMUL_SUM {dtype}")
    output = torch.empty(3)
    dist.reduce_scatter_tensor(output, torch.ones(3 * size), dist._make_nccl_premul_sum(torch.tensor([2.0])))
    same(output, torch.full((3,), 2.0 * size), "PREMUL_SUM by a tensor")


def rank_layouts():
    """Tensors that are not contiguous, conjugated, overlapping, leaves with gradients, and of inference mode."""
    rank, size = dist.get_rank(), dist.get_world_size()
    total = float(sum(range(size + 1)))
    strided = torch.zeros(4, 6)
    view = strided[:, ::2]
    view.fill_(rank + 1)
    dist.all_reduce(view)
    assert strided[:, ::2].eq(total).all() and strided[:, 1::2].eq(0).all()
    image = torch.full((2, 3, 4, 5), float(rank)).contiguous(memory_format=torch.channels_last)
    dist.broadcast(image, 1)
    assert image.eq(1).all() and image.is_contiguous(memory_format=torch.channels_last)
    transposed = torch.empty(size * 3, 2).t()
    dist.all_gather_into_tensor(transposed, torch.full((2, 3), float(rank)))
    same(transposed.flatten(), torch.arange(float(size)).repeat_interleave(6), "all_gather into a view")
    negated = torch.full((3,), complex(1, rank)).conj().imag  # the minus is a flag of the view
    assert negated.is_neg()
    gathered = [torch.empty(3) for _ in range(size)]
    dist.all_gather(gathered, negated)
    for each, actual in enumerate(gathered):
        same(actual, torch.full((3,), -float(each)), "all_gather of negated views")
    buffer = torch.full((size * 2,), -1.0)
    buffer[rank * 2:][:2] = rank
    dist.all_gather_into_tensor(buffer, buffer[rank * 2:][:2])
    same(buffer, torch.arange(float(size)).repeat_interleave(2), "all_gather in place")
    shifted = torch.arange(size * 2.0) + rank
    mine = shifted[:2].clone()
    dist.all_gather_into_tensor(shifted, shifted[:2])
    same(shifted[rank * 2:][:2], mine, "all_gather from another place of its output")
    leaf = torch.full((3, 2), float(rank + 1)).t().requires_grad_()
    for asynchronous in (False, True):
        work = dist.all_reduce(leaf.detach(), async_op=asynchronous)
        done(work, asynchronous)
    assert leaf.eq(total * size).all()
    with torch.inference_mode():
        tensor = torch.full((2, 2), float(rank + 1)).t()
        done(dist.all_reduce(tensor, async_op=True), True)
        assert tensor.eq(total).all()


def rank_futures():
    """Futures complete by themselves, with the outputs; callbacks may wait for further operations."""
    rank, size = dist.get_rank(), dist.get_world_size()
    tensor = torch.full((3,), float(rank + 1))
    def again(future):
        other = torch.ones(2)
        dist.all_reduce(other, async_op=True).get_future().wait()
        return future.value()[0].sum().item() + other.sum().item()
    result = dist.all_reduce(tensor, async_op=True).get_future().then(again).wait()
    assert result == 3 * sum(range(size + 1)) + 2 * size
    works = [dist.all_reduce(torch.ones(4000), async_op=True) for _ in range(50)]
    works += [dist.broadcast(torch.ones(4000), 0, async_op=True) for _ in range(50)]
    dist.barrier()
    assert all(work.is_completed() for work in works), "a barrier follows earlier collectives"


def rank_ends_without_wait():
    """A call that a late rank holds up completes by itself, however its end is asked for."""
    def polled(work):
        end = time.monotonic() + 60
        while not work.is_completed():
            assert time.monotonic() < end
            time.sleep(0.001)

    rank, size = dist.get_rank(), dist.get_world_size()
    ways = [polled, lambda work: work.get_future().wait(), lambda work: work.get_future_result().wait(),
            lambda work: dist.barrier(), lambda work: dist.all_reduce(torch.ones(1), async_op=True).get_future().wait()]
    for count in (1, 20000):
        for ask in ways:
            tensor = torch.full((count,), float(rank))
            if rank == 0:
                time.sleep(0.02)
            ask(dist.all_reduce(tensor, async_op=True))
            assert tensor.eq(sum(range(size))).all()
    dist.all_reduce(torch.ones(1), async_op=True)  # nobody asks


def rank_work():
    """A Work knows how long it took, if timing was on before it, tells success by a Future, and torch lets go of it."""
    group = dist.group.WORLD
    untimed = dist.all_reduce(torch.ones(4), async_op=True)
    untimed.wait()
    group._enable_collectives_timing()
    work = dist.all_reduce(torch.ones(4), async_op=True)
    result = work.get_future_result()
    work.wait()
    assert 0 < work._get_duration() < 60e3
    assert result.wait() == WorkResult.SUCCESS.value == work.get_future_result().wait()
    with pytest.raises(RuntimeError, match="_enable_collectives_timing"):
        untimed._get_duration()
    with allow_inflight_collective_as_graph_input_ctx():  # torch keeps a Work until somebody waits for it
        work = dist.all_reduce(torch.ones(4), async_op=True)
        assert _get_work_registry_size() == 1
        work.wait()
        assert _get_work_registry_size() == 0


def rank_many_works():
    """Works of all kinds, waited for in any order, and by Futures: all complete, with their results."""
    rank, size = dist.get_rank(), dist.get_world_size()
    strided = torch.zeros(200, 2)
    works, tensors = [], []
    for each in range(200):
        tensors.append(strided[each, :1] if each % 3 == 0 else torch.zeros(1))
        tensors[-1].fill_(rank + each)
        works.append(dist.all_reduce(tensors[-1], async_op=True))
    for each in (199, 0, 57):
        works[each].get_future().wait() if each % 2 else works[each].wait()
        assert tensors[each].item() == sum(range(size)) + each * size
    for work in reversed(works):
        work.wait()
    assert all(tensor.item() == sum(range(size)) + each * size for each, tensor in enumerate(tensors))


def rank_two_in_flight():
    """A callback completes the first Work while a thread waits for the second one, which nobody completed then."""
    for order in (1, -1):
        for step in range(4000):
            tensors = [torch.ones(100), torch.ones(100)]
            works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
            for work in works[::order]:
                work.wait(datetime.timedelta(seconds=30))
            assert all(tensor[-1] == dist.get_world_size() for tensor in tensors), step


def rank_own_memory():
    """Tensors of weftMemAlloc, as FSDP2 asks for them."""
    rank, size = dist.get_rank(), dist.get_world_size()
    backend, cpu = dist.group.WORLD._get_backend(torch.device("cpu")), torch.device("cpu")
    assert backend.supports_tensor_alloc(cpu)
    whole = backend.allocate_tensor(size * 1000, dtype=torch.bfloat16, device=cpu)
    assert whole.numel() == size * 1000 and whole.dtype == torch.bfloat16 and whole.data_ptr() % 64 == 0
    whole[rank * 1000:][:1000] = rank
    dist.all_gather_into_tensor(whole, whole[rank * 1000:][:1000])
    same(whole, torch.arange(float(size)).repeat_interleave(1000).bfloat16(), "all_gather in Weft's memory")
    assert backend.allocate_tensor(0, dtype=torch.float32, device=cpu).numel() == 0


def rank_like_gloo():
    """The same calls on a group of gloo with the same ranks: the same bits."""
    rank, size = dist.get_rank(), dist.get_world_size()
    gloo = dist.new_group(backend="gloo")
    for dtype in (torch.int8, torch.uint8, torch.int32, torch.int64, *FLOATS, torch.complex64):
        mine = values(rank, 64, dtype)
        results = []
        for group in (None, gloo):
            reduced = mine.clone()
            dist.all_reduce(reduced, group=group)
            gathered = [torch.empty_like(mine) for _ in range(size)]
            dist.all_gather(gathered, mine, group=group)
            scattered = torch.empty_like(mine)
            dist.scatter(scattered, gathered if rank == 0 else None, 0, group=group)
            exchanged = torch.empty_like(mine)
            dist.all_to_all_single(exchanged, mine, group=group)
            results.append([reduced, *gathered, scattered, exchanged])
        for ours, theirs in zip(*results):
            same(ours, theirs, f"{dtype} beside gloo")
    dist.destroy_process_group(gloo)


def rank_messages_to_itself():
    """As rings have with one rank: a send and its receive were on two streams, which Weft refuses."""
    rank, size = dist.get_rank(), dist.get_world_size()
    theirs, own, half = torch.zeros(3), torch.zeros(5), torch.zeros(4, 2)
    batch = [dist.P2POp(dist.isend, torch.full((3,), float(rank)), (rank + 1) % size), dist.P2POp(dist.isend, torch.arange(5.0), rank),
             dist.P2POp(dist.irecv, theirs, (rank - 1) % size), dist.P2POp(dist.irecv, own, rank),
             dist.P2POp(dist.isend, torch.ones(4), rank), dist.P2POp(dist.irecv, half[:, 0], rank)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    assert theirs.eq((rank - 1) % size).all(), theirs
    assert own.tolist() == [0, 1, 2, 3, 4], own
    assert half.tolist() == [[1, 0]] * 4, half


def rank_objects():
    rank, size = dist.get_rank(), dist.get_world_size()
    gathered = [None] * size
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * rank})
    assert gathered == [{"rank": each, "text": "x" * each} for each in range(size)]
    listed = [("a", 1), None] if rank == 0 else [None, None]
    dist.broadcast_object_list(listed, 0)
    assert listed == [("a", 1), None]
    mine = [None]
    dist.scatter_object_list(mine, [f"for {each}" for each in range(size)] if rank == 0 else None, 0)
    assert mine == [f"for {rank}"]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("function", [rank_all_reduce, rank_reduce, rank_reduce_scatter, rank_broadcast_and_gathers,
                                      rank_all_to_all, rank_coalesced], ids=lambda each: each.__name__[5:])
def test_collective(function, asynchronous, size):
    shared(size).call(function, asynchronous)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("function", [rank_scaled_sum, rank_layouts, rank_futures, rank_ends_without_wait, rank_work,
                                      rank_many_works, rank_two_in_flight, rank_own_memory, rank_like_gloo,
                                      rank_objects, rank_messages_to_itself],
                         ids=lambda each: each.__name__[5:])
def test_more(function, size):
    shared(size).call(function)
