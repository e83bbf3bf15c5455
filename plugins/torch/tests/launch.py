"""Programs under torchrun, as a user starts them."""
import os
import pathlib
import socket
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples" / "torch"


def _environment(extra):
    tools = str(pathlib.Path(sys.executable).parent)  # ninja, where it was installed beside this Python
    return {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{tools}:{os.environ['PATH']}", **(extra or {})}


def torchrun(*arguments, ranks=2, environment=None, seconds=300):
    return subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks),
                           *map(str, arguments)], env=_environment(environment), capture_output=True, text=True,
                          timeout=seconds)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def torchrun_on_nodes(*arguments, nodes=2, environment=None, seconds=120):
    """One rank on each of some pretended nodes, each with a torchrun of its own: their outputs, stdout and stderr as one."""
    port = free_port()
    runs = [subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", f"--nnodes={nodes}", f"--node-rank={node}", "--nproc-per-node=1",
         "--master-addr=127.0.0.1", f"--master-port={port}", *map(str, arguments)],
        env=_environment({"WEFT_HOSTID": f"node-{node}", **(environment or {})}), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True) for node in range(nodes)]
    try:
        outputs = [run.communicate(timeout=seconds)[0] for run in runs]
    finally:
        for run in runs:
            run.kill()
    assert all(run.returncode == 0 for run in runs), "\n".join(outputs)
    return outputs


def losses(output):
    """The numbers that end the lines "step ..."."""
    return [float(line.split()[-1]) for line in output.splitlines() if line.startswith("step")]
