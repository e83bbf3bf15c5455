"""Tells torch.distributed of the backend. Nothing here loads the extension until a process group is made."""
import atexit
import contextlib
import functools
import logging
import os
import sys

_accelerators = []  # the type of device whose tensors Weft takes besides the host's, or nothing
_replaced = set()  # names of backends that Weft stands for, of torch up to 2.13


@atexit.register  # here, so that it runs after handlers that programs register later: those may use groups
def _end_python_access():
    """Keeps threads of Weft from the interpreter before it ends: it would end them, and the process with them."""
    extension = sys.modules.get(f"{__package__}._C")
    if extension is not None:
        extension.end_python_access()


def _create(options, backend_options):
    """torch's extended creator: (DistributedBackendOptions, options of the backend) to a Backend."""
    del backend_options  # the backend has none
    from ._extension import extension
    if getattr(options, "enable_reconfigure", False):  # torch 2.14
        return extension().ReconfigurableBackend(options.store, options.group_rank, options.group_size, options.timeout,
                                                 options.group_id, *_accelerators)
    return extension().WeftBackend(options.store, options.group_rank, options.group_size, options.timeout,
                                   options.group_id, list(options.global_ranks_in_group), *_accelerators)


def _devices():
    return ["cpu", *_accelerators]


def register(accelerator=None):
    """Registers backend "weft" for tensors of host memory, and of CUDA where torch was built with it.

    Doing so twice is harmless. `accelerator` names another type of device instead, whose memory and streams are those
    of the CUDA driver that Weft loads. Raises RuntimeError if another package has a backend of that name.
    """
    import torch
    import torch.distributed as dist
    if not dist.is_available():
        return
    other = getattr(dist.Backend._plugins.get("WEFT"), "creator_fn", _create)
    if other.__module__ != __name__:
        raise RuntimeError(f'The module {other.__module__} has registered another backend "weft"; uninstall its package, or '
                           "uninstall weft-torch.")
    if accelerator is None and not _accelerators and torch.version.cuda:
        accelerator = "cuda"
    if accelerator is not None:
        _accelerators[:] = [accelerator]
        dist.Backend._plugins.pop("WEFT", None)
    if "GLOO" not in dist.Backend._plugins:  # torch up to 2.13; later ones have gloo as a plugin, too
        _mend_groups()
    _mend_coalescing()
    if "WEFT" not in dist.Backend._plugins:
        dist.Backend.register_backend("weft", _create, extended_api=True, devices=_devices())


def _check_device(device, said, remedy):
    if device not in _devices():
        raise ValueError(f'{said}: weft_torch takes tensors of {" and ".join(_devices())} here; {remedy}.')


def autoload():
    """What "import torch" calls at its end. Obeys TORCH_WEFT_REPLACE and TORCH_WEFT_DEFAULT."""
    register()
    for name in filter(None, os.environ.get("TORCH_WEFT_REPLACE", "").split(",")):
        if name != "gloo":
            raise ValueError(f'TORCH_WEFT_REPLACE names "{name}": weft_torch can stand for gloo; set TORCH_WEFT_REPLACE=gloo, or unset it.')
        replace(name)
    for device in filter(None, os.environ.get("TORCH_WEFT_DEFAULT", "").split(",")):
        _check_device(device, f'TORCH_WEFT_DEFAULT names "{device}"', "set TORCH_WEFT_DEFAULT=cpu, or unset it")
        make_default(device)


def _let_streams_wait():
    """Asks CUDA for what it needs so that a call on a stream returns at once, unless CUDA has begun or was told otherwise.

    libweft does the same, but torch.cuda looks at os.environ, and begins before the first group in most programs.
    """
    import torch
    if torch.version.cuda and not torch.cuda.is_initialized():
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
        os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")


def make_default(device="cpu"):
    """Groups for which the program names no backend use Weft for tensors of `device`."""
    register()
    _check_device(device, f'make_default("{device}")', 'say make_default("cpu")')
    if device == "cuda":
        _let_streams_wait()
    import torch.distributed as dist
    dist.Backend.default_device_backend_map[device] = "weft"


@functools.cache
def _say(sentence):
    """Logs a sentence once in this process."""
    logging.getLogger("weft_torch").warning("%s", sentence)


