"""weft_torch.overlap(): FSDP2's communication runs beside the arithmetic, and changes no bit of the results."""
import contextlib
import unittest.mock

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from ranks import shared
from weft_torch import _overlap, overlap

LAYERS, WIDTH = 4, 24


def make_model(shards=None, policy=None, dtype=torch.float32, divisor=None):
    """Layers in another order than that of their calls, one of which is called twice, on a mesh of replicas × shards."""
    size = dist.get_world_size()
    shards = shards or size
    mesh = init_device_mesh("cpu", (size // shards, shards), mesh_dim_names=("replicate", "shard"))
    mesh = mesh["shard"] if shards == size else mesh

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
            self.depth = None  # how many layers a pass takes; None: all

        def forward(self, values):
            for layer in [*reversed(self.layers), self.layers[1]][:self.depth]:
                values = layer(values).tanh()
            return values

    torch.manual_seed(0)
    model = Model().to(dtype)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy or MixedPrecisionPolicy())
        if divisor:
            layer.set_gradient_divide_factor(divisor)
    return fully_shard(model, mesh=mesh, mp_policy=policy or MixedPrecisionPolicy())


def train(model, accumulate=1, set_to_none=True):
    """The parameters of this rank after three steps, which stay what they are for the passes between."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(1 + dist.get_rank())
    for _ in range(3):
        for _ in range(accumulate):
            inputs = torch.randn(8, WIDTH, dtype=next(model.parameters()).dtype)
            (model(inputs) - inputs.flip(1)).float().square().mean().backward()
            with torch.no_grad():  # other parameters, for an evaluation
                for each in model.parameters():
                    each.neg_()
                model(inputs)
                for each in model.parameters():
                    each.neg_()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none)
    return [each.to_local().clone() for each in model.parameters()]


class Late(dist.Work):
    """A call whose result is there when somebody waits for it, and not before. As gloo's, it copies at each wait."""

    def __init__(self, output, result, told):
        super().__init__()
        self.output, self.result, self.told = output, result, told

    def wait(self, timeout=None):
        self.told()
        self.output.copy_(self.result)
        return True


@contextlib.contextmanager
def late_calls():
    """Asynchronous gathers and reductions are late; yields a list of what happens."""
    events = []

    def make_late(name, real):
        def call(output, given, *rest, async_op=False, **named):
            assert async_op
            events.append(name)
            result = torch.empty_like(output)
            real(result, given.clone(), *rest, **named)
            output.fill_(torch.nan)
            return Late(output, result, lambda: events.append(f"wait for {name}"))
        return call

    with (unittest.mock.patch.object(_overlap, "_gather", make_late("gather", _overlap._gather)),
          unittest.mock.patch.object(_overlap, "_reduce", make_late("reduce", _overlap._reduce))):
        yield events


def check_same_bits(make, **how):
    plain = train(make(), **how)
    with late_calls():
        overlapped = train(overlap(make()), **how)
    assert all(torch.equal(one, other) for one, other in zip(plain, overlapped)) and len(plain) == 2 * LAYERS
    assert any(each.any() for each in plain)


def rank_same_bits():
    check_same_bits(make_model)
    check_same_bits(make_model, accumulate=2)  # gradients are added
    check_same_bits(make_model, set_to_none=False)
    check_same_bits(lambda: make_model(divisor=3.0))
    check_same_bits(lambda: make_model(policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)))
    check_same_bits(lambda: make_model(policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16)))  # results are cast


def rank_same_bits_of_four():
    check_same_bits(lambda: make_model(shards=2))  # replicas reduce results, too
    check_same_bits(lambda: make_model(dtype=torch.float16))  # of more than two ranks, FSDP2 divides the sum


def rank_passes_that_end_early():
    """What was gathered for nothing is dropped: parameters may change before the next pass."""
    def outputs(model):
        found = []
        with torch.no_grad():
            for depth in (None, 2, None):
                model.depth = depth
                found.append(model(torch.ones(8, WIDTH)))
                for each in model.parameters():
                    each.mul_(-0.5)
        return found
    plain = outputs(make_model())
    with late_calls():
        overlapped = outputs(overlap(make_model()))
    assert all(torch.equal(one, other) for one, other in zip(plain, overlapped))


def rank_same_bits_over_gloo():
    """Its own Works."""
    for how in ({}, {"accumulate": 2}, {"set_to_none": False}):
        plain, overlapped = train(make_model(), **how), train(overlap(make_model()), **how)
        assert all(torch.equal(one, other) for one, other in zip(plain, overlapped))


def rank_same_bits_with_hooks():
    """Of the user: on the reduced gradients of a module, and on the gradient of a parameter."""
    def make():
        model = make_model()
        model.layers[2].set_all_reduce_hook(lambda reduced: reduced.mul_(0.5))
        model.layers[3].weight.register_post_accumulate_grad_hook(lambda weight: weight.grad.mul_(0.25))
        return model
    check_same_bits(make)


