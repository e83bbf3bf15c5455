"""The package: what an sdist has, where Weft comes from, and the wheel that carries it."""
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

import pytest

from launch import ROOT

PLUGIN = ROOT / "plugins" / "torch"


@pytest.fixture
def find_weft():
    spec = importlib.util.spec_from_file_location("find_weft", PLUGIN / "find_weft.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_prefix(folder):
    """A folder that looks like an installed Weft."""
    (folder / "include" / "weft").mkdir(parents=True)
    (folder / "include" / "weft" / "weft.h").touch()
    (folder / "lib").mkdir()
    (folder / "lib" / "libweft.so").touch()
    return str(folder / "include"), str(folder / "lib")


def test_a_home_without_weft_is_refused(find_weft, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_WEFT_HOME", str(tmp_path))
    with pytest.raises(SystemExit, match="TORCH_WEFT_HOME is .*make install"):
        find_weft.find()


def test_weft_is_the_homes_then_the_trees_then_pkg_configs(find_weft, tmp_path, monkeypatch):
    home, tree, installed = (make_prefix(tmp_path / name) for name in ("home", "tree", "installed"))
    (tmp_path / "weft.pc").write_text(f"includedir={installed[0]}\nlibdir={installed[1]}\nName: weft\nDescription: -\n"
                                      "Version: 0.1.0\n")
    monkeypatch.setenv("PKG_CONFIG_PATH", str(tmp_path))
    monkeypatch.setenv("TORCH_WEFT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(find_weft, "sources", lambda: tmp_path / "tree")
    assert find_weft.find() == (*home, False)
    monkeypatch.delenv("TORCH_WEFT_HOME")
    assert find_weft.find() == (*tree, False)
    (tmp_path / "tree" / "lib" / "libweft.so").unlink()
    if shutil.which("pkg-config"):
        assert find_weft.find() == (*installed, False)


def test_weft_that_is_nowhere_is_built_or_asked_for(find_weft, tmp_path, monkeypatch):
    monkeypatch.delenv("TORCH_WEFT_HOME", raising=False)
    monkeypatch.setattr(find_weft, "from_pkg_config", lambda: None)
    monkeypatch.setattr(find_weft, "from_folder", lambda folder: None)
    monkeypatch.setattr(find_weft, "build", lambda tree, folder: ("built", tree))
    monkeypatch.setattr(find_weft, "sources", lambda: tmp_path)
    assert find_weft.find() == ("built", tmp_path)
    monkeypatch.setattr(find_weft, "sources", lambda: None)
    with pytest.raises(SystemExit, match="make install"):
        find_weft.find()


def test_a_build_that_fails_says_what_it_takes(find_weft, tmp_path):
    with pytest.raises(SystemExit, match="libfabric.*TORCH_WEFT_HOME"):
        find_weft.build(tmp_path, tmp_path / "build")


def build_in(site):
    """setup.py's build with setuptools and what else is in the folder `site`: -S and -I hide installed packages."""
    setuptools = pathlib.Path(importlib.util.find_spec("setuptools").origin).parent
    (site / "setuptools").symlink_to(setuptools)
    if (setuptools.parent / "_distutils_hack").exists():
        (site / "_distutils_hack").symlink_to(setuptools.parent / "_distutils_hack")
    program = ("import sys, sysconfig; sys.path.insert(0, sys.argv[1]); sysconfig.get_path = lambda name: sys.argv[1]; "
               "sys.argv = ['setup.py', 'build_ext', '--build-temp', sys.argv[1]]; exec(open('setup.py').read())")
    return subprocess.run([sys.executable, "-I", "-S", "-c", f"__file__ = {str(PLUGIN / 'setup.py')!r}; {program}", site],
                          cwd=PLUGIN, capture_output=True, text=True)


def test_without_torch_a_build_says_what_to_type(tmp_path):
    run = build_in(tmp_path)
    assert run.returncode != 0 and "pip install torch" in run.stderr, run.stdout + run.stderr


def test_with_a_torch_that_is_too_old_a_build_says_what_to_type(tmp_path):
    (tmp_path / "torch.py").write_text('__version__ = "2.10.1+cpu"\n')
    run = build_in(tmp_path)
    assert run.returncode != 0 and run.stderr.strip() == ("weft-torch needs torch 2.11 or newer, but this is torch 2.10.1+cpu; "
                                                          "type: pip install torch==2.13.0, then again."), run.stdout + run.stderr


def test_an_sdist_has_what_it_takes_to_build_weft(tmp_path):
    subprocess.run([sys.executable, "setup.py", "-q", "egg_info", "--egg-base", tmp_path, "sdist", "-d", tmp_path],
                   cwd=PLUGIN, check=True, capture_output=True)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path)
    unpacked = next(path for path in tmp_path.iterdir() if path.is_dir() and (path / "setup.py").exists())
    assert (unpacked / "csrc" / "backend.cc").exists() and (unpacked / "find_weft.py").exists()
    code = {path.relative_to(ROOT) for path in (ROOT / "src" / "weft").rglob("*") if path.is_file()}
    assert code == {path.relative_to(unpacked / "weft") for path in (unpacked / "weft" / "src").rglob("*") if path.is_file()}
    if shutil.which("cmake"):
        run = subprocess.run(["cmake", "-S", unpacked / "weft", "-B", tmp_path / "build", "-DCMAKE_BUILD_TYPE=Release",
                              "-DWEFT_TESTS=OFF", "-DWEFT_PERF=OFF", "-DLOOM=OFF"], capture_output=True, text=True)
        assert run.returncode == 0, run.stderr


# A folder of its own comes first, so the wheel's package is found and not the installed one.
ALL_REDUCE = """
import sys
import torch, torch.distributed as dist, weft_torch
from weft_torch import _built_for
dist.init_process_group("weft")
tensor = torch.ones(2)
dist.all_reduce(tensor)
libraries = {line.split()[-1] for line in open("/proc/self/maps") if "libweft.so" in line}
print(f"{tensor[0].item()} from {weft_torch.__file__} with {libraries}", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_a_wheel_carries_weft(tmp_path):
    from launch import torchrun
    import torch
    made = subprocess.run([ROOT / "scripts" / "torch_wheel.sh", tmp_path], capture_output=True, text=True,
                          env={**os.environ, "PYTHON": sys.executable})
    assert made.returncode == 0, made.stdout + made.stderr
    series = ".".join(torch.__version__.split("+")[0].split(".")[:2])
    wheel, = tmp_path.glob("*.whl")
    assert f"+torch{series}-" in wheel.name
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", tmp_path / "site", wheel],
                   check=True)
    (tmp_path / "program.py").write_text(ALL_REDUCE)
    run = torchrun(tmp_path / "program.py", environment={"PYTHONPATH": str(tmp_path / "site")})
    assert run.returncode == 0, run.stderr
    assert run.stdout.count(f"2.0 from {tmp_path}/site/weft_torch/__init__.py") == 2, run.stdout
    assert f"{tmp_path}/site/weft_torch/lib/libweft.so.0" in run.stdout, run.stdout
