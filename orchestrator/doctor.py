"""Checks whether this machine can run audits: installed packages, processors, store, tracking and data.

PyTorch is checked in a separate process and never imported here.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from orchestrator.errors import EngramError
from orchestrator.executors.session_folder import session_folder
from orchestrator.quantities import format_size
from orchestrator.spec.specification import PLACES, host_and_port
from tasks.contract.extras import COMMON, EVERY_RUN, EXTRAS, install_command

CORE = ("numpy", "pyarrow", "pyyaml", "typer", "rich")  # packages in every installation
FAISS = ("faiss-gpu", "faiss-cpu")
MIN_FREE = 1_000_000_000  # free bytes in the store below which a run may have to pause
MIN_SHARED_MEMORY = 500_000_000  # bytes in /dev/shm below which Ray stores its objects on disk
PROBE = 3.0  # seconds to wait for an address to answer
TLS_FILES = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")


@dataclass(frozen=True)
class Port:
    """A port used by Ray or MLflow. `number` is the usual port number, or None if the system chooses one."""

    number: int | None
    use: str
    asks: bool  # whether it requires the token, if Ray has one


PORTS = (
    Port(6379, "Ray's head", True),
    Port(8265, "Ray's dashboard and job server (head)", True),
    Port(10001, "Ray's client server (head)", True),
    Port(52365, "Ray's agent for jobs (each node)", True),
    Port(None, "Ray's daemons (each node; --node-manager-port, --object-manager-port)", True),
    Port(None, "Ray's workers (each node; 10002 to 19999)", True),
    Port(None, "Ray's metrics (each node; --metrics-export-port)", False),
    Port(44217, "metrics of Ray's autoscaler (head)", False),
    Port(44227, "metrics of Ray's dashboard (head)", False),
    Port(5000, "engram ui: MLflow, on 127.0.0.1 only", False),
)


@dataclass(frozen=True)
class MachineCheck:
    """Result of one check. `ok` is None if something optional could be improved."""

    name: str
    ok: bool | None
    found: str
    advice: str = ""


def examine(store: str, address: str | None) -> Iterator[MachineCheck]:
    """Yield the result of each check as it completes."""
    yield _python()
    yield from _packages()
    yield from _audits()
    yield _processors()
    yield from _gpus()
    yield from _ray(address)
    yield _tls()
    yield from _ports()
    yield _bucket(store) if "://" in store and not store.startswith("file:") else _store(store)
    yield _tracking(store, os.environ.get("MLFLOW_TRACKING_URI"))
    yield from _data()


def _python() -> MachineCheck:
    version = ".".join(map(str, sys.version_info[:3]))
    is_supported = (3, 11) <= sys.version_info[:2] <= (3, 13)
    return MachineCheck("python", is_supported, version, "" if is_supported else "use Python 3.11, 3.12 or 3.13")


def _packages() -> Iterator[MachineCheck]:
    advice = "pip install -e . gives the command engram"
    yield _package("engram-audit", None, "not installed; runs from its folder", advice)
    for name in CORE:
        yield _package(name, False, "not installed", f"pip install {name}")
    for extra in (*COMMON, *EXTRAS):
        ok = False if extra in EVERY_RUN else None
        yield _package(extra.package, ok, f"not installed; needed for {extra.purpose}", install_command([extra]))
    faiss = next((name for name in FAISS if _version(name)), FAISS[0])
    yield _package(faiss, None, "not installed; nearest neighbours use torch instead", f"pip install {FAISS[1]}")


def _package(name: str, ok: bool | None, absent: str, advice: str) -> MachineCheck:
    """Report a package's version. `ok`, `absent` and `advice` apply if it is not installed."""
    version = _version(name)
    if version is None:
        return MachineCheck(name, ok, absent, advice)
    return MachineCheck(name, True, version)


def _audits() -> Iterator[MachineCheck]:
    from orchestrator.spec import audits

    sound = []
    for name in audits.names():
        try:
            sound.append(audits.find(name).name)
        except EngramError as error:
            yield MachineCheck("audit", False, str(error), "fix or uninstall the package that offers it")
    yield MachineCheck("audits", bool(sound), ", ".join(sound) or "none")


def _processors() -> MachineCheck:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return MachineCheck("processors", True, f"{cores}, {format_size(memory)} of memory")


