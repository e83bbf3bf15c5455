"""Loads the extension, or says why it does not fit."""
import functools


def _series(version):
    return ".".join(version.split("+")[0].split(".")[:2])


@functools.cache
def extension():
    """The module weft_torch._C. Raises ImportError with a sentence if it was built for another torch."""
    import torch
    again = "pip install --no-build-isolation --force-reinstall --no-deps ./plugins/torch (in Weft's source tree)"
    try:
        from . import _built_for
    except ImportError:
        raise ImportError(f"weft_torch's extension has not been built; type: {again}") from None
    if _series(_built_for.TORCH) != _series(torch.__version__):
        raise ImportError(f"weft_torch's extension was built for torch {_built_for.TORCH}, but this is torch "
                          f"{torch.__version__}; type: {again}")
    try:
        from . import _C
    except ImportError as error:
        raise ImportError(f"weft_torch's extension, built for torch {_built_for.TORCH} and Weft in "
                          f"{_built_for.WEFT_LIBRARY}, cannot be loaded: {error}. If Weft or torch has moved, "
                          f"type: {again}") from error
    return _C
