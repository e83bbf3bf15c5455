"""The systems compared: Weft and each peer that is installed, how they are built, launched and read."""
from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile

from .scenarios import Scenario, exact_size

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PEERS = ROOT / "perf/peers"
CLUSTER = str(ROOT / "scripts/cluster.sh")
WARMUP = 5
TOLD_ERROR_CHARS = 300


class LaunchError(Exception):
    """A launch failed or took too long; the text says why, in a line. `output` is what it had printed."""

    def __init__(self, text: str, output: str = "") -> None:
        super().__init__(text)
        self.output = output


@dataclasses.dataclass(frozen=True)
class Work:
    """What one launch measures. Limits are of time: of a row, and of the launch."""
    scenario: Scenario
    collective: str
    sizes: tuple[int, ...]
    time_ms: float
    limit_s: float

    def exact(self) -> dict[int, int]:
        """The sizes as they can be measured, each with the size that was asked for."""
        pairs: dict[int, int] = {}
        for size in self.sizes:
            pairs.setdefault(exact_size(self.collective, size, self.scenario.ranks), size)
        return pairs


@dataclasses.dataclass
class Row:
    """One measurement: times are means over calls and ranks."""
    size: int
    us: float
    cpu_us: float
    iterations: int
    algorithm: str = ""
    predicted_us: float | None = None  # by the system itself


def execute(command: list, environment: dict[str, str] | None = None, timeout_s: float = 120) -> str:
    """Runs a command in a process group of its own and returns what it printed; the group ends with it."""
    words = [str(word) for word in command]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                               env={**os.environ, **(environment or {})}, start_new_session=True)
    try:
        out, err = process.communicate(timeout=timeout_s)
    except BaseException as error:
        out, err = end(process)
        if isinstance(error, subprocess.TimeoutExpired):
            raise LaunchError(f"stopped after {timeout_s:.0f} s", out) from None
        raise
    if process.returncode != 0:
        told = " ".join((err or out).split())
        if len(told) > TOLD_ERROR_CHARS:
            told = "… " + told[-TOLD_ERROR_CHARS:]
        raise LaunchError(f"exit code {process.returncode}: {told}", out)
    return out


def end(process: subprocess.Popen) -> tuple[str, str]:
    for number in (signal.SIGTERM, signal.SIGKILL):  # launchers tidy up when asked
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        try:
            return process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            continue
    return "", ""


class Weft:
    name = "Weft"
    threads = True  # whether ranks can be threads of one process

    def __init__(self, build: pathlib.Path) -> None:
        self.bin = build / "bin"
        self.caches = tempfile.TemporaryDirectory(prefix="weft_compare_tuning_")

    def launcher(self, scenario: Scenario) -> list:
        if scenario.is_cluster:
            return [CLUSTER, "run", scenario.ranks]
        return [self.bin / "weft_run", "-n", scenario.ranks, "--no-label"]

    def environment(self, scenario: Scenario) -> dict[str, str]:
        """Of a sweep. Scenarios look alike to the library, whose first launch in each measures the machine anew."""
        tcp = {"WEFT_SHM": "0", "WEFT_NET": "tcp"} if scenario.kind == "tcp" else {}
        return tcp | {"WEFT_TUNE_CACHE": f"{self.caches.name}/{scenario.name}"}

    def sweep(self, work: Work, settings: dict[str, str] | None = None) -> list[Row]:
        """`settings` are environment variables besides those of the scenario."""
        # Peers have Broadcast in place only; out of place, the root would copy its buffer besides.
        half = "in_place" if work.collective == "broadcast" else "out_of_place"
        exact = work.exact()
        with tempfile.TemporaryDirectory(prefix="weft_compare_") as folder:
            document = pathlib.Path(folder) / "result.json"
            execute(self.launcher(work.scenario) +
                    [self.bin / f"{work.collective}_perf", "--sizes", ",".join(map(str, exact)), "--time_ms",
                     max(1, round(work.time_ms)), "-w", WARMUP, "-c", 1, "--in_place", int(half == "in_place"), "--json",
                     document], self.environment(work.scenario) | (settings or {}), work.limit_s)
            results = json.loads(document.read_text())["results"]
        return [Row(exact[r["size"]], r[half]["time"], r[half]["cpu_us"], r[half]["iterations"], r["algorithm"],
                    r.get("predicted_us")) for r in results]

    def plans(self, scenario: Scenario, collective: str, size: int, settings: dict[str, str]) -> list[str]:
        """The steps of all ranks, without what takes no time: the algorithm's name, places in scratch memory, and tags."""
        nodes, _ = scenario.layout
        question = [self.bin / "weft_info", "--explain", collective, size, "-n", scenario.ranks, "--nodes", nodes, "--steps",
                    "--json"]
        environment = self.environment(scenario) | settings
        answers = [json.loads(execute([*question, "--rank", rank], environment)) for rank in range(scenario.ranks)]
        return [re.sub(r"(scratch\+|tag )\d+", r"\1", answer["explain"]["plan"].split("\n", 1)[1]) for answer in answers]

    def measure_machine(self, scenario: Scenario) -> None:
        """Lets the library measure the machine for a scenario's launches, anew if it has done so."""
        shutil.rmtree(self.environment(scenario)["WEFT_TUNE_CACHE"], ignore_errors=True)
        execute(self.launcher(scenario) + [self.bin / "all_reduce_perf", "--sizes", "8", "-n", 1, "-w", 0, "-c", 0],
                self.environment(scenario) | {"WEFT_RECORDER_DIR": "none"})

    def machine_measured(self, scenario: Scenario) -> dict | None:
        """What the library has measured of this machine; None where nothing is kept (WEFT_TUNE)."""
        files = sorted(pathlib.Path(self.environment(scenario)["WEFT_TUNE_CACHE"]).glob("machine-*.json"))
        return json.loads(files[-1].read_text())["machine"] if files else None

    def startup(self, scenario: Scenario, threads: bool, limit_s: float) -> float:
        """µs until a communicator is there, mean over ranks."""
        perf = [self.bin / "startup_perf", "--json"]
        command = perf + ["--threads", scenario.ranks] if threads else self.launcher(scenario) + perf
        return startup_of(execute(command, timeout_s=limit_s))


