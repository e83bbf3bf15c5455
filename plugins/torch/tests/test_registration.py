"""How programs come to Weft: without an import, instead of gloo, as the default, beside NCCL."""
import logging
import os
import subprocess
import sys

import pytest

from launch import torchrun

PROGRAM = """
import sys, torch, torch.distributed as dist
dist.init_process_group(*sys.argv[1:])
tensor = torch.ones(3)
dist.all_reduce(tensor)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
model(torch.ones(1, 2)).sum().backward()
backend = dist.group.WORLD._get_backend(torch.device("cpu"))
sub = dist.new_group(list(range(dist.get_world_size())))
dist.all_reduce(tensor, group=sub)
names = backend.name(), sub._get_backend(torch.device("cpu")).name()
print(f"rank {dist.get_rank()}: {tensor[0].item()} {names[0]} {names[1]}", flush=True)
if dist.get_backend() == "gloo":
    dist.monitored_barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("arguments, environment", [
    (["weft"], {}),
    (["cpu:weft"], {}),
    (["gloo"], {"TORCH_WEFT_REPLACE": "gloo"}),
    (["cpu:gloo"], {"TORCH_WEFT_REPLACE": "gloo"}),
    ([], {"TORCH_WEFT_REPLACE": "gloo"}),
    ([], {"TORCH_WEFT_DEFAULT": "cpu"}),
    (["weft"], {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}),
], ids=["by-name", "by-device", "instead-of-gloo", "instead-of-gloo-by-device", "instead-of-the-default", "default",
        "debug-detail"])
def test_torchrun_without_an_import(tmp_path, arguments, environment):
    (tmp_path / "program.py").write_text(PROGRAM)
    run = torchrun(tmp_path / "program.py", *arguments, environment=environment)
    assert run.returncode == 0, run.stderr
    for rank in range(2):
        assert f"rank {rank}: 4.0 weft weft" in run.stdout, run.stdout + run.stderr


def test_a_name_that_cannot_be_replaced_is_said_with_its_variable():
    run = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, text=True, timeout=120,
                         env={**os.environ, "TORCH_WEFT_REPLACE": "glo"})
    assert run.returncode != 0
    assert 'TORCH_WEFT_REPLACE names "glo"' in run.stderr, run.stderr


def test_ranks_that_wait_for_a_late_one_log_nothing(tmp_path):
    """torch logs every wait in its store that ends in vain."""
    (tmp_path / "program.py").write_text(
        'import os, time, torch.distributed as dist\n'
        'time.sleep(0.5 if os.environ["RANK"] == "0" else 0)\n'
        'dist.init_process_group("weft")\n'
        'dist.destroy_process_group()\n')
    run = torchrun(tmp_path / "program.py")
    assert run.returncode == 0, run.stderr
    assert "timed out" not in run.stderr


def test_replace_and_make_default_refuse_what_they_do_not_know():
    import weft_torch
    with pytest.raises(ValueError, match="gloo"):
        weft_torch.replace("nccl")
    with pytest.raises(ValueError, match="cpu"):
        weft_torch.make_default("xpu")


@pytest.mark.parametrize("name, value", [("TORCH_WEFT_REPLACE", "glo"), ("TORCH_WEFT_DEFAULT", "gpu")])
def test_a_wrong_variable_is_named(monkeypatch, name, value):
    import weft_torch
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f'{name} names "{value}": .*set {name}='):
        weft_torch.autoload()


def test_an_extension_for_another_torch_says_what_to_type(monkeypatch):
    from weft_torch import _built_for, _extension
    monkeypatch.setattr(_built_for, "TORCH", "2.6.0")
    _extension.extension.cache_clear()
    with pytest.raises(ImportError, match="built for torch 2.6.0, but this is torch .*pip install"):
        _extension.extension()
    _extension.extension.cache_clear()


def test_another_backend_of_that_name_is_named(monkeypatch):
    import torch.distributed as dist
    import weft_torch

    def creator(*arguments):
        raise AssertionError("not called")

    creator.__module__ = "someone.elses"
    monkeypatch.setitem(dist.Backend._plugins, "WEFT", dist.Backend._BackendPlugin(creator, True))
    with pytest.raises(RuntimeError, match="someone.elses has registered another backend .*uninstall"):
        weft_torch.register()


def test_without_torch_the_package_says_what_to_type():
    import subprocess
    import sys
    program = "import sys; sys.modules['torch'] = None; import weft_torch"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "ModuleNotFoundError: weft_torch is a backend of torch" in run.stderr and "pip install torch" in run.stderr, run.stderr


AUTO = """
import logging, os, torch, weft_torch
logging.basicConfig()
torch.cuda.is_available, torch.cuda.current_device = lambda: True, lambda: 0
torch.version.cuda = "13.0"
assert weft_torch.auto() == weft_torch.auto() == "weft"
assert os.environ["CUDA_MODULE_LOADING"] == "EAGER" and os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] == "32"
"""


def test_auto_is_weft_where_the_driver_has_what_weft_needs():
    import os
    import subprocess
    import sys

    import stand_in
    environment = {**os.environ, **stand_in.environment()}
    run = subprocess.run([sys.executable, "-c", AUTO], env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("Weft serves tensors of cpu and cuda.") == 1, run.stderr


def test_auto_is_weft_beside_nccl(monkeypatch, caplog):
    import torch
    import torch.distributed as dist
    import weft_torch
    from weft_torch import _registration
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert weft_torch.auto() == "weft"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)  # for which there is no driver here
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    _registration._say.cache_clear()
    with caplog.at_level(logging.WARNING, logger="weft_torch"):
        assert [weft_torch.auto() for _ in range(3)] == ["cpu:weft,cuda:nccl"] * 3
    assert len(caplog.records) == 1 and "NCCL" in caplog.text and "driver" in caplog.text
    monkeypatch.setattr(dist, "is_nccl_available", lambda: False)
    assert weft_torch.auto() == "weft"
    assert "refused" in caplog.text
