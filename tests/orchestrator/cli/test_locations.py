"""Commands refuse invalid locations of stores, and check before the work that a file can be written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import orchestrator
from orchestrator.cli import commands
from orchestrator.errors import EngramError
from tests.support.shell import Here, refusals

# The other arguments that each command needs; `{}` is the tested store.
ARGUMENTS = {
    "ask": ("--have", "model", "--fear", "records", "--out", "new.yaml", "--store", "{}"),
    "show": ("toys", "--store", "{}"),
    "plan": ("toys", "--store", "{}"),
    "run": ("toys", "--address", "none", "--store", "{}"),
    "resume": ("--store", "{}"),
    "search": ("toys", "--store", "{}"),
    "submit": ("toys", "--address", "http://127.0.0.1:1", "--store", "{}"),
    "probes": ("unique_feature", "--out", "probes", "--store", "{}"),
    "check-training": ("membership", "--store", "{}"),
    "logs": ("--store", "{}"),
    "cancel": ("toys", "--store", "{}"),
    "results": ("toys", "summary", "--store", "{}"),
    "compare": ("a", "b", "--store", "{}"),
    "report": ("--store", "{}"),
    "explain": ("toys", "--store", "{}"),
    "rerun": ("aaaaaaaa", "--store", "{}"),
    "verify": ("--store", "{}"),
    "runs cancel": ("toys", "--store", "{}"),
    "report verify": ("toys", "--store", "{}"),
    "debug explain": ("toys", "--store", "{}"),
    "debug rerun": ("aaaaaaaa", "--store", "{}"),
    "doctor": ("--store", "{}"),
    "store copy": ("{}", "other"),
    "store sync": ("{}", "other"),
}
NOWHERE = ("", " ", "s3:/bucket/x", "gs:/bucket", "file:/x", "s3:bucket", "http://x/y", "a\0b")


def store_commands() -> Iterator[str]:
    """The commands with an option --store, and the commands that copy a store."""
    yield from ("store copy", "store sync")
    for name, command in commands.command().commands.items():  # type: ignore[attr-defined]
        for below, subcommand in getattr(command, "commands", {"": command}).items():
            if any("--store" in parameter.opts for parameter in subcommand.params):
                yield f"{name} {below}".rstrip()


@pytest.mark.parametrize("name", sorted(store_commands()))
@pytest.mark.parametrize("location", NOWHERE, ids=repr)
def test_invalid_store_location_is_refused(name: str, location: str, tmp_path: Path) -> None:
    arguments = []
    for word in ARGUMENTS.get(name, ("--store", "{}")):
        arguments.append(word.replace("{}", location))
    completed = Here(tmp_path).run(*name.split(), *arguments)
    assert completed.returncode in (1, 2)
    lines = (completed.stdout + completed.stderr).strip().splitlines()
    assert [line for line in lines if line.startswith(("engram: ", "BAD"))], completed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", sorted(set(store_commands()) - {"store copy", "store sync"}))
def test_empty_variable_is_refused(name: str, tmp_path: Path) -> None:
    here = Here(tmp_path)
    here.env = {"ENGRAM_STORE": ""}
    arguments = []
    for word in ARGUMENTS.get(name, ()):
        if word not in ("--store", "{}"):
            arguments.append(word)
    (line,) = refusals(here(*name.split(), *arguments, code=2).stderr)
    assert "ENGRAM_STORE is set but empty" in line or "--store is missing" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("location", ["", "s3:/bucket", "file:/x"])
def test_functions_refuse_the_same_locations(location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for call in (
        lambda: orchestrator.run("toys", store=location, address="none"),
        lambda: orchestrator.plan("toys", store=location),
        lambda: orchestrator.open("toys", store=location),
    ):
        with pytest.raises(EngramError):
            call()
    assert list(tmp_path.iterdir()) == []


OUTPUTS = {
    "run --junit": ("run", "toys", "--address", "none", "--junit", "{}"),
    "results --junit": ("results", "toys", "summary", "--junit", "{}"),
    "report --junit": ("report", "--junit", "{}"),
    "resume --junit": ("resume", "toys", "--address", "none", "--junit", "{}"),
    "results --out": ("results", "toys", "summary", "--out", "{}.csv"),
    "compare --out": ("compare", "toys", "toys", "--out", "{}.html"),
    "probes --out": ("probes", "unique_feature", "--out", "{}"),
    "ask --out": ("ask", "--have", "data", "--fear", "records", "--out", "{}.yaml"),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the store of a finished run and obstacles where files are to be written."""
    here = Here(tmp_path_factory.mktemp("finished"))
    here.env = {"ENGRAM_REPORT": "no", "MLFLOW_TRACKING_URI": "off"}
    here("run", "toys", "parts=1", "--address", "none")
    for suffix in ("", ".csv", ".html", ".yaml"):
        (here.folder / f"folder{suffix}").mkdir()
        os.mkfifo(here.folder / f"pipe{suffix}")
    return here.folder


@pytest.mark.parametrize("target", ["missing/x", "folder", "/proc/x", "n" * 300, "pipe", ""])
@pytest.mark.parametrize("command", OUTPUTS)
def test_unwritable_file_is_refused_before_the_work(command: str, target: str, finished: Path) -> None:
    if (command, target) in (("probes --out", "folder"), ("probes --out", "missing/x")):
        return  # a folder may exist, and is made
    here = Here(finished)
    here.env = {"ENGRAM_REPORT": "no", "MLFLOW_TRACKING_URI": "off"}
    before = sorted(finished.rglob("*"))
    arguments = []
    for word in OUTPUTS[command]:
        arguments.append(word if "{}" not in word else word.replace("{}", target) if target else "")
    (line,) = refusals(here(*arguments, code=2).stderr)
    assert line.startswith(f"engram: {command.split()[1]}")
    assert sorted(finished.rglob("*")) == before


def test_unprintable_report_is_not_drawn(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished / "engram-store", tmp_path / "engram-store")
    (run,) = tmp_path.glob("engram-store/runs/toys*")
    (run / "report.pdf").mkdir()
    (line,) = Here(tmp_path)("report", "--pdf", code=1).stderr.splitlines()
    assert line.endswith("report.pdf: it is a folder")
    assert not (run / "report.html").exists()