def lines_of(output: str) -> list[dict]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{") and line.endswith("}")]


def startup_of(output: str) -> float:
    for line in lines_of(output):
        if "startup_us" in line:
            return line["startup_us"]
    raise LaunchError("it did not say how long its start took")


class Peer:
    """A peer's program of perf/peers: they share their command line and their output."""
    name = ""
    threads = False

    def __init__(self, program: pathlib.Path) -> None:
        self.program = program

    def command(self, scenario: Scenario) -> tuple[list, dict[str, str]]:
        """The launcher with its options, and what it needs in the environment."""
        raise NotImplementedError

    def sweep(self, work: Work) -> list[Row]:
        """Rows, as many as the time allowed; LaunchError when there is none."""
        command, environment = self.command(work.scenario)
        exact = work.exact()
        command = command + [self.program, work.collective, ",".join(map(str, exact)), f"{work.time_ms:g}",
                             f"{0.7 * work.limit_s:g}"]
        try:
            output = execute(command, environment, work.limit_s)
        except LaunchError as error:  # what it had measured before counts; some launchers only stumble at the end
            output = error.output
            if not any("bytes" in line for line in lines_of(output)):
                raise
        wrong = [line for line in lines_of(output) if line.get("wrong")]
        if wrong:
            raise LaunchError(f"{wrong[0]['wrong']:.0f} wrong elements at {wrong[0]['bytes']} bytes")
        return [Row(exact[line["bytes"]], line["us"], line["cpu_us"], line["iterations"], line["algorithm"])
                for line in lines_of(output) if line.get("bytes") in exact]

    def startup(self, scenario: Scenario, threads: bool, limit_s: float) -> float:
        command, environment = self.command(scenario)
        return startup_of(execute(command + [self.program, "none", 8, 1, 1], environment, limit_s))


def cluster_subnet() -> str:
    """The first three numbers of the addresses of the cluster that is up."""
    return execute([CLUSTER, "exec", "0", "ip", "-4", "-o", "address", "show", "eth0"]).split()[3].rsplit(".", 1)[0]


def oversubscribed(scenario: Scenario) -> bool:
    return scenario.ranks > (os.cpu_count() or 1)


class OpenMpi(Peer):
    name = "Open MPI"

    def command(self, scenario: Scenario) -> tuple[list, dict[str, str]]:
        words = ["mpirun.openmpi", "--allow-run-as-root", "-np", scenario.ranks, "--mca", "pml", "ob1", "--mca",
                 "btl_base_warn_component_unused", "0"]
        if scenario.is_cluster:
            subnet = cluster_subnet()
            hosts = ",".join(f"{subnet}.{node + 1}:{scenario.ranks_per_node}" for node in range(scenario.nodes))
            links = "tcp,self" if scenario.ranks_per_node == 1 else "vader,tcp,self"
            return words + ["--host", hosts, "--bind-to", "none", "--mca", "btl", links, "--mca", "plm_rsh_agent",
                            PEERS / "namespace_agent.sh", "--mca", "oob_tcp_if_include", f"{subnet}.0/24", "--mca",
                            "btl_tcp_if_include", f"{subnet}.0/24", "--mca", "mpi_yield_when_idle", "1", "-x", "CLUSTER"], {}
        if scenario.kind == "tcp":
            words += ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]
        else:
            words += ["--mca", "btl", "vader,self"]
        if oversubscribed(scenario):
            return words + ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"], {}
        return words + ["--bind-to", "core"], {}


