"""`engram ui` shows the runs of the tracking store, to this machine only, and leaves nothing behind."""

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
from tests.conftest import Copied
from tests.orchestrator.tracking.test_tracking import marked, shell
from tests.orchestrator.tracking.test_uploader import Place
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
def tracked(tmp_path_factory: pytest.TempPathFactory, begun: Copied) -> Shell:
    """A shell in the folder of a store in which a run is tracked."""
    engram = shell(tmp_path_factory.mktemp("ui"), fresh=True, TRACKED=f"mark-{os.getpid()}-{time.time()}")
    place = Place(engram.folder, begun)
    report = place.run("--preset", "smoke", "enough=1", audit="questions")
    assert place.deliver(report) == ""
    return engram


def seen(url: str, profile: Path) -> str:
    """The page as a browser has it that was never here before."""
    assert BROWSER is not None
    command = [BROWSER, *FLAGS, *OFFLINE, f"--user-data-dir={profile}", url]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANGING, check=True).stdout


def listening(port: int) -> set[str]:
    """The addresses on which somebody listens at this port, as the kernel writes them."""
    lines = [line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()]
    found = [fields[1].split(":") for fields in lines[1:] if len(fields) > 3 and fields[3] == "0A"]
    return {address for address, number in found if int(number, 16) == port}


@pytest.mark.slow
def test_the_link_answers_on_this_machine_only_until_the_command_is_ended(tracked: Shell, tmp_path: Path) -> None:
    engram = tracked
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        first = taken.getsockname()[1]
        # As a shell starts what it runs in the background: there SIGINT is ignored unless a program says otherwise.
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
    assert f"http://127.0.0.1:{port}/#/experiments/1/runs?{answers}" == url
    with urllib.request.urlopen(url, timeout=HANGING) as answer:
        assert b"MLflow" in answer.read()
    assert {"0100007F"} == listening(port)
    assert {"0100007F"} == listening(int(live.split(":")[2].strip("/")))
    with urllib.request.urlopen(
        live, timeout=HANGING
    ) as answer:  # the newest run, with its page on this server of MLflow
        assert f'<a href="http://127.0.0.1:{port}/#/experiments/1/runs/' in answer.read().decode()
    with pytest.raises(urllib.error.HTTPError, match="404"):  # MLflow's assistant would run commands on this machine
        urllib.request.urlopen(f"http://127.0.0.1:{port}/ajax-api/3.0/mlflow/assistant/config", timeout=HANGING)
    if BROWSER:
        page = seen(url, tmp_path)  # with what was asked, the answer and its interval
        assert all(text in page for text in ("questions, smoke", "wordy", "6.8 [3.7, 9.8]", "words of an answer"))
    command.send_signal(signal.SIGINT)
    said = command.communicate(timeout=HANGING)[1]
    assert command.returncode == 0, said
    assert f"port {first} is in use" in said
    assert marked(engram.env["TRACKED"]) == []
    assert os.listdir(engram.folder) == ["engram-store"]


@pytest.mark.slow
def test_nothing_is_left_when_the_command_is_killed(tracked: Shell) -> None:
    engram = tracked
    command = engram.start("ui", "--port", str(free_port()), "--json")
    assert command.stdout is not None
    command.stdout.readline()
    assert [command.stdout.readline().split(":")[0].strip() for _ in "ab"] == ['"url"', '"live"']
    command.kill()
    command.communicate()
    engram.until(lambda: marked(engram.env["TRACKED"]) == [])


def test_the_pages_wait_for_nobody_who_holds_the_tracking_lock(tmp_path: Path, begun: Copied) -> None:
    path = begun(tmp_path)
    store = open_store(str(tmp_path / "engram-store"))
    asked = threading.Thread(target=ui.check, args=(store, Target(f"sqlite:///{path}")), daemon=True)
    with file_lock(path.parent / "lock"):
        asked.start()
        asked.join(60)
        assert not asked.is_alive()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_without_mlflow_the_live_page_alone_is_served(shell: Shell, number: signal.Signals) -> None:
    shell("run", "toys", "--address", "none", "parts=2")
    command = shell.start("ui", "--mlflow", "off", "--port", str(free_port()))
    assert command.stdout is not None
    with urllib.request.urlopen(command.stdout.readline().strip(), timeout=HANGING) as answer:
        assert "100 % finished" in answer.read().decode()
    command.send_signal(number)
    said = command.communicate(timeout=HANGING)[1]
    assert (command.returncode, len(said.splitlines())) == (0, 1), said


def test_a_database_that_cannot_be_used_is_one_clear_line(tmp_path: Path, begun: Copied) -> None:
    os.truncate(begun(tmp_path), 1000)
    said = Here(tmp_path)("ui", "--mlflow", f"sqlite:///{tmp_path}/engram-store/mlflow/mlflow.db", code=1).stderr
    assert len(said.splitlines()) == 1
    assert "MLflow cannot use" in said


def test_a_store_without_tracked_runs_is_one_clear_line(tmp_path: Path) -> None:
    open_store(str(tmp_path / "engram-store"))
    said = Here(tmp_path)("ui", "--mlflow", f"sqlite:///{tmp_path}/none.db", code=1).stderr
    assert len(said.splitlines()) == 1
    assert "has no runs yet" in said


def test_a_server_elsewhere_only_has_its_link_printed(tmp_path: Path) -> None:
    open_store(str(tmp_path / "engram-store"))
    engram = Here(tmp_path)
    away = f"http://127.0.0.1:{free_port()}"
    assert {"url": f"{away}/#/experiments?workflowType=machine_learning"} == engram.json("ui", "--mlflow", away)
