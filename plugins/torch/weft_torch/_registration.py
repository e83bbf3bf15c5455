"""Tells torch.distributed of the backend. Nothing here loads the extension until a process group is made."""
import os

_DEVICES = ["cpu"]


def _create(options, backend_options):
    """torch's extended creator: (DistributedBackendOptions, options of the backend) to a Backend."""
    del backend_options  # the backend has none
    from ._extension import extension
    return extension().WeftBackend(options.store, options.group_rank, options.group_size, options.timeout,
                                   options.group_id, list(options.global_ranks_in_group))


def register():
    """Registers backend "weft" for tensors of host memory. Doing so twice is harmless."""
    import torch.distributed as dist
    if not dist.is_available():
        return
    if "WEFT" not in dist.Backend._plugins:
        dist.Backend.register_backend("weft", _create, extended_api=True, devices=list(_DEVICES))


def autoload():
    """What "import torch" calls at its end. Obeys TORCH_WEFT_REPLACE and TORCH_WEFT_DEFAULT."""
    register()
    for name in filter(None, os.environ.get("TORCH_WEFT_REPLACE", "").split(",")):
        replace(name)
    for device in filter(None, os.environ.get("TORCH_WEFT_DEFAULT", "").split(",")):
        make_default(device)


def make_default(device="cpu"):
    """Groups for which the program names no backend use Weft for tensors of `device`."""
    if device not in _DEVICES:
        raise ValueError(f'make_default("{device}"): weft_torch takes tensors of cpu; say make_default("cpu").')
    import torch.distributed as dist
    register()
    dist.Backend.default_device_backend_map[device] = "weft"


def replace(name="gloo"):
    """Groups for which the program names backend "gloo" are Weft's from now on. torch calls them "gloo" still."""
    if name != "gloo":
        raise ValueError(f'replace("{name}"): weft_torch can stand for gloo; say replace("gloo").')
    import torch.distributed as dist
    from torch.distributed import distributed_c10d
    register()
    if "GLOO" in dist.Backend._plugins:  # torch from 2.14 has gloo as a plugin, too
        dist.Backend.register_backend("gloo", _create, extended_api=True, devices=list(_DEVICES))
    elif not issubclass(type(distributed_c10d.ProcessGroupGloo), _StandsForGloo):
        real = distributed_c10d.ProcessGroupGloo
        distributed_c10d.ProcessGroupGloo = _StandsForGloo("ProcessGroupGloo", (), {"real": real})


class _StandsForGloo(type):
    """The class of a stand-in for ProcessGroupGloo, which torch up to 2.13 names where it makes a group."""

    def __call__(cls, store, rank, size, timeout=None):
        from ._extension import extension
        return extension().WeftBackend(store, rank, size, *([] if timeout is None else [timeout]))

    def __instancecheck__(cls, instance):
        from ._extension import extension
        return isinstance(instance, (cls.real, extension().WeftBackend))

    def __getattr__(cls, name):
        return getattr(cls.real, name)
