"""The kit: Weft's and Loom's programs and the shared libraries that they need, in one archive that can be carried to a machine
with a GPU: KIT.tar.xz, beside the folder KIT that it was made of, and that it is unpacked into there. The folder has a build folder's layout, bin and lib, and beside it lib/needed, with what Debian's packages gave, and lib/gcc, with the
C++ runtime, which is only used where the machine's own is older. glibc stays the machine's: it must be as new as the one
here. Any build folder can be used in a kit's place.
"""
import json
import lzma
import os
import re
import shutil
import subprocess
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Fast; the dictionary is large, since several programs have the same kernels.
COMPRESSION = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 48 << 20}]
LARGEST_BYTES = 45 << 20  # of the archive, beside the sources, which travel too
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "gather", "scatter", "sendrecv")
OF_NVCC = ("gpu_probe", "gpu_waits")
PROGRAMS = ("weft_run", "weft_info", "gpu_ranks", *OF_NVCC, *(f"{name}_perf" for name in COLLECTIVES), "test_cuda", "test_loom_device", "loom", "loom_step",
            "loom_probe")
LIBRARIES = ("libweft.so.0", "libnccl-net-weft.so", "weft-nccl/libnccl.so.2")
TARGETS = ("weft_run", "weft_info", "gpu_ranks", *(f"{name}_perf" for name in COLLECTIVES), "test_cuda", "test_loom_device", "loom_command",
           "loom_step", "loom_probe", "weft", "nccl_shim", "nccl-net-weft")
LOADED_LATER = ("libfabric.so.1",)  # opened at run time, so that ldd does not name it
OF_GLIBC = re.compile(r"(ld-linux.*|linux-vdso|lib(c|m|dl|pthread|rt|resolv|util|mvec))\.so")
OF_GCC = re.compile(r"lib(stdc\+\+|gcc_s)\.so")


class KitError(Exception):
    """Why there is no kit, or why one does not run."""


def needed_by(file, environment=None):
    """{name: path or None} of the shared libraries that a program or library would be linked with, glibc's left out."""
    done = subprocess.run(["ldd", str(file)], capture_output=True, text=True, env=environment, check=False)
    found = {}
    for line in done.stdout.splitlines():
        match = re.match(r"\s*(\S+) => (?:(/\S+)|not found)", line)
        if match and not OF_GLIBC.match(Path(match.group(1)).name):
            found[Path(match.group(1)).name] = match.group(2)
    return found


def _take(source, target):
    """Copies without symbols and debugging information."""
    target.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["strip", "-o", str(target), str(source)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shutil.copy2(source, target)
    target.chmod(0o755)


def _file_of(library):
    """Where the linker finds a library that is opened at run time, or None."""
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    found = re.search(rf"^\s*{re.escape(library)} .*=> (\S+)$", known, re.MULTILINE)
    return found.group(1) if found else None


def build(folder):
    """Builds what the kit holds in a build folder that CMake has configured; the programs of nvcc where there is one."""
    known = subprocess.run(["cmake", "--build", str(folder), "--target", "help"], capture_output=True, text=True, check=False)
    targets = [*TARGETS, *(name for name in OF_NVCC if re.search(rf"^(\.\.\. )?{name}\b", known.stdout, re.MULTILINE))]
    done = subprocess.run(["cmake", "--build", str(folder), "--target", *targets], check=False)
    if done.returncode != 0:
        raise KitError(f"{folder} cannot be built: configure it with cmake -S . -B {folder} -G Ninja first, or mend what failed above")


def collect(folder, kit):
    """Fills `kit` from a build folder. Returns what it lacks, as sentences."""
    lacks = []
    shutil.rmtree(kit, ignore_errors=True)
    for name in PROGRAMS:
        if (folder / "bin" / name).exists():
            _take(folder / "bin" / name, kit / "bin" / name)
        else:
            lacks.append(f"bin/{name}" + (", which nvcc builds" if name in OF_NVCC else ""))
    for name in LIBRARIES:
        if not (folder / "lib" / name).exists():
            raise KitError(f"{folder}/lib has no {name}: build it first")
        _take(folder / "lib" / name, kit / "lib" / name)
    wanted = {}
    for file in [*(kit / "bin").iterdir(), *(kit / "lib" / name for name in LIBRARIES)]:
        wanted.update(needed_by(file, {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(folder / "lib")}))
    for name in LOADED_LATER:
        if path := _file_of(name):
            wanted.update({name: path, **needed_by(path)})
        else:
            lacks.append(f"{name}, so that GPUDirect cannot be asked about")
    for name, path in sorted(wanted.items()):
        if path is None:
            raise KitError(f"{name}, which the programs need, is not here")
        if not (kit / "lib" / name).exists():
            _take(path, kit / "lib" / ("gcc" if OF_GCC.match(name) else "needed") / name)
    commit = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"],
                            capture_output=True, text=True, check=False)
    (kit / "kit.json").write_text(json.dumps({"commit": commit.stdout.strip(), "glibc": glibc_of(kit), "lacks": lacks}) + "\n")
    return lacks