class Mpich(Peer):
    name = "MPICH"

    def command(self, scenario: Scenario) -> tuple[list, dict[str, str]]:
        words = ["mpiexec.hydra", "-n", scenario.ranks]
        if scenario.is_cluster:
            subnet = cluster_subnet()
            hosts = ",".join(f"{subnet}.{node + 1}" for node in range(scenario.nodes))
            words += ["-ppn", scenario.ranks_per_node, "-hosts", hosts, "-launcher", "ssh", "-launcher-exec",
                      PEERS / "namespace_agent.sh", "-localhost", f"{subnet}.254", "-genvall"]
            return words, {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}
        if not oversubscribed(scenario):
            words += ["-bind-to", "core"]
        if scenario.kind == "tcp":
            return words, {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"}
        return words, {}


class Gloo(Peer):
    name = "Gloo"
    threads = True

    def __init__(self, program: pathlib.Path, build: pathlib.Path) -> None:
        super().__init__(program)
        self.bin = build / "bin"
        self.folder = tempfile.TemporaryDirectory(prefix="weft_gloo_")

    def command(self, scenario: Scenario) -> tuple[list, dict[str, str]]:
        environment = {"GLOO_STORE": tempfile.mkdtemp(dir=self.folder.name)}
        if scenario.is_cluster:
            return [CLUSTER, "run", scenario.ranks], {**environment, "GLOO_INTERFACE": "eth0"}
        # Each rank has two threads, which should not share a core.
        return [self.bin / "weft_run", "-n", scenario.ranks, "--no-label", "--no-bind"], environment

    def startup(self, scenario: Scenario, threads: bool, limit_s: float) -> float:
        if not threads:
            return super().startup(scenario, threads, limit_s)
        output = execute([self.program, "none", 8, 1, 1], {"GLOO_THREADS": str(scenario.ranks)}, limit_s)
        return startup_of(output)


def compile_peer(compiler: list[str], source: str, program: pathlib.Path, libraries: list[str]) -> None:
    sources = [PEERS / source, PEERS / "sweep.h"]
    if program.exists() and all(program.stat().st_mtime > s.stat().st_mtime for s in sources):
        return
    program.parent.mkdir(parents=True, exist_ok=True)
    execute(compiler + ["-O2", "-std=c++17", "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX", sources[0], "-o", program] +
            libraries, timeout_s=600)


def find_systems(build: pathlib.Path, wanted: list[str] | None) -> tuple[list, list[str]]:
    """Weft and the peers that are there, and a sentence for each that is not."""
    systems: list = [Weft(build)]
    notes = []
    folder = build / "peers"
    for name, commands, make in (
            ("Open MPI", ["mpirun.openmpi", "mpicxx.openmpi"], lambda p: OpenMpi(p)),
            ("MPICH", ["mpiexec.hydra", "mpicxx.mpich"], lambda p: Mpich(p)),
            ("Gloo", ["g++"], lambda p: Gloo(p, build))):
        if wanted is not None and name.lower().replace(" ", "") not in wanted:
            continue
        missing = [command for command in commands if not shutil.which(command)]
        if name == "Gloo" and not pathlib.Path("/usr/include/gloo/allreduce.h").exists():
            missing.append("libgloo-dev")
        if missing:
            notes.append(f"{name} is left out: {' and '.join(missing)} not found (scripts/deps.sh --peers installs it).")
            continue
        try:
            if name == "Gloo":
                program = folder / "gloo_perf"
                compile_peer(["g++"], "gloo_perf.cc", program, ["-lgloo", "-lpthread"])
            else:
                program = folder / f"mpi_perf.{commands[1].split('.')[1]}"
                compile_peer([commands[1]], "mpi_perf.cc", program, [])
            systems.append(make(program))
        except LaunchError as error:
            notes.append(f"{name} is left out: its program cannot be built ({error}).")
    return systems, notes


def versions_of(systems: list) -> dict[str, str]:
    """What each system says of itself; empty where it does not."""
    commands = {"Weft": ["git", "-C", ROOT, "describe", "--always", "--dirty"],
                "Open MPI": ["mpirun.openmpi", "--version"], "MPICH": ["mpichversion"],
                "Gloo": ["dpkg-query", "-W", "-f", "${Version}", "libgloo-dev"]}
    versions = {}
    for system in systems:
        try:
            lines = execute(commands[system.name]).strip().splitlines()
            versions[system.name] = lines[0].split()[-1] if lines else ""
        except (LaunchError, OSError):
            versions[system.name] = ""
    return versions
