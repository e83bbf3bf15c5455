"""The stand-in device: torch's private device type over the fake CUDA driver of tests/cuda. See stand_in.cc.

The test process builds it once into its working folder; ranks load it.
"""
import importlib.util
import os
import pathlib
import subprocess
import types

NAME = "standin"
HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[3]
_module = None


def _build(target, sources, command):
    if not target.exists() or target.stat().st_mtime < max(path.stat().st_mtime for path in sources):
        target.parent.mkdir(exist_ok=True)
        partial = target.with_suffix(".partial")
        subprocess.run([os.environ.get("CXX", "c++"), "-shared", "-fPIC", "-std=c++20", "-g0", *map(str, command), "-o", partial],
                       check=True)
        partial.rename(target)
    return target


def environment():
    """What ranks need in theirs. Builds the device and its driver where they are not built yet."""
    import torch
    from torch.utils import cpp_extension
    folder = pathlib.Path.cwd() / "torch-stand-in"
    sources = sorted(HERE.glob("*.cc"))
    libraries = pathlib.Path(torch.__file__).parent / "lib"
    device = _build(folder / f"stand_in-{torch.__version__}.so", sources + sorted(HERE.glob("*.h")), [
        "-O0", *(f"-isystem{path}" for path in cpp_extension.include_paths()),
        f"-isystem{__import__('sysconfig').get_paths()['include']}", "-DTORCH_API_INCLUDE_EXTENSION_H",
        "-DTORCH_EXTENSION_NAME=weft_torch_stand_in", *sources, f"-L{libraries}", "-lc10", "-ltorch", "-ltorch_cpu",
        "-ltorch_python", "-ldl"])
    driver = ROOT / "tests" / "cuda" / "fake_driver"
    cuda = _build(folder / "libfake_cuda.so", [*driver.glob("*.cc"), *driver.glob("*.h")], [
        "-O1", "-ffp-contract=off", f"-I{ROOT / 'tests'}", f"-I{ROOT / 'src' / 'weft'}", *sorted(driver.glob("*.cc")), "-lfmt",
        "-pthread"])
    return {"TORCH_WEFT_STAND_IN": str(device), "WEFT_CUDA_LIBRARY": str(cuda), "WEFT_TUNE": "off", "FAKE_CUDA_DELAY_US": "5"}


class _Device(types.ModuleType):
    """torch.standin, as torch wants it of an accelerator."""

    def __init__(self, module):
        super().__init__(f"torch.{NAME}")
        import torch
        self.device_count, self.current_device, self.set_device = module.device_count, module.current_device, module.set_device
        self.Held, self.reused_blocks = module.Held, module.reused_blocks
        self.Stream, self.Event = torch.Stream, torch.Event
        self.is_available = self.is_initialized = lambda: True
        self.current_stream = lambda device=None: torch.accelerator.current_stream(device)
        self.stream = lambda stream: stream
        self.synchronize = lambda device=None: self.current_stream(device).synchronize()
        self.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]
        self._is_in_bad_fork = lambda: False
        self.manual_seed_all = lambda seed: None


def load():
    """torch.device("standin"), whose tensors backend "weft" takes from now on."""
    global _module
    import torch
    import weft_torch
    if _module is None:
        spec = importlib.util.spec_from_file_location("weft_torch_stand_in", os.environ["TORCH_WEFT_STAND_IN"])
        _module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(_module)
        _module.load(os.environ["WEFT_CUDA_LIBRARY"])
        torch.utils.rename_privateuse1_backend(NAME)
        torch._register_device_module(NAME, _Device(_module))
        weft_torch.register(accelerator=NAME)
    return getattr(torch, NAME)


def lazily(rank):
    """For Ranks: the first tensor names the device, which all ranks share."""
    del rank
    load()
    return {}


def eagerly(rank):
    """For Ranks: device_id names the device, another one for every second rank."""
    import torch
    device = load()
    device.set_device(rank % device.device_count())
    return {"device_id": torch.device(NAME, device.current_device())}
