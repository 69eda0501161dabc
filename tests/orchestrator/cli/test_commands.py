"""The names of commands: those that are listed, their options, and the former names, which work as before."""

from __future__ import annotations

import re

import pytest

from orchestrator.cli.commands import ALIASES, COMMANDS, visible_commands
from tests.support.shell import Here

RUN = ("run", "toys", "--address", "none", "parts=2")
ELSEWHERE = ("audit",)  # commands that are counted but defined with another change
LISTED = [name for names in visible_commands().values() for name in names]


def options(text: str) -> list[str]:
    """The first names of the options in a help text."""
    return re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, flags=re.M)


def test_fifteen_commands_are_listed() -> None:
    assert len({*LISTED, *ELSEWHERE}) == 15
    assert set(ALIASES).isdisjoint(LISTED)
    names = [name for commands in COMMANDS.values() for name in commands]
    assert {name.split()[0] for name in names} == set(LISTED)


def test_no_arguments_show_five_situations(engram: Here) -> None:
    lines = engram().stdout.splitlines()
    assert [re.split(r" {2,}", line)[0] for line in lines] == [
        "audit a model",
        "audit a training",
        "audit outputs",
        "reproduce a paper",
        "look at results",
    ]
    for line in lines:
        program, name, *_ = re.split(r" {2,}", line)[1].split()
        assert program == "engram"
        assert name in (*LISTED, *ELSEWHERE)


def test_run_help_shows_eight_options(engram: Here) -> None:
    usual = ["--preset", "--sweep", "--dry-run", "--until", "--on", "--store", "--fail-on", "--json"]
    assert options(engram("run", "--help").stdout) == [*usual, "--help-all", "--help"]
    every = options(engram("run", "--help-all").stdout)
    assert {*usual, "--address", "--mlflow", "--junit", "--wait", "--show-images"} <= set(every)
    assert len(every) > 30
    assert options(engram("plan", "--help").stdout)  # former names have one help text
    assert "--address" in options(engram("plan", "--help").stdout)


@pytest.mark.parametrize(
    ("former", "now"),
    [
        ("list", "show"),
        ("list --json", "show --json"),
        ("plan toys parts=3 --json", "run toys parts=3 --dry-run --json"),
        ("plan toys parts=3", "run toys parts=3 --dry-run"),
        ("plan toys no=1", "run toys no=1 --dry-run"),
        ("status", "runs status"),
        ("status toys --json", "runs toys --json"),
        ("logs --json", "runs logs --json"),
        ("logs toys", "runs logs toys"),
        ("cancel toys", "runs cancel toys"),
        ("verify --json", "store verify --json"),
        ("verify toys", "report verify toys"),
        ("verify no.html", "report verify no.html"),
        ("gc", "store gc"),
        ("gc --json", "store gc --json"),
        ("explain toys --json", "debug explain toys --json"),
        ("rerun nothing", "debug rerun nothing"),
        ("sign no.html --key no", "report sign no.html --key no"),
        ("doctor --address none --json", "debug doctor --address none --json"),
        ("new audit 9", "debug new audit 9"),
        ("submit toys --store s --address 10.0.0.1:1", "run toys --store s --on 10.0.0.1:1"),
    ],
)
def test_former_name_does_the_same(engram: Here, former: str, now: str) -> None:
    engram(*RUN)
    before, after = (engram.run(*words.split()) for words in (former, now))
    assert before.returncode == after.returncode
    assert before.stdout == after.stdout
    assert before.stderr == after.stderr


def test_every_former_name_is_tested() -> None:
    (mark,) = (mark for mark in test_former_name_does_the_same.pytestmark if mark.name == "parametrize")  # type: ignore[attr-defined]
    assert {former.split()[0] for former, _ in mark.args[1]} == set(ALIASES)


def test_runs_lists_all_or_shows_one(engram: Here) -> None:
    run = engram.json(*RUN)["run"]
    assert [listed["run"] for listed in engram.json("runs")["runs"]] == [run]
    assert engram.json("runs", run)["run"] == run
    assert "--all is given with the run" in engram("runs", run, "--all", code=2).stderr


def test_dry_run_starts_nothing(engram: Here) -> None:
    assert engram.json(*RUN, "--dry-run", "--mlflow", "off", "--fail-on", "memorised")["planned"] == 3
    assert list(engram.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--dry-run", "--fail-on", "nonsense"), "--fail-on is 'nonsense'"),
        (("--wait",), "--wait is given without --on"),
        (("--on", "http://127.0.0.1:1"), "--store is missing"),
        (("--on", "http://127.0.0.1:1", "--store", "s", "--address", "auto"), "--address is given with --on"),
        (("--on", "http://127.0.0.1:1", "--store", "s", "--dashboard"), "--dashboard is given with --on"),
        (("--on", "http://127.0.0.1:1", "--store", "s", "--junit", "x.xml"), "--junit is given with --on"),
        (("--on", "http://127.0.0.1:1", "--store", "s", "--fail-on", "nonsense"), "--fail-on is 'nonsense'"),
    ],
)
def test_options_without_meaning_are_refused(engram: Here, arguments: tuple[str, ...], message: str) -> None:
    done = engram("run", "questions", "--preset", "smoke", *arguments, code=2)
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(engram.folder.iterdir()) == []
