"""The live page: it updates in a browser during a run, and only this machine can read it."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dashboards import live
from orchestrator.store import open_store
from tests.support.browser import Browser
from tests.support.ports import free_port
from tests.support.shell import Shell
from tests.support.waiting import HANGING

FACTS = """Object.fromEntries([...document.querySelectorAll(".facts > div")].map(
  each => [each.querySelector("dt").textContent, each.querySelector("dd").textContent]))"""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    with live.serve(open_store(str(folder / "engram-store")), free_port(), lambda _: "http://127.0.0.1:1/#/run") as url:
        yield url


def text(url: str, **headers: str) -> str:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=HANGING) as answer:
        return str(answer.read().decode())


def test_live_page_updates_during_a_run(shell: Shell, tmp_path: Path, browser: Browser, ray_cluster: Any) -> None:
    del shell.env["ENGRAM_REPORT"]
    fields = ("parts=5", "trouble=wait", "at=3", f"folder={tmp_path}")
    run = shell.start("run", "toys", "--address", ray_cluster.address, *fields)
    shell.await_begun(1, run)
    shell.await_results(3, run)
    with served(tmp_path) as url:
        page = browser.open(url)
        facts = page.until(f"(facts => facts.running > 0 && facts['jobs finished'] == '3 of 6' && facts)({FACTS})")
        assert int(facts["running"]) + int(facts["waiting"]) == 3
        assert "50 % running" in page.evaluate("document.title")
        assert page.evaluate("document.querySelector('progress').value") == 3
        shell.go()
        facts = page.until(f"document.title.startsWith('100 % finished') && document.links[0] && {FACTS}")
        assert {"jobs finished": "6 of 6", "failed": "0"}.items() <= facts.items()
        assert not facts.keys() & {"running", "waiting", "not computed"}
        assert run.wait(120) == 0
        page.until("[...document.links].some(link => link.textContent == 'Report')")
        page.until("!document.querySelector('meta[http-equiv=refresh]')")  # nothing changes any more
        assert page.complaints() == []
        assert "http://127.0.0.1:1/#/run" in page.evaluate("[...document.links].map(link => link.href)")
        report = page.evaluate("[...document.links].find(link => link.textContent == 'Report').href")
        assert "How it was computed" in text(report)


def test_failed_run_shows_errors_and_next_command(shell: Shell, tmp_path: Path) -> None:
    fields = ("parts=4", "trouble=raise", "at=2", f"folder={tmp_path}")
    shell("run", "toys", "--address", "none", *fields, code=3)
    with served(tmp_path) as url:
        page = text(url)
        assert "ValueError: part 2 cannot be had" in page
        assert "engram resume toys-" in page
        assert 'http-equiv="refresh"' in page  # the run may be resumed
        name = shell.json("status")["run"]
        assert 'http-equiv="refresh"' not in text(f"{url}runs/{name}/?still")
        (tmp_path / "mended").touch()
        shell("resume", name, "--address", "none")
        assert "100 % finished" in text(url)


def test_server_answers_only_local_requests(shell: Shell, tmp_path: Path) -> None:
    with served(tmp_path) as url:
        with pytest.raises(urllib.error.HTTPError, match="500") as none:
            text(url)
        assert "has no runs" in none.value.read().decode()
        shell("run", "toys", "--address", "none", "parts=2")
        name = shell.json("status")["run"]
        for path in ("../../etc/passwd", f"runs/{name}/run.json", f"runs/{name}/..%2f", "runs/other/", "runs/../"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                text(url + path)
        with pytest.raises(urllib.error.HTTPError, match="403"):  # a name elsewhere that leads to this machine
            text(url, Host="example.org")
