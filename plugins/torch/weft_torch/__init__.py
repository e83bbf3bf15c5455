"""PyTorch on Weft: `torch.distributed.init_process_group("weft")`.

Importing this is not needed: torch calls autoload() itself. It only registers; the extension is loaded when the
first process group is made.
"""
import importlib.util

if importlib.util.find_spec("torch") is None:
    raise ModuleNotFoundError("weft_torch is a backend of torch, which is not installed here; type: pip install torch==2.13.0, "
                              "then install weft_torch again, since its extension fits one version of torch", name="torch")

from ._registration import auto, autoload, make_default, register, replace  # noqa: E402

__all__ = ["auto", "autoload", "make_default", "overlap", "register", "replace"]
__version__ = "0.1.0"


def __getattr__(name):
    if name == "overlap":  # it needs torch, which may be importing this package
        from ._overlap import overlap
        return overlap
    raise AttributeError(f"module 'weft_torch' has no attribute '{name}'")
