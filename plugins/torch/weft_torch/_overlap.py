"""FSDP2 on host memory: a layer's communication runs while other layers compute.

FSDP2 calls collectives on streams of the device. Host memory has no streams, so each call blocks until it ends. Here the
calls are asynchronous. FSDP2 itself waits for an all-gather when it needs the parameters. A reduce-scatter is waited for
at the end of the backward pass, or at once if FSDP2 reads its result earlier.
"""
import collections

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

# torch 2.13 has new names.
_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
_MOST_UNFINISHED = 2  # reduce-scatters of a model; each keeps the gradients of a whole module


def overlap(model):
    """Lets FSDP2's collectives on CPU tensors run while the model computes. Call it after the last fully_shard().

    Each module gathers the parameters of the module that follows it in the first forward pass. That takes memory for
    another module's parameters, and the backward pass for another two modules' gradients. Results have the same bits.
    Every rank has to call it. Returns the model. Raises ValueError if no module of `model` was given to fully_shard(), if
    its parameters are not on the CPU, or if a module has parameters of several meshes.
    """
    sharded = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if not sharded:
        raise ValueError("overlap() was given a model without FSDP2's modules. Call fully_shard() on its layers first. DDP needs no overlap().")
    groups = {module: group for module in sharded if (group := _parameter_group(module)) is not None}
    unfinished = _Unfinished()
    for module, group in groups.items():
        module.set_custom_all_gather(_AllGather())
        module.set_custom_reduce_scatter(_ReduceScatter(group, unfinished))
    _Ahead(model, groups)
    return model


def _parameter_group(module):
    """FSDP2's group of the module's own parameters, or None if it has none."""
    state = module._get_fsdp_state()
    if len(getattr(state, "_fsdp_param_groups", ())) > 1:  # torch 2.11 has one
        raise ValueError("overlap() was given a module with parameters of several meshes; it serves modules with one.")
    group = state._fsdp_param_group
    if group is not None and group.device.type != "cpu":
        raise ValueError(f"overlap() was given parameters on {group.device}; it serves those on cpu. On other devices FSDP2 "
                         "overlaps by streams.")
    return group


def _in_backward():
    return torch._C._current_graph_task_id() != -1


class _Ahead:
    """Gathers parameters ahead in the forward passes of a model.

    FSDP2's own prefetching would also do so where a backward pass computes activations anew, and would keep parameters
    that were gathered for nothing, until after somebody has changed them.
    """

    def __init__(self, model, groups):
        self._groups = groups
        self._following = None  # the module that always follows a module; None before the end of the first pass
        self._called = None     # in the pass under way; None outside of one
        self._ahead = None      # the group that was gathered last, for a module that is not called yet
        model.register_forward_pre_hook(self._begin)
        for module in groups:
            module.register_forward_pre_hook(self._before)
        model.register_forward_hook(self._end, always_call=True)

    def _begin(self, *_):
        self._called = []

    def _before(self, module, _):
        if self._called is None or _in_backward():
            return
        if self._groups[module] is not self._ahead:
            self._drop()
        self._ahead = None
        if self._following is None:
            self._called.append(module)
        elif (following := self._following.get(module)) is not None:
            following.unshard(async_op=True)
            self._ahead = self._groups[following]

    def _end(self, *_):
        self._drop()
        if self._following is None and self._called:
            self._following = _only_followers(self._called)
        self._called = None

    def _drop(self):
        """Parameters that were gathered for nothing."""
        result = self._ahead and self._ahead._all_gather_result
        if result:
            if result.all_gather_work is not None:
                result.all_gather_work.wait()
            self._ahead._all_gather_result = None
        self._ahead = None


def _only_followers(called):
    """The follower of each module that has one only. Ranks that repeat modules differently gather in the same order."""
    followers = collections.defaultdict(set)
    for module, following in zip(called, [*called[1:], None]):
        followers[module].add(following)
    return {module: following for module, (following, *others) in followers.items() if not others}


class _Allocation:
    def allocate(self, size, *, dtype, device):
        return torch.empty(*size, dtype=dtype, device=device)


class _AllGather(_Allocation):
    """Has the interface of FSDP2's AllGather."""

    def __call__(self, output_tensor, input_tensor, group, async_op=False):
        return _gather(output_tensor, input_tensor, group=group, async_op=True)


class _Unfinished:
    """The reduce-scatters that a backward pass has yet to wait for. Each is waited for once: gloo copies at each wait."""

    def __init__(self):
        self._works = collections.deque()

    def add(self, work):
        self._works.append(work)
        torch.autograd.Variable._execution_engine.queue_callback(self.wait)

    def wait(self, most=0):
        """Until so many are left."""
        while len(self._works) > most:
            self._works.popleft().wait()


class _ReduceScatter(_Allocation):
    """Has the interface of FSDP2's ReduceScatter; of one group of parameters."""

    def __init__(self, parameter_group, unfinished):
        self._parameter_group, self._unfinished = parameter_group, unfinished

    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        self._unfinished.wait(_MOST_UNFINISHED - 1)
        work = _reduce(output_tensor, input_tensor, op, group=group, async_op=True)
        if not _in_backward() or self._is_read_before_the_end(output_tensor, op):  # a pipeline reduces after the pass
            self._unfinished.wait()
            work.wait()
        else:
            self._unfinished.add(work)

    def _is_read_before_the_end(self, output, op):
        """Whether FSDP2 does more with the result in this backward pass than to store it as a gradient."""
        group = self._parameter_group
        parameters = [each.sharded_param for each in group.fsdp_params]
        return (op == dist.ReduceOp.SUM  # it is divided
                or group.mesh_info.replicate_mesh_dim is not None  # HSDP: replicas reduce it, too
                or group._all_reduce_hook is not None
                or any(each.dtype != output.dtype  # it is cast
                       or each.grad is not None  # it is added
                       or each._post_accumulate_grad_hooks  # an optimizer may run
                       for each in parameters))
