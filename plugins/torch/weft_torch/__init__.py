"""PyTorch on Weft: `torch.distributed.init_process_group("weft")`.

Importing this is not needed: torch calls autoload() itself. It only registers; the extension is loaded when the
first process group is made.
"""
from ._registration import auto, autoload, make_default, register, replace

__all__ = ["auto", "autoload", "make_default", "register", "replace"]
__version__ = "0.1.0"