def _gpus() -> Iterator[MachineCheck]:
    if shutil.which("nvidia-smi") is None:
        yield MachineCheck("gpu", True, "none; networks train on the processors")
        return
    command = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    output = _output(command, 20)
    if not output:
        yield MachineCheck(
            "gpu", None, "nvidia-smi is installed but finds no GPU", "check the driver (nvidia-smi shows the error)"
        )
        return
    for line in output.splitlines():
        yield MachineCheck("gpu", True, line)
    script = "import torch; print(torch.version.cuda, torch.cuda.is_available(), torch.cuda.device_count())"
    torch = _output([sys.executable, "-c", script], 120)
    if torch and torch.split()[1] == "True":
        yield MachineCheck("torch on gpu", True, f"CUDA {torch.split()[0]}, {torch.split()[2]} device(s)")
    else:
        advice = "install a build of torch for this driver's CUDA; until then networks train on the processors"
        yield MachineCheck("torch on gpu", None, f"torch cannot use it ({torch or 'it does not import'})", advice)


def _ray(address: str | None) -> Iterator[MachineCheck]:
    if address == "none":
        yield MachineCheck("ray cluster", True, "not used: with address none, everything runs in one process")
        return
    if address == "pool":
        yield MachineCheck("ray cluster", True, "not used: with address pool, jobs run in processes on this machine")
        return
    if address and address not in PLACES:
        try:
            host, port = host_and_port(address)
        except EngramError as error:
            yield MachineCheck("ray cluster", False, *str(error).split("; ", 1))
            return
        is_reachable = _reaches(host, port)
        advice = "start the cluster, open the port, or use --address local"
        if is_reachable:
            advice = ""
        yield MachineCheck(
            "ray cluster", is_reachable, f"{address} {'answers' if is_reachable else 'does not answer'}", advice
        )
        yield _token()
        return
    shm = Path("/dev/shm")
    if shm.is_dir():
        free = shutil.disk_usage(shm).free
        memory_advice = "start the container with --shm-size=1g"
        if free > MIN_SHARED_MEMORY:
            memory_advice = ""
        yield MachineCheck(
            "ray memory",
            True if free > MIN_SHARED_MEMORY else None,
            f"{format_size(free)} free in /dev/shm",
            memory_advice,
        )
    try:
        session = session_folder()
    except EngramError as error:
        yield MachineCheck("ray session", False, str(error), "set RAY_TMPDIR to a shorter path")
        return
    is_writable = os.access(next(path for path in (session, *session.parents) if path.exists()), os.W_OK)
    if not is_writable:
        yield MachineCheck(
            "ray session", False, f"{session} cannot be written", "set RAY_TMPDIR to a short path that is writable"
        )
    else:
        yield MachineCheck("ray session", True, str(session))


def _token() -> MachineCheck:
    if os.environ.get("RAY_AUTH_MODE") == "token":
        return MachineCheck("ray token", True, "RAY_AUTH_MODE=token")
    advice = "set RAY_AUTH_MODE=token on each node and here: otherwise anyone who reaches the cluster can run code"
    return MachineCheck("ray token", None, "RAY_AUTH_MODE is not token", advice)


def _tls() -> MachineCheck:
    if os.environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
        return MachineCheck("ray tls", True, "off; docs/clusters.md explains how to encrypt traffic between nodes")
    absent = []
    for name in TLS_FILES:
        if not os.access(os.environ.get(name, ""), os.R_OK):
            absent.append(name)
    advice = ""
    if absent:
        advice = "set each to a readable file"
    return MachineCheck("ray tls", not absent, f"on, without {', '.join(absent)}" if absent else "on", advice)


def _ports() -> Iterator[MachineCheck]:
    """Report the ports used by Ray and MLflow.

    Each result states whether the port requires a token and whether it is in use on this machine.
    """
    for port in PORTS:
        token_rule = "answers without a token"
        if port.asks:
            token_rule = "requires Ray's token"
        is_taken = port.number is not None and _reaches("127.0.0.1", port.number)
        description = f"{port.use}; {token_rule}{'; in use here' if is_taken else ''}"
        yield MachineCheck(f"port {port.number or 'any'}", True, description)


