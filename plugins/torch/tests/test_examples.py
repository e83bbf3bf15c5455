"""The examples, on two ranks; those of a framework that is not installed are skipped."""
import importlib.util
import subprocess
import sys

import pytest

from launch import EXAMPLES, ROOT, losses, torchrun, torchrun_on_nodes


def needs(*modules):
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed; make test-torch installs it")


def run_example(name, *arguments, **named):
    run = torchrun(EXAMPLES / name, *arguments, **named)
    assert run.returncode == 0, run.stdout + run.stderr
    found = losses(run.stdout)
    assert len(found) >= 3 and found[-1] < found[0], run.stdout
    return run.stdout


@pytest.mark.parametrize("name, arguments", [
    ("data_parallel.py", []),
    ("sharded_data_parallel.py", []),
    ("sharded_data_parallel.py", ["--shards", "1"]),
    ("tensor_parallel.py", []),
    ("pipeline_parallel.py", []),
])
def test_example_of_torch(name, arguments):
    run_example(name, *arguments)


def test_accelerate():
    needs("accelerate")
    run_example("accelerate_regression.py")


def test_lightning():
    needs("lightning")
    run_example("lightning_regression.py")


def test_trainer_fine_tunes_bert(tmp_path):
    needs("transformers", "accelerate")
    made = subprocess.run([sys.executable, ROOT / "examples" / "bert-categories" / "make_data.py", tmp_path],
                          capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"no texts: {made.stderr.strip()}")
    output = run_example("trainer_bert.py", tmp_path, "--steps", "100", seconds=400)
    assert "accuracy" in output


def test_deepspeed_zero3():
    needs("deepspeed")
    # DeepSpeed keeps what it compiles; beside this Python, so that another torch has its own.
    run_example("deepspeed_zero3.py", seconds=600,
                environment={"DS_ACCELERATOR": "cpu", "TORCH_EXTENSIONS_DIR": f"{sys.prefix}/torch_extensions"})


def test_torchrun_on_two_pretended_nodes():
    outputs = torchrun_on_nodes(EXAMPLES / "data_parallel.py", environment={"WEFT_LOG": "info"})
    assert "2 ranks on 2 nodes" in "".join(outputs), outputs
    found = losses("".join(outputs))
    assert len(found) >= 3 and found[-1] < found[0], outputs


# Named by the framework itself, and taken all the same.
NAMES_GLOO = """
import accelerate, torch, torch.distributed as dist
state = accelerate.PartialState(cpu=True)
print(f"{state.backend} is {dist.group.WORLD._get_backend(torch.device('cpu')).name()}", flush=True)
print(accelerate.utils.gather(torch.tensor([state.process_index + 1])).tolist(), flush=True)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
model(torch.ones(1, 2)).sum().backward()
dist.destroy_process_group()
"""


def test_a_framework_that_names_gloo_gets_weft(tmp_path):
    needs("accelerate")
    (tmp_path / "program.py").write_text(NAMES_GLOO)
    run = torchrun(tmp_path / "program.py", environment={"TORCH_WEFT_REPLACE": "gloo"})
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("gloo is weft") == 2 and run.stdout.count("[1, 2]") == 2, run.stdout
