"""`engram run --on URL` sends a run to a cluster through Ray's job server, including the user's network."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.jobs import Submission
from orchestrator.cli.options import RunOptions, StoppingOptions
from orchestrator.store import lease
from tests.support.ports import free_port
from tests.support.ray_head import ray_head
from tests.support.shell import PATHS, Here, Shell
from tests.support.waiting import HANGING
from tests.test_networks import OWN

PASSWORD = "http://auditor:hunter4@127.0.0.1:9"
TINY = ("unique_feature", "scale=tiny", "canaries=1", "epochs=1", "examples=100", "network=hospital:steady")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment for the job server of a cluster with one machine."""
    port = free_port()
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    own_commands = str(Path(sys.executable).parent)  # of Ray, which is started by its path
    path = os.pathsep.join(folder for folder in os.environ["PATH"].split(os.pathsep) if folder != own_commands)
    settings = {**token, "PATH": path, "PYTHONPATH": PATHS, "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    settings |= {"ENGRAM_REPORT": "no", "MLFLOW_TRACKING_URI": "off", "OMP_NUM_THREADS": "1"}
    log = tmp_path_factory.mktemp("head") / "head.log"
    options = ("--num-cpus=2", "--include-dashboard=true", f"--dashboard-port={port}", "--dashboard-host=127.0.0.1")
    options += (f"--dashboard-agent-listen-port={free_port()}",)  # else that of another cluster on this machine
    with ray_head(free_port(), log, settings, *options):
        yield {**token, "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{port}"}


@pytest.fixture
def engram(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.mark.slow
def test_submitted_run_uses_users_network_and_is_followed(
    engram: Shell, server: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    networks = tmp_path / "networks"
    networks.mkdir()
    (networks / "hospital.py").write_text(OWN)
    address = server["RAY_API_SERVER_ADDRESS"]
    engram.env |= server
    engram.env["PYTHONPATH"] += f":{networks}"
    run = engram.start("run", *TINY, "--store", "store", "--on", address, "--wait")
    output = "".join(run.communicate(timeout=HANGING))
    assert run.returncode == 0, output
    assert f"its results are stored in {tmp_path / 'store'}" in output
    here = Here(tmp_path)
    run_status = here.json("status", "--store", "store")
    assert run_status["state"] == "finished"
    assert run_status["jobs"]["failed"] == 0
    assert here("logs", "--store", "store").stdout.splitlines()[-1].endswith("0 failed")
    monkeypatch.syspath_prepend(networks)
    assert here.json("run", *TINY, "--store", "store", "--address", "none")["jobs"]["done"] == 0  # the same source


@pytest.mark.slow
def test_submitted_run_is_cancelled_through_the_store(engram: Shell, server: dict[str, str], tmp_path: Path) -> None:
    engram.env |= server | {"MLFLOW_TRACKING_URI": PASSWORD}
    fields = ("toys", "parts=6", "trouble=wait", "at=1", f"folder={tmp_path}")
    submitted = engram.json("submit", *fields, "--store", "store", "--together", "1")
    assert submitted["state"] == "RUNNING"
    log = tmp_path / "began.log"
    engram.until(log.exists)
    submissions = engram.python("-m", "ray.scripts.scripts", "job", "list").communicate()[0]
    assert submitted["submission"] in submissions
    assert "hunter4" not in submissions + _command_lines()
    assert "already has a driver" in engram("submit", *fields, "--store", "store", code=1).stderr
    here = Here(tmp_path)
    here("cancel", "toys", "--store", "store")
    engram.until(lambda: not list(tmp_path.glob("store/runs/*/ways/cancel.txt")))
    engram.go()
    engram.until(lambda: here.json("status", "--store", "store")["state"] == "interrupted")


def _command_lines() -> str:
    """The command lines of all processes of this machine."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return "\n".join(lines)


@pytest.mark.slow
def test_rejected_submission_is_one_line(engram: Shell, server: dict[str, str]) -> None:
    engram.env |= server
    assert "unknown audit" in engram("submit", "nothing", "--store", "store", code=2).stderr
    engram.env["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    message = engram("submit", "toys", "--store", "store", code=1).stderr
    assert "refuses the token" in message
    assert len(message.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("toys", "--store", "store"), 2, "--address is missing; pass http://HOST:8265"),
        (("toys", "--address", "http://127.0.0.1:1"), 2, "--store is missing; pass a bucket"),
        (("toys", "--store", "s", "--address", "10.0.0.1:6379"), 1, "is not an address of a job server"),
        (("toys", "--store", "s", "--address", "http://127.0.0.1:1"), 1, "cannot be used"),
        (
            ("toys", "--store", "s", "--address", "http://127.0.0.1:40123"),
            1,
            "cannot be used",
        ),  # no answer of 401, but a port
        (("toys", "--store", "s", "--address", "http://[::1"), 1, "is not an address of a job server"),
        (("toys", "--store", "s", "--address", "http://x:y"), 1, "is not an address of a job server"),
        (
            ("toys", "--store", "s", "--address", "http://127.0.0.1:1", "--mlflow", PASSWORD),
            2,
            "--mlflow contains a password",
        ),
        (("toys", "no=1", "--store", "s", "--address", "http://127.0.0.1:1"), 2, "no"),
    ],
)
def test_bad_usage_is_one_line(tmp_path: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    ended = Here(tmp_path)("submit", *arguments, code=code)
    (line,) = ended.stderr.strip().splitlines()
    assert message in line
    assert list(tmp_path.iterdir()) == []


def test_cluster_runs_the_command_with_its_options() -> None:
    options = RunOptions(tolerate=2, report=False)
    stopping = StoppingOptions("decided", 0.1, None)
    submission = Submission("toys", ["parts=2"], "few", ["first=0,1", "label=a,b"], options, stopping, "memorised")
    assert submission.words("audit.yaml", "s3://bucket/x") == [
        *("run", "audit.yaml", "parts=2", "--address", "auto", "--store", "s3://bucket/x", "--preset", "few"),
        *("--until", "decided", "--alpha", "0.1", "--fail-on", "memorised"),
        *("--sweep", "first=0,1", "--sweep", "label=a,b", "--tolerate", "2", "--no-report"),
    ]


def test_passwords_stay_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    here = Here(tmp_path)
    (tmp_path / "a.yaml").write_text(f"audit: toys\nexecution: {{mlflow: '{PASSWORD}'}}\n")
    where = ("--store", "s", "--address", "http://127.0.0.1:1")
    (line,) = here("submit", "a.yaml", *where, code=2).stderr.splitlines()
    assert "names a tracking store with a password" in line
    here.env = {"MLFLOW_TRACKING_URI": PASSWORD}
    first, second = here("submit", "toys", *where, code=1).stderr.splitlines()
    assert first.startswith("MLFLOW_TRACKING_URI contains a password and is not passed to the cluster")
    assert "cannot be used" in second
    assert "hunter4" not in line + first + second


def test_running_run_is_not_submitted(tmp_path: Path) -> None:
    here = Here(tmp_path)
    here.env = {"ENGRAM_REPORT": "no", "MLFLOW_TRACKING_URI": "off"}
    run = here.json("run", "toys", "parts=1", "--address", "none")["run"]
    where = ("--store", "engram-store", "--address", "http://127.0.0.1:1")
    with lease.acquire([tmp_path / "engram-store" / "runs" / run]):
        (line,) = here("submit", "toys", "parts=1", *where, code=1).stderr.splitlines()
        assert line.startswith(f"engram: {run} already has a driver: ")
        assert "cannot be used" in here("submit", "toys", "parts=2", *where, code=1).stderr
        assert "cannot be used" in here("submit", "toys", "parts=1", "--again", *where, code=1).stderr


def test_options_are_passed_on_unchanged() -> None:
    options = RunOptions(gpus="wait", tolerate=2, fail_fast=True, report=False, all_cells=True, show_images=True)
    words = ["--gpus", "wait", "--tolerate", "2", "--fail-fast", "--all", "--no-report", "--show-images"]
    assert words == options.words()
    assert RunOptions().words() == []


def test_files_of_users_networks_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from orchestrator.executors.submission import factory_files
    from orchestrator.spec.resolve import read_spec, resolve_cells
    from orchestrator.spec.specification import Spec, settings

    (tmp_path / "clinic").mkdir()
    for name in ("__init__.py", "nets.py"):
        (tmp_path / "clinic" / name).write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)

    def files(*fields: str) -> Any:
        cells = resolve_cells(read_spec("unique_feature", Spec("", None, settings(fields))))
        return factory_files(cell.config for cell in cells)

    assert set(files("network=clinic.nets:small")) == {"clinic/__init__.py", "clinic/nets.py"}
    assert files() == {}