def rank_waits_at_the_end():
    model = overlap(make_model())
    model(torch.randn(8, WIDTH))
    with late_calls() as events:
        values = model(torch.randn(8, WIDTH))
        del events[:]
        values.sum().backward()
    return [event for event in events if "reduce" in event], [bool(each.grad.isfinite().all()) for each in model.parameters()]


def rank_gathers_ahead():
    model = overlap(make_model())
    with torch.no_grad(), late_calls() as events:
        model(torch.randn(8, WIDTH))
        for layer in model.layers:
            layer.register_forward_hook(lambda *_: events.append("computed"))
        del events[:]
        model(torch.randn(8, WIDTH))
    return events


def rank_trains_after_a_backward_pass_that_failed():
    """A model of which FSDP2 has lost track does not disturb the next one."""
    def fail(_):
        raise ArithmeticError("a hook of the test")
    model = overlap(make_model())
    values = model.layers[0](torch.randn(8, WIDTH, requires_grad=True))
    values.register_hook(fail)
    with pytest.raises(ArithmeticError):
        model.layers[1](values).sum().backward()
    check_same_bits(make_model)


def rank_of_a_pipeline():
    """Stages of torch's pipelines reduce gradients by these calls, outside of a backward pass."""
    def gradients(model):
        torch.manual_seed(1 + dist.get_rank())
        model.set_requires_gradient_sync(False)
        model.set_reshard_after_backward(False)
        for _ in range(2):
            model(torch.randn(8, WIDTH)).sum().backward()
        model.set_requires_gradient_sync(True)
        model.set_reshard_after_backward(True)
        state = fully_shard.state(model)
        for each in state._state_ctx.all_states:
            if each._fsdp_param_group:
                each._fsdp_param_group.post_backward()
        state._root_post_backward_final_callback()
        return [each.grad.to_local().clone() for each in model.parameters()]
    plain = gradients(make_model())
    with late_calls():
        overlapped = gradients(overlap(make_model()))
    assert all(torch.equal(one, other) for one, other in zip(plain, overlapped))


class Checkpointed(torch.nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, values):
        for layer in self.layers:
            values = torch.utils.checkpoint.checkpoint(layer, values, use_reentrant=True)
        return values


def rank_gathers_of_checkpoints():
    """The gathers of a backward pass that computes activations anew, plain and overlapped."""
    counts = []
    for change in (lambda model: model, overlap):
        model = change(fully_shard(Checkpointed(make_model().layers)))
        model(torch.randn(8, WIDTH, requires_grad=True))
        values = model(torch.randn(8, WIDTH, requires_grad=True))
        name = next(name for name in ("all_gather_single", "all_gather_into_tensor") if hasattr(dist, name))
        with (unittest.mock.patch.object(dist, name, wraps=getattr(dist, name)) as plain,
              unittest.mock.patch.object(_overlap, "_gather", wraps=_overlap._gather) as overlapped):
            values.sum().backward()
        counts.append(plain.call_count + overlapped.call_count)
    return counts


def rank_other_orders():
    """Ranks repeat a module differently, which FSDP2 allows if parameters stay: their gathers have one order."""
    torch.manual_seed(0)
    layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
    values, order = torch.randn(8, WIDTH), [0, 1, 0, 2, 3] if dist.get_rank() else [0, 1, 2, 3]

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = layers

        def forward(self, values):
            for each in order:
                values = self.layers[each](values).tanh()
            return values
    with torch.no_grad():
        wanted = Model()(values)
        for layer in layers:
            fully_shard(layer, reshard_after_forward=False)
        model = overlap(fully_shard(Model(), reshard_after_forward=False))
        for _ in range(3):
            assert torch.allclose(model(values), wanted)
            for layer in layers:
                layer.reshard()


def rank_wrong_models():
    with pytest.raises(ValueError, match="Call fully_shard"):
        overlap(torch.nn.Linear(2, 2))


@pytest.mark.parametrize("function", [rank_same_bits, rank_same_bits_with_hooks, rank_wrong_models, rank_of_a_pipeline,
                                      rank_other_orders, rank_passes_that_end_early,
                                      rank_trains_after_a_backward_pass_that_failed])
def test_overlap(function):
    shared(2).call(function)


def test_overlap_of_four():
    shared(4).call(rank_same_bits_of_four)


def test_a_backward_pass_waits_at_its_end():
    for events, finite in shared(2).call(rank_waits_at_the_end):
        assert all(finite)
        # Two are under way at most.
        assert events == ["reduce"] * 2 + ["wait for reduce", "reduce"] * (LAYERS - 2) + ["wait for reduce"] * 2, events


def test_a_forward_pass_gathers_ahead():
    """From the second one on."""
    for events in shared(2).call(rank_gathers_ahead):
        assert events[:4] == ["gather", "wait for gather", "gather", "computed"], events


def test_what_a_checkpoint_computes_anew_gathers_nothing_more():
    for plain, overlapped in shared(2).call(rank_gathers_of_checkpoints):
        assert plain == overlapped > 0


def test_overlap_over_gloo():
    shared(2, "gloo").call(rank_same_bits_over_gloo)
