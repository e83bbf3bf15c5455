#!/usr/bin/env python3
"""Backends of torch.distributed in turns, in one program: Weft and gloo on CPU tensors, reported as perf/compare.py does.

    perf/torch_compare.py [-n 2] [-b 4] [-e 256M] [--asynchronous] [--rounds 3] [--json FILE] [--html FILE]
    perf/torch_compare.py --steps                  steps of a small model, too: DDP, FSDP2
    perf/torch_compare.py --steps --cluster        ranks on nodes with 500 Mbit/s each; needs root
    perf/torch_compare.py -n 4 --steps --cluster --nodes 2     two ranks a node, and FSDP2 inside of nodes (HSDP), too

Needs a Python with torch and weft_torch. For each size and collective the backends take turns in rounds, so that other
load on the machine falls on both. A time is the mean of back-to-back calls on the slowest rank, then the median over
rounds. Sizes are bytes of the larger buffer.
"""
import argparse
import datetime
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
import typing
import warnings

from comparison import results as results_of
from comparison.page import page_of
from comparison.scenarios import COLLECTIVES, ELEMENT, RATE_BITS, exact_size, parse_size
from comparison.table import text_of

SYSTEMS = {"Weft": "weft", "Gloo": "gloo"}
CLUSTER = pathlib.Path(__file__).resolve().parents[1] / "scripts" / "cluster.sh"
WIDTH, LAYERS = 512, 24  # of the model whose steps are measured
LEAST_SHARE = 0.1  # of a step; what is hidden of a shorter communication drowns in the differences between steps


