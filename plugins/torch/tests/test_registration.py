"""How programs come to Weft: without an import, instead of gloo, as the default; and the examples."""
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROGRAM = """
import sys, torch, torch.distributed as dist
dist.init_process_group(*sys.argv[1:])
tensor = torch.ones(3)
dist.all_reduce(tensor)
backend = dist.group.WORLD._get_backend(torch.device("cpu"))
sub = dist.new_group(list(range(dist.get_world_size())))
dist.all_reduce(tensor, group=sub)
names = backend.name(), sub._get_backend(torch.device("cpu")).name()
print(f"rank {dist.get_rank()}: {tensor[0].item()} {names[0]} {names[1]}", flush=True)
if dist.get_backend() == "gloo":
    dist.monitored_barrier()
dist.destroy_process_group()
"""


def torchrun(*arguments, ranks=2, environment=None):
    return subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks),
                           *map(str, arguments)], env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
                          capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("arguments, environment", [
    (["weft"], {}),
    (["cpu:weft"], {}),
    (["gloo"], {"TORCH_WEFT_REPLACE": "gloo"}),
    ([], {"TORCH_WEFT_DEFAULT": "cpu"}),
    (["weft"], {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}),
], ids=["by-name", "by-device", "instead-of-gloo", "default", "debug-detail"])
def test_torchrun_without_an_import(tmp_path, arguments, environment):
    (tmp_path / "program.py").write_text(PROGRAM)
    run = torchrun(tmp_path / "program.py", *arguments, environment=environment)
    assert run.returncode == 0, run.stderr
    name = "" if environment.get("TORCH_DISTRIBUTED_DEBUG") else " weft weft"
    for rank in range(2):
        assert f"rank {rank}: 4.0{name}" in run.stdout, run.stdout + run.stderr


def test_replace_and_make_default_refuse_what_they_do_not_know():
    import weft_torch
    with pytest.raises(ValueError, match="gloo"):
        weft_torch.replace("nccl")
    with pytest.raises(ValueError, match="cpu"):
        weft_torch.make_default("cuda")


def test_an_extension_for_another_torch_says_what_to_type(monkeypatch):
    from weft_torch import _built_for, _extension
    monkeypatch.setattr(_built_for, "TORCH", "2.6.0")
    _extension.extension.cache_clear()
    with pytest.raises(ImportError, match="built for torch 2.6.0, but this is torch .*pip install"):
        _extension.extension()
    _extension.extension.cache_clear()


def test_weft_that_is_not_found_says_what_to_type(tmp_path):
    run = subprocess.run([sys.executable, "setup.py", "--version"], cwd=ROOT / "plugins" / "torch",
                         env={**os.environ, "TORCH_WEFT_HOME": str(tmp_path)}, capture_output=True, text=True)
    assert run.returncode != 0 and "TORCH_WEFT_HOME" in run.stderr and "make" in run.stderr


@pytest.mark.parametrize("example, arguments, ranks", [
    ("data_parallel.py", [], 2),
    ("sharded_data_parallel.py", [], 2),
    ("sharded_data_parallel.py", ["--shards", "1"], 2),
    ("tensor_parallel.py", [], 2),
])
def test_example(example, arguments, ranks):
    run = torchrun(ROOT / "examples" / "torch" / example, *arguments, ranks=ranks)
    assert run.returncode == 0, run.stderr
    losses = [float(line.split()[-1]) for line in run.stdout.splitlines() if line.startswith("step")]
    assert len(losses) >= 3 and losses[-1] < losses[0], run.stdout
