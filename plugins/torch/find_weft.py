"""Finds Weft for setup.py, or builds it from its sources."""
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import typing

HERE = pathlib.Path(__file__).resolve().parent
# What CMake needs to build the library alone; an sdist has them in the folder weft.
SOURCES = ["CMakeLists.txt", "LICENSE", "cmake", "include", "src/weft", "tools", "plugins/nccl_net", "plugins/nccl_shim",
           "share/pages"]
OPTIONS = ["-DCMAKE_BUILD_TYPE=Release", "-DWEFT_TESTS=OFF", "-DWEFT_PERF=OFF", "-DLOOM=OFF"]


class Weft(typing.NamedTuple):
    include: str
    library: str  # the folder of libweft.so
    own: bool  # built here: the package has to carry it


def sources():
    """Weft's source tree: around this folder in a checkout, in it in an sdist. None where there is neither."""
    for folder in (HERE / "weft", HERE.parent.parent):
        if (folder / "include" / "weft" / "weft.h").exists() and (folder / "CMakeLists.txt").exists():
            return folder
    return None


def from_folder(folder):
    """Weft of an installed prefix, or of a source tree that is built. None where there is no library."""
    folder = pathlib.Path(folder)
    for library in [folder / "build" / "lib", folder / "lib", *folder.glob("lib/*-linux-gnu")]:
        if (library / "libweft.so").exists() and (folder / "include" / "weft" / "weft.h").exists():
            return Weft(str(folder / "include"), str(library), False)
    return None


def from_pkg_config():
    """The Weft that pkg-config knows, or None."""
    def ask(variable):
        asked = subprocess.run(["pkg-config", f"--variable={variable}", "weft"], capture_output=True, text=True)
        return asked.stdout.strip() if asked.returncode == 0 else ""
    if shutil.which("pkg-config") is None:
        return None
    include, library = ask("includedir"), ask("libdir")
    return Weft(include, library, False) if include and library else None


def build(tree, folder):
    """Builds libweft.so of a source tree in `folder`, which takes minutes."""
    print(f"Building Weft in {folder}", flush=True)
    try:
        subprocess.run(["cmake", "-S", tree, "-B", folder, *OPTIONS, *shlex.split(os.environ.get("CMAKE_ARGS", ""))], check=True)
        subprocess.run(["cmake", "--build", folder, "--target", "weft", "--parallel",
                        os.environ.get("MAX_JOBS", str(os.cpu_count() or 1))], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"Weft could not be built: {error}. It takes a C++20 compiler, CMake and the headers of libfabric, "
                 "hwloc, fmt, CLI11 and nlohmann-json; on Debian, scripts/deps.sh in Weft's source tree installs them. "
                 "Or install Weft, and set TORCH_WEFT_HOME to its prefix.")
    return Weft(str(tree / "include"), str(folder / "lib"), True)


def find():
    """Weft of TORCH_WEFT_HOME; else of the source tree if that is built, else of pkg-config; else built now."""
    home = os.environ.get("TORCH_WEFT_HOME")
    if home:
        found = from_folder(home)
        if not found:
            sys.exit(f"TORCH_WEFT_HOME is {home}, which has no include/weft/weft.h beside lib/libweft.so or "
                     "build/lib/libweft.so; name the prefix of 'make install' or a source tree after 'make'.")
        return found
    tree = sources()
    # Beside a source tree that is built, the installed library may be another version.
    found = (tree and from_folder(tree)) or from_pkg_config()
    if found:
        return found
    if tree is None:
        sys.exit("Weft was not found: type 'make install' in its source tree, and set TORCH_WEFT_HOME to the prefix (or "
                 "PKG_CONFIG_PATH to the prefix's lib/pkgconfig).")
    return build(tree, HERE / "build" / "weft")


def bundle(weft, folder):
    """Puts libweft.so, without its debugging information, into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "libweft.so.0"  # its soname
    shutil.copyfile(pathlib.Path(weft.library) / "libweft.so", target)
    if shutil.which("strip"):
        subprocess.run(["strip", "--strip-debug", target], check=True)
