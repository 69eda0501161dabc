"""Shared fixtures, created once per session on first use: a real Ray cluster, an S3 server, a new database."""

from __future__ import annotations

import atexit
import gc
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from orchestrator.store import Store, open_store
from tests.support import forks
from tests.support.azurite import Azurite
from tests.support.azurite import served as serve_azure
from tests.support.golden import TESTS, Golden, GoldenFiles, golden_file, is_restricted
from tests.support.mlflow_server import client
from tests.support.s3 import Server, served
from tests.support.searches import FinishedSearch, search
from tests.support.shell import PATHS, STARTED, Here, Shell

# The time that an example takes depends on the machine's load and decides nothing.
settings.register_profile("engram", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("engram")

VARIABLES = (
    "PYTHONPATH",
    "RAY_ADDRESS",
    "RAY_AUTH_MODE",
    "RAY_AUTH_TOKEN",
    "RAY_USAGE_STATS_ENABLED",
    "RAY_health_check_period_ms",
    "RAY_worker_niceness",
)
DatabaseCopier = Callable[[Path], Path]
IMPORTED = [0]  # how many modules there were each time that they were left out of the garbage collection
GOLDEN = pytest.StashKey[GoldenFiles]()
OBJECT_STORE_BYTES = 80 * 2**20
# On two cores with other load, two threads of a process take longer than one.
os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch or numpy is first imported
# Where a test is about two threads, the one that waits sleeps: on a busy machine it would take four times the processor
# time of the work.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# But for the tests that are about them.
os.environ |= {"MLFLOW_TRACKING_URI": "off", "ENGRAM_REPORT": "no"}
# Indexes and images that tests cache must not stay in the tester's own cache folder.
CACHE = tempfile.TemporaryDirectory(prefix="engram-tests-cache-", ignore_cleanup_errors=True)
os.environ["ENGRAM_CACHE"] = CACHE.name


class CpuDurations:
    """Lists the tests that took the most processor time, including their child processes."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before = sum(os.times()[:4]) + forks.spent
        result = yield
        name = item.nodeid + (" (slow)" if item.get_closest_marker("slow") else "")
        self.spent[name] = sum(os.times()[:4]) + forks.spent - before
        return result

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        total = sum(self.spent.values())
        slow = sum(slow_seconds for name, slow_seconds in self.spent.items() if name.endswith("(slow)"))
        terminalreporter.section(f"processor time of {len(self.spent)} tests: {total:.1f} s, of slow ones {slow:.1f} s")
        for name, seconds in sorted(self.spent.items(), key=lambda entry: -entry[1]):
            if seconds >= 0.5:
                terminalreporter.line(f"{seconds:8.2f} s {name}")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Leave what has been imported out of the garbage collection: to look through all of it takes half a second."""
    if len(sys.modules) > IMPORTED[-1] + 300:
        gc.collect()
        gc.freeze()
        IMPORTED.append(len(sys.modules))


# Libraries look for unreleased objects when they are unloaded. Earlier, pytest itself would look through all objects
# five times.
atexit.register(gc.unfreeze)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gpu", action="store_true", help="let tests see this machine's GPUs, as make test-gpu does")
    parser.addoption("--cpu-durations", action="store_true", help="list the processor time of tests in the summary")
    parser.addoption(
        "--renew-golden", action="store_true", help="write the snapshots in tests/golden instead of comparing"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[GOLDEN] = GoldenFiles(config.getoption("--renew-golden"), restricted=is_restricted(config))
    if Path("/dev/nvidiactl").exists() and not config.getoption("--gpu"):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # results that are equal to the bit on a processor differ on a GPU
    forks.fork_counting()
    if config.getoption("--cpu-durations"):
        config.pluginmanager.register(CpuDurations())


def pytest_itemcollected(item: pytest.Item) -> None:
    """Note every test before deselection, so that entries of deleted tests can be recognised."""
    files = item.config.stash[GOLDEN]
    if files.renew and item.path.is_relative_to(TESTS) and not any("::" in argument for argument in item.config.args):
        files.collected.setdefault(golden_file(item.path), set()).add(item.name)


def pytest_sessionfinish(session: pytest.Session) -> None:
    files = session.config.stash[GOLDEN]
    if files.renew:
        files.restricted |= bool(session.testsfailed) or session.shouldstop is not False
        files.write()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares values with this test's entries in `tests/golden/`."""
    return Golden(request.config.stash[GOLDEN], request.path, request.node.name)


@pytest.fixture(autouse=True)
def surroundings() -> Iterator[None]:
    """Restore the environment after the test, except for the variables of the shared cluster."""
    before = dict(os.environ)
    yield
    while STARTED:
        STARTED.pop().kill()  # no effect on a process that has ended
    for name in {*before, *os.environ} - {*VARIABLES, "PYTEST_CURRENT_TEST"}:
        if name not in before:
            del os.environ[name]
        elif os.environ.get(name) != before[name]:
            os.environ[name] = before[name]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return open_store(tmp_path / "store")


@pytest.fixture
def engram(tmp_path: Path) -> Here:
    """The commands in an empty folder, in this process."""
    return Here(tmp_path)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """The commands in the same folder, in separate processes."""
    return Shell(tmp_path)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Any]:
    """A `ray.cluster_utils.Cluster` whose head has 2 CPUs; its token is in this process's environment."""
    before = {name: os.environ.get(name) for name in VARIABLES}
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
    # A node that is gone is struck off after 2 s instead of 15.
    os.environ |= {"RAY_worker_niceness": "0", "RAY_health_check_period_ms": "500"}
    os.environ["PYTHONPATH"] = PATHS  # for workers, which import the functions of calls
    os.environ.pop("RAY_ADDRESS", None)
    from ray.cluster_utils import Cluster

    from orchestrator.executors.private_ray import read_token

    read_token()  # Ray may have been imported before
    head = {"num_cpus": 2, "object_store_memory": OBJECT_STORE_BYTES}
    # No test reads its pages, it needs no autoscaler, and no driver reads the output of its workers.
    head |= {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    yield cluster
    cluster.shutdown()
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    read_token()


@pytest.fixture(scope="session")
def searched(ray_cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> FinishedSearch:
    """A finished search. Tests that write to its store copy it first."""
    return search(tmp_path_factory.mktemp("searched"), ray_cluster.address)


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that MLflow has just created. This takes seconds, so tests copy it."""
    path = tmp_path_factory.mktemp("migrated") / "mlflow.db"
    client(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture(scope="session")
def copy_database(migrated: Path) -> DatabaseCopier:
    """Copies the database to the Engram store of a folder, as an earlier run would leave it. Returns its path."""

    def copy_database(folder: Path) -> Path:
        path = open_store(str(folder / "engram-store")).folder("mlflow") / "mlflow.db"
        shutil.copy(migrated, path)
        return path

    return copy_database


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Server]:
    with served() as server:
        yield server


@pytest.fixture
def s3(s3_server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Server:
    """An S3 server with one empty bucket, configured in this process's environment. Run folders are in `tmp_path`."""
    for name, value in {**s3_server.env, "ENGRAM_RUNS": str(tmp_path / "engram-runs")}.items():
        monkeypatch.setenv(name, value)
    s3_server.empty()
    return s3_server


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    with serve_azure(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture
def azure(azurite: Azurite, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Azurite:
    """Azurite with one empty container, like `s3`. Skips the test if it is not installed."""
    for name, value in {**azurite.env, "ENGRAM_RUNS": str(tmp_path / "engram-runs")}.items():
        monkeypatch.setenv(name, value)
    azurite.empty()
    return azurite