def auto():
    """The backend for init_process_group() that is Weft wherever Weft serves, and else NCCL for tensors of CUDA.

    Weft serves CUDA if the current device and its driver have what Weft needs. All ranks should have the like.
    """
    import torch
    import torch.distributed as dist
    _let_streams_wait()
    if not torch.cuda.is_available():
        return "weft"
    from ._extension import extension
    lack = extension().device_lacks(torch.cuda.current_device())
    if not lack:
        _say("Weft serves tensors of cpu and cuda.")
        return "weft"
    if not dist.is_nccl_available():
        _say(f"Weft serves tensors of cpu. Tensors of cuda are refused, since this torch has no NCCL, and: {lack}")
        return "weft"
    _say(f"Weft serves tensors of cpu; tensors of cuda go to NCCL: {lack}")
    return "cpu:weft,cuda:nccl"


def replace(name="gloo"):
    """Groups for which the program names backend "gloo" are Weft's from now on. torch calls them "gloo" still."""
    if name != "gloo":
        raise ValueError(f'replace("{name}"): weft_torch can stand for gloo; say replace("gloo").')
    import torch.distributed as dist
    register()
    if "GLOO" in dist.Backend._plugins:
        dist.Backend.register_backend("gloo", _create, extended_api=True, devices=_devices())
        return
    make_default("cpu")  # it was gloo
    _replaced.add("gloo")


def _instead(backend):
    """"gloo" or "cpu:gloo,cuda:nccl" with weft in the places of what it replaces."""
    parts = [part.rpartition(":") for part in str(backend).split(",")]
    return ",".join(device + colon + ("weft" if name.lower() in _replaced else name) for device, colon, name in parts)


def _mend_groups():
    """Wraps what torch up to 2.13 makes groups with.

    It takes the name gloo for a class of its own, so replace() has to change the name. Of a group without a plain name it
    says that its default backend is gloo, and DDP then looks for that.
    """
    from torch.distributed import distributed_c10d
    make_group = distributed_c10d._new_process_group_helper
    if hasattr(make_group, "__wrapped__"):
        return

    @functools.wraps(make_group)
    def make(group_size, group_rank, global_ranks_in_group, backend, *rest, **named):
        used = distributed_c10d.Backend(_instead(backend))
        group, store = make_group(group_size, group_rank, global_ranks_in_group, used, *rest, **named)
        said = distributed_c10d._world.pg_map
        if group in said:  # this rank is a member
            said[group] = (distributed_c10d.Backend(str(backend)), said[group][1])
            serving = distributed_c10d.BackendConfig(used).get_device_backend_map().values()
            if "weft" in serving and "nccl" not in serving:
                group._set_default_backend(distributed_c10d.ProcessGroup.BackendType.CUSTOM)
        return group, store

    distributed_c10d._new_process_group_helper = make


def _cancel_coalescing(group):
    """What this thread has coalesced on the group's backends of Weft is not sent. Returns whether the group has such."""
    found = False
    for device in group._device_types:
        backend = group._get_backend(device)
        cancel = getattr(getattr(backend, "wrapped_pg", backend), "cancel_coalescing", None)  # TORCH_DISTRIBUTED_DEBUG=DETAIL wraps
        if cancel:
            cancel()
            found = True
    return found


@functools.cache
def _mend_coalescing():
    """Wraps torch's coalescing of calls, as in batch_isend_irecv(), which an exception leaves unfinished.

    Later calls on the group would then be recorded, as part of the batch, and never carried out.
    """
    import torch.distributed as dist
    from torch.distributed import distributed_c10d
    coalesce = distributed_c10d._coalescing_manager

    @functools.wraps(coalesce)
    @contextlib.contextmanager
    def manager(group=None, *rest, **named):
        group = group or distributed_c10d._get_default_group()
        recorded = distributed_c10d._world.pg_coalesce_state
        began = group not in recorded  # else an outer batch, or another thread's, has the record
        try:
            with coalesce(group, *rest, **named) as works:
                yield works
        except BaseException:
            if _cancel_coalescing(group) and began:
                recorded.pop(group, None)
            raise

    distributed_c10d._coalescing_manager = dist._coalescing_manager = manager
