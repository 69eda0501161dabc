"""The pages of the documentation: their links lead somewhere, and what they show of the command line is accepted."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from orchestrator.cli import app

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]


def anchors(page: Path) -> set[str]:
    """What a page's headings are called in links."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_documentation_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if not target.startswith("http"):
            name, _, anchor = target.partition("#")
            there = page.parent / name if name else page
            assert there.exists(), target
            assert not anchor or anchor in anchors(there), target


def test_every_page_can_be_reached_from_the_readme() -> None:
    linked = set(re.findall(r"\]\(docs/(\w+\.md)", (ROOT / "README.md").read_text()))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} == linked


def commands(page: Path) -> Iterator[list[str]]:
    """The words of each `engram` command in a console block of a page."""
    for block in re.findall(r"```console\n(.*?)```", page.read_text(), flags=re.S):
        for line in block.replace("\\\n", " ").splitlines():
            shown = re.match(r"\$ (?:PYTHONPATH=\S+ )?engram (.*)", line)
            if shown:
                yield shlex.split(re.split(r" [|&#](?: |$)", shown[1])[0])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_that_are_shown_are_ours_with_options_that_they_have(page: Path) -> None:
    for name, *words in commands(page):
        command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
        command.make_context(name, words)  # which raises for an option that there is not
