"""Builds the backend's extension against the torch that is installed, and against Weft (find_weft.py).

TORCH_WEFT_BUNDLE=1 makes a wheel for other machines: it carries libweft.so, and its version names the torch it fits.
"""
import glob
import json
import os
import pathlib
import shutil
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import find_weft  # noqa: E402


def path_outside():
    """Where this Python finds packages without what pip sets for a build: in the environment, of the user and of the system."""
    hidden = ("PYTHONPATH", "PYTHONNOUSERSITE")
    outside = subprocess.run([sys.executable, "-c", "import json, sys; print(json.dumps(sys.path[1:]))"], check=True,
                             stdout=subprocess.PIPE, text=True, env={name: value for name, value in os.environ.items() if name not in hidden})
    return json.loads(outside.stdout.splitlines()[-1])


try:
    import torch
except ImportError:
    # pip hides installed packages from a build, but an extension fits the torch that it was built against alone.
    sys.path += [place for place in path_outside() if place not in sys.path]
    try:
        import torch
    except ImportError:
        torch = None

BUNDLE = os.environ.get("TORCH_WEFT_BUNDLE") == "1"
VERSION = "0.1.0"
SERIES = torch and ".".join(torch.__version__.split("+")[0].split(".")[:2])
OLDEST = (2, 11)  # version of torch whose backends are made like this one
if torch and tuple(map(int, SERIES.split("."))) < OLDEST:
    sys.exit(f"weft-torch needs torch {'.'.join(map(str, OLDEST))} or newer, but this is torch {torch.__version__}; "
             "type: pip install torch==2.13.0, then again.")


class WithoutTorch(build_ext):
    def run(self):
        sys.exit(f"weft-torch is built against the torch that is installed, but {sys.executable} finds none: "
                 "pip install torch, then again.")


def united(sources, folder):
    """One file in `folder` that includes all: the compiler spends most of its time on torch's headers."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = folder / "weft_torch.cc"
    whole.write_text("".join(f'#include "{HERE / source}"\n' for source in sources))
    return str(whole)


def building(base):
    """The command that builds: `base` is torch's."""

    class Build(base):
        def run(self):
            weft = find_weft.find()
            carry = BUNDLE or weft.own
            extension = self.extensions[0]
            extension.include_dirs.insert(0, weft.include)
            extension.library_dirs.insert(0, weft.library)
            extension.extra_link_args.append(f"-Wl,-rpath,{'$ORIGIN/lib' if carry else weft.library}")
            extension.sources = [united(extension.sources, pathlib.Path(self.build_temp))]
            package = HERE / "weft_torch" if self.inplace else pathlib.Path(self.build_lib) / "weft_torch"
            package.mkdir(parents=True, exist_ok=True)
            (package / "_built_for.py").write_text(
                f'"""Written by setup.py: what the extension was built for."""\nTORCH = "{torch.__version__}"\n'
                f'WEFT_LIBRARY = "{"this package" if carry else weft.library}"\n')
            shutil.rmtree(package / "lib", ignore_errors=True)
            if carry:
                find_weft.bundle(weft, package / "lib")
            super().run()

    return Build


class Sdist(sdist):
    """With Weft's sources, in the folder weft."""

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        tree = find_weft.sources()
        for name in find_weft.SOURCES:
            target = pathlib.Path(base_dir) / "weft" / name
            if (tree / name).is_dir():
                shutil.copytree(tree / name, target, dirs_exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(tree / name, target)


SETTINGS = {
    "include_dirs": [],
    "library_dirs": [],
    "libraries": ["weft"],
    "extra_compile_args": ["-std=c++20", "-O2", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-parameter"],
    "extra_link_args": [],
}
CODE = sorted(os.path.relpath(path, HERE) for path in glob.glob(str(HERE / "csrc" / "*.cc")))
if torch:
    from torch.utils.cpp_extension import BuildExtension, CppExtension
    module, command = CppExtension("weft_torch._C", CODE, **SETTINGS), building(BuildExtension)
else:
    module, command = Extension("weft_torch._C", CODE), WithoutTorch

setup(
    version=f"{VERSION}+torch{SERIES}" if BUNDLE and torch else VERSION,
    install_requires=[f"torch=={SERIES}.*" if BUNDLE and torch else "torch>=" + ".".join(map(str, OLDEST))],
    ext_modules=[module],
    cmdclass={"build_ext": command, "sdist": Sdist},
)