def _store(location: str) -> MachineCheck:
    from orchestrator.store import local_path, open_store

    path = Path(location)
    try:
        path = (local_path(location) or path).absolute()
        existing_folder = next(folder for folder in (path, *path.parents) if folder.exists())
        results = "not created yet"
        if path.exists() and any(path.iterdir()):
            results = f"{len(open_store(location, create=False).keys()):,} results"
        with tempfile.TemporaryFile(dir=existing_folder) as file:
            file.write(b"\0" * 4096)
    except EngramError as error:
        return MachineCheck("store", False, str(error), "give another location with --store or ENGRAM_STORE")
    except (OSError, RuntimeError) as error:  # RuntimeError: the user is unknown and has no home directory
        advice = "free some space, or give another location with --store or ENGRAM_STORE"
        return MachineCheck(
            "store", False, f"{path} cannot be written: {getattr(error, 'strerror', None) or error}", advice
        )
    free = shutil.disk_usage(existing_folder).free
    advice = "free some space, or give another location with --store or ENGRAM_STORE"
    if free > MIN_FREE:
        advice = ""
    return MachineCheck(
        "store", True if free > MIN_FREE else None, f"{path}: {results}, writable, {format_size(free)} free", advice
    )


def _tracking(location: str, uri: str | None) -> MachineCheck:
    from orchestrator.spec.specification import absolute_uri
    from orchestrator.sqlite_uri import sqlite_path, sqlite_uri
    from orchestrator.store import local_path
    from orchestrator.tracking.tracking_store import DATABASE, FOLDER, OFF, Target

    if uri == OFF:
        return MachineCheck("tracking", True, "off")
    try:
        if uri is None:
            folder = local_path(location)
            if folder is None:
                return MachineCheck("tracking", None, "off: a bucket cannot hold it", "set MLFLOW_TRACKING_URI")
            uri = sqlite_uri(folder.absolute() / FOLDER / DATABASE)
        uri = absolute_uri(uri)
    except EngramError as error:
        return MachineCheck("tracking", False, str(error), "correct MLFLOW_TRACKING_URI")
    if uri.startswith(("http://", "https://")):
        public_uri = Target(uri).public_uri
        is_reachable = _answers(f"{public_uri.rstrip('/')}/health")
        advice = "start it, or set MLFLOW_TRACKING_URI to another one; runs continue without it"
        if is_reachable:
            advice = ""
        return MachineCheck(
            "tracking",
            True if is_reachable else None,
            f"{public_uri} {'answers' if is_reachable else 'does not answer'}",
            advice,
        )
    path = sqlite_path(uri)
    if path is not None:
        existing_folder = next(folder for folder in (path, *path.parents) if os.path.exists(folder))
        if not os.access(existing_folder, os.W_OK):
            return MachineCheck(
                "tracking", None, f"{path} cannot be written", "set MLFLOW_TRACKING_URI to another location"
            )
        return MachineCheck("tracking", True, f"{path}{'' if os.path.exists(path) else ', not created yet'}")
    return MachineCheck("tracking", True, f"{uri.partition(':')[0]}, not checked")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=PROBE) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError):
        return False


def _bucket(location: str) -> MachineCheck:
    """Check a store in a bucket: connect, write, and count its results."""
    from orchestrator.store import is_there, open_store
    from orchestrator.store.bucket import Bucket

    try:
        exists = is_there(location)
        results = "not created yet"
        if exists:
            results = f"{len(open_store(location, create=False).keys()):,} results"
        bucket = Bucket(location)
        trial = f"tmp/doctor-{os.getpid()}"
        bucket.put(trial, b"whether this can be written")
        bucket.delete(trial)
    except EngramError as error:
        return MachineCheck("store", False, str(error), "give another location with --store or ENGRAM_STORE")
    return MachineCheck("store", True, f"{bucket.location}: {results}, writable")


def _data() -> Iterator[MachineCheck]:
    from tasks.datasets.dataset import DatasetError
    from tasks.datasets.places import find, known_names

    for name, description in known_names().items():
        if ":" in name:  # a path given by the user
            continue
        try:
            find(name)
        except (DatasetError, OSError, ImportError) as error:
            problem, _, advice = str(error).partition("; ")
            yield MachineCheck(f"data {name}", None, problem, advice)
        else:
            yield MachineCheck(f"data {name}", True, description)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _output(command: list[str], seconds: float) -> str:
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return process.stdout.strip()


def _reaches(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), PROBE):
            return True
    except OSError:
        return False