def archive_of(kit):
    return kit.with_name(kit.name + ".tar.xz")


def pack(kit):
    """Makes the archive of a kit. KitError where it is too large to be carried."""
    archive = archive_of(kit)
    with lzma.open(archive, "wb", filters=COMPRESSION) as file, tarfile.open(fileobj=file, mode="w") as packed:
        packed.add(kit, kit.name)
    if (size := archive.stat().st_size) > LARGEST_BYTES:
        raise KitError(f"{archive} has {size >> 20} MiB, must have at most {LARGEST_BYTES >> 20}: leave a test program out")
    return archive


def unpack(kit):
    """Fills a kit's folder from the archive beside it, if there is one and the folder is not there."""
    archive = archive_of(kit)
    if kit.exists() or not archive.exists():
        return
    part = kit.with_name(kit.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    with tarfile.open(archive) as packed:
        packed.extractall(part, filter="data") if hasattr(tarfile, "data_filter") else packed.extractall(part)
    (part / kit.name).rename(kit)
    part.rmdir()


def glibc_of(kit):
    """The oldest glibc that every file of the kit runs with, or None where objdump is missing."""
    versions = set()
    for file in kit.rglob("*"):
        if file.is_file():
            symbols = subprocess.run(["objdump", "-T", str(file)], capture_output=True, text=True, check=False).stdout
            versions |= {int(minor) for minor in re.findall(r"\bGLIBC_2\.(\d+)", symbols)}
    return f"2.{max(versions)}" if versions else None


def check(kit):
    """KitError if a file of the kit would be linked with a library from outside it, glibc's left out."""
    programs = Programs(kit, own_gcc=True)
    for file in kit.rglob("*"):
        if not file.is_file() or file.suffix == ".json":
            continue
        for name, path in needed_by(file, {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": programs.library_path()}).items():
            if not path or not Path(path).resolve().is_relative_to(kit.resolve()):
                raise KitError(f"{file.relative_to(kit)} would be linked with {path or 'no ' + name}, outside the kit")
    if why := programs.why_not():
        raise KitError(f"the kit does not run here: {why}")


@dataclass
class Programs:
    """A kit or a build folder, and how its programs are run."""
    folder: Path
    own_gcc: bool = False
    tried: list = field(default_factory=list)

    def library_path(self):
        folders = [self.folder / "lib", self.folder / "lib" / "needed"]
        if self.own_gcc:
            folders.append(self.folder / "lib" / "gcc")
        return ":".join(str(folder) for folder in folders)

    def environment(self):
        given = os.environ.get("LD_LIBRARY_PATH")
        return {"LD_LIBRARY_PATH": self.library_path() + (f":{given}" if given else "")}

    def has(self, name):
        return (self.folder / "bin" / name).exists()

    def why_not(self):
        """Why the programs do not run on this machine, or None."""
        if not self.has("weft_info"):
            return f"{self.folder} has no bin/weft_info"
        try:
            done = subprocess.run([str(self.folder / "bin" / "weft_info"), "--version"], capture_output=True,
                                  text=True, timeout=30, env={**os.environ, **self.environment()}, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        return None if done.returncode == 0 else (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def find(folders):
    """The first of `folders` whose programs run here. KitError says of each why not."""
    tried = []
    for folder in folders:
        for own_gcc in (False, True):
            programs = Programs(folder.resolve(), own_gcc)
            why = programs.why_not()
            if not why:
                return programs
            tried.append(f"{folder}{', with its own C++ runtime' if own_gcc else ''}: {why}")
    raise KitError("; ".join(dict.fromkeys(tried)))
