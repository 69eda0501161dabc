"""`engram ui` shows the runs of the tracking store on this machine only, and leaves no process or file behind."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from orchestrator.store import open_store
from orchestrator.store.atomic_write import file_lock
from orchestrator.tracking import ui
from orchestrator.tracking.tracking_store import Target
from tests.conftest import DatabaseCopier
from tests.orchestrator.tracking.test_tracking import marked_processes, shell
from tests.orchestrator.tracking.test_uploader import TrackedStore
from tests.support.ports import free_port
from tests.support.shell import Here, Shell
from tests.support.waiting import HANGING

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless",
    "--window-size=1800,800",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
)
OFFLINE = ("--disable-background-networking", "--disable-component-update", "--virtual-time-budget=20000", "--dump-dom")


@pytest.fixture(scope="module")
def tracked_shell(tmp_path_factory: pytest.TempPathFactory, copy_database: DatabaseCopier) -> Shell:
    """A shell in a folder whose store has a tracked run."""
    engram = shell(tmp_path_factory.mktemp("ui"), fresh=True, TRACKED=f"mark-{os.getpid()}-{time.time()}")
    tracked_store = TrackedStore(engram.folder, copy_database)
    report = tracked_store.run("--preset", "smoke", "enough=1", audit="questions")
    assert tracked_store.deliver(report) == ""
    return engram


def page_in_browser(url: str, profile: Path) -> str:
    """The page as a browser without a history shows it."""
    assert BROWSER is not None
    command = [BROWSER, *FLAGS, *OFFLINE, f"--user-data-dir={profile}", url]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANGING, check=True).stdout


def listening(port: int) -> set[str]:
    """The addresses of listeners at a port, as the kernel writes them."""
    lines = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines():
            lines.append(line.split())
    listeners = []
    for fields in lines[1:]:
        if len(fields) > 3 and fields[3] == "0A":
            listeners.append(fields[1].split(":"))
    return {address for address, number in listeners if int(number, 16) == port}


@pytest.mark.slow
def test_link_works_only_locally_until_the_end(tracked_shell: Shell, tmp_path: Path) -> None:
    engram = tracked_shell
    with socket.socket() as occupied:
        occupied.bind(("127.0.0.1", 0))
        occupied.listen()
        first = occupied.getsockname()[1]
        # A shell that starts a command in the background ignores SIGINT unless the command handles it.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            command = engram.start("ui", "--port", str(first))
        finally:
            signal.signal(signal.SIGINT, before)
        assert command.stdout is not None
        url, live = (command.stdout.readline().strip() for _ in "ab")
    assert url, command.communicate()[1]
    port = int(url.split(":")[2].partition("/")[0])
    assert port > first
    answers = "workflowType=machine_learning&viewStateShareKey=engram-answers"
    assert url == f"http://127.0.0.1:{port}/#/experiments/1/runs?{answers}"
    with urllib.request.urlopen(url, timeout=HANGING) as answer:
        assert b"MLflow" in answer.read()
    assert listening(port) == {"0100007F"}
    assert listening(int(live.split(":")[2].strip("/"))) == {"0100007F"}
    with urllib.request.urlopen(
        live, timeout=HANGING
    ) as answer:  # the newest run, with a link to its page on this MLflow server
        assert f'<a href="http://127.0.0.1:{port}/#/experiments/1/runs/' in answer.read().decode()
    with pytest.raises(urllib.error.HTTPError, match="404"):  # MLflow's assistant would run commands on this machine
        urllib.request.urlopen(f"http://127.0.0.1:{port}/ajax-api/3.0/mlflow/assistant/config", timeout=HANGING)
    if BROWSER:
        page = page_in_browser(url, tmp_path)  # with the settings, the answer and its interval
        assert all(text in page for text in ("questions, smoke", "wordy", "6.8 [3.7, 9.8]", "words of an answer"))
    command.send_signal(signal.SIGINT)
    messages = command.communicate(timeout=HANGING)[1]
    assert command.returncode == 0, messages
    assert f"port {first} is in use" in messages
    assert marked_processes(engram.env["TRACKED"]) == []
    assert os.listdir(engram.folder) == ["engram-store"]


@pytest.mark.slow
def test_killed_command_leaves_no_process(tracked_shell: Shell) -> None:
    engram = tracked_shell
    command = engram.start("ui", "--port", str(free_port()), "--json")
    assert command.stdout is not None
    command.stdout.readline()
    assert [command.stdout.readline().split(":")[0].strip() for _ in "ab"] == ['"url"', '"live"']
    command.kill()
    command.communicate()
    engram.until(lambda: marked_processes(engram.env["TRACKED"]) == [])


def test_pages_do_not_wait_for_the_tracking_lock(tmp_path: Path, copy_database: DatabaseCopier) -> None:
    path = copy_database(tmp_path)
    store = open_store(str(tmp_path / "engram-store"))
    checker = threading.Thread(target=ui.check, args=(store, Target(f"sqlite:///{path}")), daemon=True)
    with file_lock(path.parent / "lock"):
        checker.start()
        checker.join(60)
        assert not checker.is_alive()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_without_mlflow_only_live_page_is_served(shell: Shell, number: signal.Signals) -> None:
    shell("run", "toys", "--address", "none", "parts=2")
    command = shell.start("ui", "--mlflow", "off", "--port", str(free_port()))
    assert command.stdout is not None
    with urllib.request.urlopen(command.stdout.readline().strip(), timeout=HANGING) as answer:
        assert "100 % finished" in answer.read().decode()
    command.send_signal(number)
    messages = command.communicate(timeout=HANGING)[1]
    assert (command.returncode, len(messages.splitlines())) == (0, 1), messages


def test_unusable_database_gives_one_line(tmp_path: Path, copy_database: DatabaseCopier) -> None:
    os.truncate(copy_database(tmp_path), 1000)
    messages = Here(tmp_path)("ui", "--mlflow", f"sqlite:///{tmp_path}/engram-store/mlflow/mlflow.db", code=1).stderr
    assert len(messages.splitlines()) == 1
    assert "MLflow cannot use" in messages


def test_store_without_tracked_runs_gives_one_line(tmp_path: Path) -> None:
    open_store(str(tmp_path / "engram-store"))
    messages = Here(tmp_path)("ui", "--mlflow", f"sqlite:///{tmp_path}/none.db", code=1).stderr
    assert len(messages.splitlines()) == 1
    assert "has no runs yet" in messages


def test_remote_server_has_its_link_and_the_index_printed(tmp_path: Path) -> None:
    open_store(str(tmp_path / "engram-store"))
    index = tmp_path / "engram-store" / "index.html"
    engram = Here(tmp_path)
    away = f"http://127.0.0.1:{free_port()}"
    printed = engram.json("ui", "--mlflow", away)
    assert printed == {"url": f"{away}/#/experiments?workflowType=machine_learning", "index": index.as_uri()}
    assert "no runs yet" in index.read_text()