def calls(dist, torch, collective, size, ranks):
    """Function of (group, asynchronous) on float32 buffers, the larger of `size` bytes."""
    whole = torch.ones(size // ELEMENT)
    other = torch.ones(size // ELEMENT if collective == "alltoall" else max(1, size // ELEMENT // ranks))
    largest = dist.ReduceOp.MAX  # values stay what they are
    return {
        "all_reduce": lambda group, later: dist.all_reduce(whole, largest, group=group, async_op=later),
        "all_gather": lambda group, later: dist.all_gather_into_tensor(whole, other, group=group, async_op=later),
        "reduce_scatter": lambda group, later: dist.reduce_scatter_tensor(other, whole, largest, group=group, async_op=later),
        "alltoall": lambda group, later: dist.all_to_all_single(other, whole, group=group, async_op=later),
        "broadcast": lambda group, later: dist.broadcast(whole, 0, group=group, async_op=later),
    }[collective]


def mesh_of_nodes(dist, group, backend, ranks, nodes):
    """The mesh of HSDP: rows are nodes, whose ranks share one copy of the state. None: nodes of one rank, or one node."""
    from torch.distributed.device_mesh import DeviceMesh
    if not 1 < nodes < ranks:
        return None
    each = ranks // nodes
    rows = [list(range(node * each, (node + 1) * each)) for node in range(nodes)]
    columns = [list(column) for column in zip(*rows)]
    across, inside = ([dist.new_group(members, backend=backend) for members in lines] for lines in (columns, rows))
    rank = dist.get_rank(group)
    return DeviceMesh.from_group([across[rank % each], inside[rank // each]], "cpu", mesh=rows,
                                 mesh_dim_names=("replicate", "shard"))


def model_steps(dist, torch, group, arguments, nodes_mesh):
    """{name: function} of one step: with DDP, with DDP but no communication, the communication alone, that of DDP's last
    bucket, with FSDP2, with HSDP if there is a mesh of nodes; these two also with weft_torch.overlap().

    DDP copies gradients into buckets also where it sends nothing, so that a difference is communication alone.
    """
    from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel
    from weft_torch import overlap

    def layers():
        return torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])

    inputs = torch.randn(arguments.batch, WIDTH)
    replicated, silent = (DistributedDataParallel(layers(), process_group=group, bucket_cap_mb=arguments.bucket_mb)
                          for _ in range(2))
    silent.register_comm_hook(None, noop_hook)
    for _ in range(3):  # DDP makes its buckets anew after the first step, and then tells their sizes
        replicated(inputs).sum().backward()
    *_, last_bytes = replicated._get_ddp_logging_data()["rebuilt_bucket_sizes"].split(",")
    last_bucket = torch.ones(int(last_bytes) // ELEMENT)

    def shard(mesh, change=lambda model: model):
        model = layers()
        for layer in model:
            fully_shard(layer, mesh=mesh)
        change(fully_shard(model, mesh=mesh))

        def step():
            model.zero_grad()
            model(inputs).sum().backward()
        return step

    meshes = {"FSDP2": DeviceMesh.from_group(group, "cpu"), "HSDP": nodes_mesh}
    made = {name: mesh for name, mesh in meshes.items() if mesh is not None}
    gradients = torch.ones(LAYERS * (WIDTH * WIDTH + WIDTH))
    return {"DDP": lambda: replicated(inputs).sum().backward(), "alone": lambda: silent(inputs).sum().backward(),
            "communication": lambda: dist.all_reduce(gradients, group=group),
            "last bucket": lambda: dist.all_reduce(last_bucket, group=group),
            **{name: shard(mesh) for name, mesh in made.items()},
            **{f"{name} overlapped": shard(mesh, overlap) for name, mesh in made.items()}}


class Mean(typing.NamedTuple):
    us: float
    cpu_us: float  # of the process
    transfer_us: float  # the same without the caller's thread
    count: int


def mean_time(call, seconds, greatest):
    """The mean of a call over about `seconds`; all ranks make the same number of calls."""
    begin = time.perf_counter()
    call()
    count = int(greatest(max(1.0, min(2000.0, seconds / max(time.perf_counter() - begin, 1e-6)))))
    greatest(0.0)
    begin, cpu, own = time.perf_counter(), time.process_time(), time.thread_time()
    for _ in range(count):
        call()
    cpu, own = time.process_time() - cpu, time.thread_time() - own
    return Mean(greatest((time.perf_counter() - begin) / count) * 1e6, cpu / count * 1e6, (cpu - own) / count * 1e6, count)


class Member:
    """One rank."""

    def __init__(self, rank, arguments, folder):
        os.environ["OMP_NUM_THREADS"] = "1"
        import torch
        import torch.distributed as dist
        torch.set_num_threads(1)
        warnings.filterwarnings("ignore", category=FutureWarning)  # 2.13 has new names, older versions have the old ones
        self.torch, self.dist, self.arguments = torch, dist, arguments
        dist.init_process_group("weft", store=dist.FileStore(folder + "/store", arguments.ranks), rank=rank,
                                world_size=arguments.ranks)
        self.groups = {name: dist.new_group(backend=backend) for name, backend in SYSTEMS.items()}
        self.control = dist.new_group(backend="weft")

    def greatest(self, value):
        tensor = self.torch.tensor([value], dtype=self.torch.float64)
        self.dist.all_reduce(tensor, self.dist.ReduceOp.MAX, group=self.control)
        return tensor.item()

    def collectives(self):
        """Launches, as perf/compare.py has them."""
        rows = {}
        for number in range(self.arguments.rounds):
            for collective in self.arguments.collectives.split(","):
                for size in sizes_of(self.arguments, collective):
                    call = calls(self.dist, self.torch, collective, size, self.arguments.ranks)
                    for name, group in self.groups.items():
                        def one():
                            work = call(group, self.arguments.asynchronous)
                            if work is not None:
                                work.wait()
                        mean = mean_time(one, self.arguments.seconds, self.greatest)
                        rows.setdefault((number, collective, name), []).append(
                            {"size": size, "us": mean.us, "cpu_us": mean.cpu_us, "iterations": mean.count, "algorithm": ""})
        return [{"collective": collective, "system": name, "rows": its} for (_, collective, name), its in rows.items()]

    def steps(self):
        """{system: {step: µs}}, medians over rounds; "transfers" is the CPU time of a DDP step's transfers."""
        times = {name: {} for name in SYSTEMS}
        made = {}
        for name, group in self.groups.items():
            mesh = mesh_of_nodes(self.dist, group, SYSTEMS[name], self.arguments.ranks, self.arguments.nodes)
            made[name] = model_steps(self.dist, self.torch, group, self.arguments, mesh)
        for _ in range(self.arguments.rounds):
            for name, functions in made.items():
                for step, function in functions.items():
                    mean = mean_time(function, max(1.0, self.arguments.seconds), self.greatest)
                    times[name].setdefault(step, []).append(mean.us)
                    if step == "DDP":
                        times[name].setdefault("transfers", []).append(self.greatest(mean.transfer_us))
        return {name: {step: statistics.median(us) for step, us in its.items()} for name, its in times.items()}


def sizes_of(arguments, collective):
    size, sizes = arguments.begin, []
    while size < arguments.end:
        sizes.append(size)
        size *= arguments.factor
    sizes.append(arguments.end)
    return sorted({exact_size(collective, each, arguments.ranks) for each in sizes})


def member_main(rank, arguments, folder):
    member = Member(rank, arguments, folder)
    measured = {"launches": member.collectives(), "steps": member.steps() if arguments.steps else {}}
    if rank == 0:
        pathlib.Path(folder, "measured.json").write_text(json.dumps(measured))
    member.dist.destroy_process_group()


def measure(arguments, folder):
    if not arguments.cluster:
        import torch.multiprocessing as multiprocessing
        multiprocessing.spawn(member_main, (arguments, folder), arguments.ranks)
    else:
        environment = {"CLUSTER": "wefttorch", **os.environ, "GLOO_SOCKET_IFNAME": "eth0", "WEFT_RECORDER_DIR": "none"}
        subprocess.run([CLUSTER, "up", str(arguments.nodes), f"{RATE_BITS / 1e6:.0f}mbit"], check=True, env=environment)
        try:
            subprocess.run([CLUSTER, "run", str(arguments.ranks), sys.executable, __file__, *sys.argv[1:], "--member", folder],
                           check=True, env=environment)
        finally:
            subprocess.run([CLUSTER, "down"], check=True, env=environment)
    return json.loads(pathlib.Path(folder, "measured.json").read_text())


def hidden_part(us):
    """What a sentence says of the communication that is hidden behind a DDP step, and of what cannot be."""
    whole = us["communication"]
    if whole < LEAST_SHARE * us["DDP"]:
        return f"less than {100 * LEAST_SHARE:.0f} % of the step, too short to tell how much of it is hidden"
    percent = {name: 100 * part / whole for name, part in {**us, "shown": us["DDP"] - us["alone"]}.items()}
    return (f"of which {100 - percent['shown']:.0f} % is hidden. The last bucket, behind which there is no arithmetic, takes "
            f"{percent['last bucket']:.1f} % of it, and the transfers of a step, beside the core's arithmetic, CPU time of "
            f"{percent['transfers']:.1f} %")


def step_notes(steps, arguments):
    """Sentences about steps of the model."""
    for name, us in steps.items():
        ms = {step: f"{value / 1e3:.1f} ms" for step, value in us.items()}
        sharded = "; ".join(f"of {kind} {ms[kind]}, with overlap() {ms[f'{kind} overlapped']}"
                            for kind in ("FSDP2", "HSDP") if kind in ms)
        yield (f"{name}, {LAYERS} layers of {WIDTH} × {WIDTH}, batch {arguments.batch}, buckets of "
               f"{arguments.bucket_mb:g} MiB: a DDP step takes {ms['DDP']}, without "
               f"communication {ms['alone']}; the communication alone takes {ms['communication']}, {hidden_part(us)}. "
               f"A step {sharded}.")


def results(arguments, measured):
    import torch
    each = arguments.ranks // arguments.nodes
    scenario = f"cluster{arguments.nodes}{f'x{each}' if each > 1 else ''}" if arguments.cluster else f"shm{arguments.ranks}"
    notes = [f"Calls of torch.distributed {torch.__version__} on CPU tensors, "
             f"{'async_op=True and wait()' if arguments.asynchronous else 'synchronous'}; one thread a rank."]
    return results_of.Results({
        "version": results_of.VERSION, "created": f"{datetime.datetime.now():%Y-%m-%d %H:%M}",
        "command": shlex.join(["perf/torch_compare.py", *sys.argv[1:]]), "machine": results_of.machine(),
        "versions": {"torch": torch.__version__}, "scenarios": [scenario], "startup": [],
        "notes": {"": notes, scenario: list(step_notes(measured["steps"], arguments))},
        "launches": [{"scenario": scenario, **launch} for launch in measured["launches"]]})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--ranks", type=int, default=2)
    parser.add_argument("-b", "--begin", type=lambda text: parse_size("--begin", text), default=4, help="smallest size (4)")
    parser.add_argument("-e", "--end", type=lambda text: parse_size("--end", text), default=256 << 20,
                        help="largest size (256M)")
    parser.add_argument("-f", "--factor", type=int, default=16, help="between sizes (16)")
    parser.add_argument("--collectives", default=",".join(COLLECTIVES), help=f"with commas ({','.join(COLLECTIVES)})")
    parser.add_argument("--asynchronous", action="store_true", help="async_op=True, then wait()")
    parser.add_argument("--seconds", type=float, default=0.2, help="of one measurement (0.2)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", action="store_true", help="steps of a small model, too")
    parser.add_argument("--batch", type=int, default=2048,
                        help="of the model, for a rank (2048); a smaller one has more communication for its arithmetic")
    parser.add_argument("--bucket-mb", type=float, default=1, help="MiB of a bucket of DDP (1)")
    parser.add_argument("--cluster", action="store_true", help="ranks on nodes with 500 Mbit/s each")
    parser.add_argument("--nodes", type=int, help="of the cluster; must divide the ranks (as many as ranks)")
    parser.add_argument("--json", type=pathlib.Path, help="write the results to this file")
    parser.add_argument("--html", type=pathlib.Path, help="write a page with charts to this file")
    parser.add_argument("--member", help=argparse.SUPPRESS)  # folder of the run that this rank of a cluster belongs to
    arguments = parser.parse_args()
    if arguments.nodes and not arguments.cluster:
        parser.error("--nodes needs --cluster")
    arguments.nodes = arguments.nodes or (arguments.ranks if arguments.cluster else 1)
    if arguments.nodes < 1 or arguments.ranks % arguments.nodes:
        parser.error(f"--nodes is {arguments.nodes}, must divide the {arguments.ranks} ranks")
    if arguments.member:
        member_main(int(os.environ["WEFT_RANK"]), arguments, arguments.member)
        return
    with tempfile.TemporaryDirectory() as folder:
        found = results(arguments, measure(arguments, folder))
    if arguments.json:
        found.save(arguments.json)
    if arguments.html:
        arguments.html.write_text(page_of(found))
    print(text_of(found))


if __name__ == "__main__":
    main()
