"""Builds the backend's extension against the torch that is installed, and against Weft, which it looks for.

Weft is taken from TORCH_WEFT_HOME (a prefix of `make install`, or a source tree that is built), else from pkg-config,
else from the source tree that this folder lies in.
"""
import glob
import os
import pathlib
import subprocess
import sys

from setuptools import setup

HERE = pathlib.Path(__file__).resolve().parent

try:
    import torch
    from torch.utils.cpp_extension import BuildExtension, CppExtension
except ImportError:
    sys.exit("weft-torch is built against the torch that is installed, but there is none here: "
             "pip install torch, then pip install --no-build-isolation ./plugins/torch")


def from_folder(folder):
    """(include folder, library folder) of an installed prefix or of a source tree that is built, or None."""
    folder = pathlib.Path(folder)
    for library in [folder / "build" / "lib", folder / "lib", *folder.glob("lib/*-linux-gnu")]:
        if (library / "libweft.so").exists() and (folder / "include" / "weft" / "weft.h").exists():
            return str(folder / "include"), str(library)
    return None


def from_pkg_config():
    def ask(variable):
        asked = subprocess.run(["pkg-config", f"--variable={variable}", "weft"], capture_output=True, text=True)
        return asked.stdout.strip() if asked.returncode == 0 else ""
    try:
        include, library = ask("includedir"), ask("libdir")
    except FileNotFoundError:
        return None
    return (include, library) if include and library else None


def find_weft():
    home = os.environ.get("TORCH_WEFT_HOME")
    if home:
        found = from_folder(home)
        if not found:
            sys.exit(f"TORCH_WEFT_HOME is {home}, which has no include/weft/weft.h beside lib/libweft.so or "
                     "build/lib/libweft.so; name the prefix of 'make install' or a source tree after 'make'.")
        return found
    # Beside a source tree that is built, the installed library may be another version.
    found = from_folder(HERE.parent.parent) or from_pkg_config()
    if not found:
        sys.exit("Weft was not found: type 'make' in its source tree, or 'make install', then set TORCH_WEFT_HOME to the "
                 "source tree or to the prefix (or PKG_CONFIG_PATH to the prefix's lib/pkgconfig).")
    return found


include, library = find_weft()
(HERE / "weft_torch" / "_built_for.py").write_text(
    f'"""Written by setup.py: what the extension was built for."""\nTORCH = "{torch.__version__}"\n'
    f'WEFT_LIBRARY = "{library}"\n')

setup(
    ext_modules=[
        CppExtension(
            "weft_torch._C",
            sorted(os.path.relpath(path, HERE) for path in glob.glob(str(HERE / "csrc" / "*.cc"))),
            include_dirs=[include],
            library_dirs=[library],
            libraries=["weft"],
            extra_compile_args=["-std=c++20", "-O2", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-parameter"],
            extra_link_args=[f"-Wl,-rpath,{library}"],
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
