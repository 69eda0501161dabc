"""The documentation: its site builds, its links have targets, and its commands run or can be planned."""

from __future__ import annotations

import datetime
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import typer
from PIL import Image

from orchestrator.cli import gate, reference
from orchestrator.cli.commands import app
from orchestrator.errors import EngramError, SpecError
from orchestrator.planning.plan import plan_of
from orchestrator.runs import report
from orchestrator.spec import audits
from orchestrator.spec.audits import names
from orchestrator.spec.json_schema import describe_specification
from orchestrator.spec.resolve import pin_cells, resolve_cells
from orchestrator.spec.specification import Spec
from tasks.contract.job import marks
from tests.support.shell import ROOT, Here

DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS, *sorted((ROOT / "examples").rglob("*.md"))]
FEW = 60  # minimum number of words of a page
HERE = "planned by tests/test_docs.py"
BY = "run by tests/test_docs.py"


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def links(page: Path) -> list[str]:
    """The targets of a page's links within the project."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    matches = re.findall(r"\]\(([^)]+)\)|(?:href|src|srcset)=\"([^\"]+)\"", text)
    result = []
    for pair in matches:
        for link in pair:
            if link and not link.startswith("http"):
                result.append(link)
    return result


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.M)
    result = set()
    for heading in headings:
        result.add(re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-"))
    return result


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_have_targets(page: Path) -> None:
    for target in links(page):
        name, _, anchor = target.partition("#")
        target_page = page.parent / name if name else page
        assert target_page.exists(), target
        assert not anchor or anchor in anchors(target_page), target


@pytest.mark.parametrize("page", DOCS, ids=page_name)
def test_site_pages_have_text_and_internal_links(page: Path) -> None:
    assert len(page.read_text().split()) >= FEW
    assert [link for link in links(page) if ".." in link] == []


def test_navigation_and_links_reach_every_page() -> None:
    site = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    assert sorted(page.name for page in DOCS) == sorted(leaves(site["nav"]))
    reached_pages = set[Path]()
    ahead = [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        near = {(page.parent / link.partition("#")[0]).resolve() for link in links(page)}
        new = {linked for linked in near if linked.suffix == ".md"} - reached_pages
        reached_pages |= new
        ahead += new
    assert set(DOCS) <= reached_pages


def leaves(part: Any) -> list[str]:
    """The pages of a navigation."""
    if isinstance(part, str):
        return [part]
    result = []
    for entry in part.values() if isinstance(part, dict) else part:
        result.extend(leaves(entry))
    return result


def test_site_builds_without_external_requests(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    command = [Path(sys.executable).parent / "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    built = {}
    for page in (tmp_path / "site").glob("*.html"):
        built[page.stem] = page.read_text()
    assert {page.stem for page in DOCS} <= built.keys()
    assert [
        request
        for page in built.values()
        for request in re.findall(r"(?:src|<link[^>]* href)=\"?https?:[^\" >]*", page)
    ] == []


def test_page_of_commands_is_current() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    assert reference.update_page(page) == page, "run `make docs`"


@pytest.mark.parametrize("name", [name for name in audits.names() if audits.find(name).audit.wording.rules is not None])
def test_page_of_audit_has_current_rules(name: str) -> None:
    audit = audits.find(name).audit
    page = reference.rules_page(ROOT / "docs", name).read_text()
    assert audit.wording.rules is not None
    assert reference.rewrite_rules(page, audit.wording.rules, audit.config()) == page, "run `make docs`"


@pytest.mark.parametrize("name", [page.stem for page in DOCS if page.stem in audits.names()])
def test_schema_is_current(name: str) -> None:
    schema = json.loads((ROOT / "docs" / "schema" / f"{name}.json").read_text())
    assert schema == json.loads(json.dumps(describe_specification(name, audits.find(name).audit))), "run `make docs`"


def test_page_of_law_has_current_controls() -> None:
    page = (ROOT / "docs" / "law.md").read_text()
    assert reference.rewrite_controls(page) == page, "run `make docs`"
    audit_names = sorted(file.parent.name for file in (ROOT / "tasks" / "audits").glob("*/__init__.py"))
    assert audit_names == re.findall(r"^\| `(\w+)` \|", page, flags=re.M)
    assert all(audit in audits.names() for audit in audit_names)


def test_exit_codes_and_variables_are_documented() -> None:
    assert set(reference.EXIT_CODES) == {
        *report.EXIT_CODES.values(),
        EngramError.exit_code,
        SpecError.exit_code,
        gate.EXIT_CODE,
    }
    sources = []
    for part in ("orchestrator", "tasks", "dashboards"):
        for path in (ROOT / part).rglob("*.py"):
            sources.append(path.read_text())
    variables = set()
    for text in sources:
        for name in re.findall(r"\"(ENGRAM_[A-Z]+)\"", text):
            variables.add(name)
    documented = set()
    for page in ("commands", "own_training"):
        documented |= set(re.findall(r"`(\w+)`", (ROOT / "docs" / f"{page}.md").read_text()))
    # These mark the processes of a cluster, a worker or a job; users do not set them.
    assert variables - {"ENGRAM_CLUSTER", "ENGRAM_WORKER", "ENGRAM_JOB", "ENGRAM_GROUP"} <= documented


class Block(NamedTuple):
    """A terminal block of a page: the test or date of its run, and the typed lines."""

    page: Path
    mark: str
    typed: list[str]

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """Yield PYTHONPATH and the words of each `engram` command."""
        for line in self.typed:
            command = re.match(r"(?:PYTHONPATH=(\S+) )?engram (.*)", line)
            if command:
                yield command[1] or "", shlex.split(re.split(r" [|&#](?: |$)", command[2])[0])


def blocks() -> Iterator[Block]:
    for page in PAGES:
        for mark, content in re.findall(r"^ *```console(.*?)\n(.*?)```", page.read_text(), flags=re.S | re.M):
            lines = content.replace("\\\n", " ").splitlines()
            yield Block(page, mark.strip(), [line.strip()[2:] for line in lines if line.strip().startswith("$ ")])


BLOCKS = list(blocks())


def block_id(block: Block) -> str:
    return f"{page_name(block.page)}: {block.typed[0] if block.typed else ''}"


@pytest.mark.parametrize("block", BLOCKS, ids=block_id)
def test_terminal_blocks_have_date_or_test(block: Block) -> None:
    stamp = re.fullmatch(r"title=\"(?:run (\d{4}-\d\d-\d\d)|(?:run|planned) by (tests/\S+\.py))\"", block.mark)
    assert stamp, f'```console title="run YYYY-MM-DD", or "run by tests/...": {block.mark}'
    assert not stamp[1] or datetime.date.fromisoformat(stamp[1]) <= datetime.date.today()
    assert not stamp[2] or (ROOT / stamp[2]).exists()


@pytest.mark.parametrize("block", [block for block in BLOCKS if [*block.commands()]], ids=block_id)
def test_shown_commands_are_valid(block: Block) -> None:
    for _, (name, *words) in block.commands():
        group: Any = typer.main.get_command(app)
        context = group.make_context("engram", [name, *words])  # raises an error for an unknown option
        while hasattr(context.command, "commands"):
            name, command, words = context.command.resolve_command(context, [name, *words])
            context = command.make_context(name, words, parent=context)
            name, words = (words or [""])[0], words[1:]


def page_scripts(name: str) -> dict[str, str]:
    """The scripts of a page: Python blocks whose first line is a comment with a file name."""
    blocks = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", (ROOT / "docs" / f"{name}.md").read_text(), flags=re.S)
    return dict(blocks)


@pytest.fixture(scope="module")
def engram(tmp_path_factory: pytest.TempPathFactory) -> Here:
    """A folder with the images, network and examples that the pages name."""
    folder = tmp_path_factory.mktemp("pages")
    rng = np.random.default_rng(0)
    for name in ("scans", "ours", "theirs", "elsewhere"):
        for image in range(40):
            path = folder / name / f"class {image % 2}" / f"{image}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (64, 64), dtype=np.uint8)).save(path)
    for name in ("stamp.png", "mask.png"):
        Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8)).save(folder / name)
    network = re.findall(r"```python\n(# hospital.py.*?)```", (ROOT / "docs" / "networks.md").read_text(), flags=re.S)
    (folder / "hospital.py").write_text("import math\nimport torch\nfrom torch import nn\n" + network[0])
    (folder / "train.py").write_text(page_scripts("own_training")["train.py"])
    (folder / "generator.py").write_text((ROOT / "examples" / "training" / "generator.py").read_text())
    (folder / "examples").symlink_to(ROOT / "examples")
    return Here(folder)


@pytest.mark.parametrize("block", [block for block in BLOCKS if BY in block.mark], ids=block_id)
def test_short_commands_run(block: Block, engram: Here) -> None:
    for _, words in block.commands():
        engram(*words)


@pytest.mark.parametrize("block", [block for block in BLOCKS if HERE in block.mark], ids=block_id)
def test_long_runs_are_planned(block: Block, engram: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, (name, *words) in block.commands():
        if path:
            monkeypatch.syspath_prepend(engram.folder / path)
        if name == "run":
            plan_result = engram.run("run", "--dry-run", *(word.replace("$secret", 32 * "0") for word in words))
            absent = re.search(r"no file|no train/|set ENGRAM_DATA", plan_result.stderr)
            assert plan_result.returncode == 0 or (plan_result.returncode == 1 and absent), plan_result.stderr


ROWS = dict(re.findall(r"^\| \[`(\w+)`\][^|]*\|[^|]*\| ([^,|]+),", (ROOT / "README.md").read_text(), flags=re.M))


def test_every_audit_has_a_row() -> None:
    audits = set()
    for path in (ROOT / "tasks/audits").iterdir():
        if not path.name.startswith("_"):
            audits.add(path.stem)
    assert audits == set(ROWS) <= set(names())


@pytest.mark.parametrize("audit", ROWS)
def test_quickstart_trainings_match_readme(audit: str) -> None:
    (cell,) = pin_cells(resolve_cells(Spec(audit, preset="quickstart")), {})
    jobs = [job for job in plan_of(cell).jobs.values() if marks(job.function).trains]
    links = sum(marks(job.function).trains for job in jobs)
    trainings = sum(marks(job.function).trains for job in jobs if job.after is None)
    in_links = f" in {links} links" if links > trainings else ""
    assert ROWS[audit] == f"{trainings} trainings{in_links}"
