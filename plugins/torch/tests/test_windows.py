"""torch 2.14's windows: ranks write into memory of other ranks, which call nothing for it."""
import pytest
import torch
import torch.distributed as dist

from ranks import shared

pytestmark = pytest.mark.skipif(not hasattr(dist, "_new_window"), reason="torch has windows from 2.14")


@pytest.fixture
def ranks():
    return shared(3)


def _ring():
    rank, size = dist.get_rank(), dist.get_world_size()
    return rank, (rank + 1) % size, (rank + size - 1) % size


def around_a_ring(elements, asynchronous):
    rank, to, source = _ring()
    memory = torch.zeros(elements + 5)
    window = dist._new_window(memory)
    seen = []
    for turn in range(3):
        works = [window.put(torch.full((elements,), float(10 * turn + rank)), to, 5, asynchronous)]
        works.append(window.signal(to, asynchronous))
        works.append(window.wait_signal(source, asynchronous))
        for work in works:
            work.wait()
        seen.append((memory[4].item(), memory[5].item(), memory[-1].item()))
        dist.barrier()
    window.tensor_deregister()
    return seen


@pytest.mark.parametrize("elements", [1, 1000, 300_000])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_signal_says_that_the_puts_before_it_are_there(ranks, elements, asynchronous):
    for rank, seen in enumerate(ranks.call(around_a_ring, elements, asynchronous)):
        source = (rank + 2) % 3
        assert seen == [(0.0, 10.0 * turn + source, 10.0 * turn + source) for turn in range(3)]


def two_windows():
    rank, to, source = _ring()
    first, second = torch.zeros(4, dtype=torch.int64), torch.zeros(4, dtype=torch.int64)
    windows = [dist._new_window(first), dist._new_window()]
    windows[1].tensor_register(second)
    windows[1].put(torch.arange(2) + rank, to, 2, False)
    windows[1].signal(to, False)
    windows[0].put(torch.tensor([rank]), to, 0, True)
    windows[0].tensor_deregister()  # waits for the put
    windows[1].wait_signal(source, False)
    windows[1].tensor_deregister()
    windows[1].tensor_register(first)
    windows[1].tensor_deregister()
    return first.tolist(), second.tolist()


def test_windows_have_signals_of_their_own_and_end_when_their_puts_are_there(ranks):
    for rank, (first, second) in enumerate(ranks.call(two_windows)):
        source = (rank + 2) % 3
        assert first == [source, 0, 0, 0]
        assert second == [0, 0, source, source + 1]


def mistake(what):
    window = dist._new_window(torch.zeros(4))
    try:
        {"offset": lambda: window.put(torch.zeros(2), 1, 3, False),
         "negative": lambda: window.put(torch.zeros(2), 1, -1, False),
         "type": lambda: window.put(torch.zeros(2, dtype=torch.int32), 1, 0, False),
         "rank": lambda: window.signal(3, False),
         "twice": lambda: window.tensor_register(torch.zeros(2)),
         "strided": lambda: dist._new_window(torch.zeros(4, 4).t()),
         "nothing": lambda: dist._new_window().signal(0, False)}[what]()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        window.tensor_deregister()


@pytest.mark.parametrize("what, sentence", [
    ("offset", "window of rank 1, which has 16 bytes"), ("negative", "must be at least 0"),
    ("type", "the window is of"), ("rank", "ranks of this group are 0 to 2"), ("twice", "has a tensor"),
    ("strided", "is not contiguous"), ("nothing", "has no tensor")])
def test_a_mistake_is_named_and_leaves_the_group_as_it_is(ranks, what, sentence):
    for answer in ranks.call(mistake, what):
        assert sentence in answer
