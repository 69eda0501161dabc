"""The test files that a change affects, and running them until a deadline."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.affected import find_affected, list_changes, run_git
from tests.support.import_graph import find_references, module_name
from tests.support.shell import ROOT
from tests.support.waiting import HANGING

FILES = {
    ".gitignore": "ignored.py\n",
    "pyproject.toml": "",
    "docs/page.md": "a page",
    "product/__init__.py": "",
    "product/base.py": "VALUE = 1\n",
    "product/middle.py": "def read():\n    from product.base import VALUE\n    return open('table.csv')\n",
    "product/table.csv": "1,2\n",
    "product/other.py": "import os\n",
    "product/script.py": "print(1)\n",
    "tests/__init__.py": "",
    "tests/conftest.py": "",
    "tests/support/tool.py": "",
    "tests/product/conftest.py": "",
    "tests/product/test_base.py": "from product import base\n",
    "tests/product/test_middle.py": "import product.middle\nfrom tests.support import tool\n",
    "tests/test_pages.py": "from pathlib import Path\nPAGES = Path('docs')\n",
    "tests/test_script.py": "SCRIPT = 'product/script.py'\n",
    "tests/test_task.py": "TASK = 'product.other:run'\n",
    "tests/toys/toy.py": "import product.other\n",
    "tests/test_toy.py": "import toy\n",
}
ALL = [path for path in FILES if "/test_" in path]
BASE = "tests/product/test_base.py"
MIDDLE = "tests/product/test_middle.py"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write(tmp_path, FILES)
    run_git(tmp_path, "init", "--quiet")
    run_git(tmp_path, "add", ".")
    run_git(tmp_path, "-c", "user.name=T", "-c", "user.email=t@example.org", "commit", "--quiet", "-m", "files")
    return tmp_path


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("changes", "affected"),
    [
        ({}, []),
        ({"product/base.py": "VALUE = 2\n"}, [BASE, MIDDLE]),
        ({"product/base.py": "VALUE = (\n"}, [BASE, MIDDLE]),
        ({"product/middle.py": "VALUE = 2\n"}, [MIDDLE]),
        ({"product/other.py": "import re\n"}, ["tests/test_task.py", "tests/test_toy.py"]),
        ({"product/table.csv": "3\n"}, [MIDDLE]),
        ({"product/script.py": "print(2)\n"}, ["tests/test_script.py"]),
        ({"product/unnamed.txt": "new"}, [BASE, MIDDLE, "tests/test_task.py", "tests/test_toy.py"]),
        ({"tests/golden/product/test_base.yaml": f"# python -m pytest {BASE}\ncase: 1\n"}, [BASE]),
        ({"docs/page.md": "changed"}, ["tests/test_pages.py"]),
        ({"tests/support/tool.py": "A = 1\n"}, [MIDDLE]),
        ({"tests/product/conftest.py": "A = 1\n"}, [BASE, MIDDLE]),
        ({"tests/test_new.py": "A = 1\n"}, ["tests/test_new.py"]),
        ({"ignored.py": "A = 1\n"}, []),
        ({"tests/conftest.py": "A = 1\n"}, ALL),
        ({"pyproject.toml": "[project]"}, ALL),
        ({"pyproject.toml": "[project]", "product/middle.py": "A = 1\n"}, [MIDDLE, *ALL]),
    ],
    ids=lambda value: " ".join(value) or "nothing" if isinstance(value, dict) else "",
)
def test_change_affects_its_nearest_tests_first(repository: Path, changes: dict[str, str], affected: list[str]) -> None:
    write(repository, changes)
    assert find_affected(repository, list_changes(repository, "HEAD")) == list(dict.fromkeys(affected))


def test_removed_module_affects_its_importers(repository: Path) -> None:
    (repository / "product" / "base.py").unlink()
    assert list_changes(repository, "HEAD") == ["product/base.py"]
    assert find_affected(repository, ["product/base.py"]) == [BASE, MIDDLE]


def test_unknown_commit_gives_one_line_error(repository: Path) -> None:
    with pytest.raises(SystemExit, match=r"^git diff: fatal: bad revision 'nowhere'$"):
        list_changes(repository, "nowhere")


@pytest.mark.parametrize(
    ("text", "package", "references"),
    [
        ("import a.b as c", "p", {"a.b"}),
        ("from a import b, c", "p", {"a", "a.b", "a.c"}),
        ("from . import b", "p.q", {"p.q", "p.q.b"}),
        ("from ..c import b", "p.q", {"p.c", "p.c.b"}),
        ("def f():\n    import a", "p", {"a"}),
        ("x = 'a.b:run'", "p", {"a.b"}),
        ("x = 'a sentence. And one'", "p", set()),
        ("x = (", "p", set()),
    ],
)
def test_references_are_read_from_the_source(text: str, package: str, references: set[str]) -> None:
    assert set(find_references(text, package)) == references


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("tasks/contract/job.py", "tasks.contract.job"),
        ("tasks/contract/__init__.py", "tasks.contract"),
        ("tests/toys/chains.py", "chains"),
        ("engram_command.py", "engram_command"),
    ],
)
def test_path_has_the_name_of_its_import(path: str, name: str) -> None:
    assert module_name(path) == name


@pytest.mark.parametrize(
    ("tests", "seconds", "code", "printed"),
    [
        ({"test_a.py": "def test_a(): pass"}, 60, 0, "1 passed"),
        ({"test_a.py": "def test_a(): assert 0", "test_b.py": "def test_b(): pass"}, 60, 1, "1 failed, 1 passed"),
        ({"test_a.py": "def test_a(): pass"}, -1, 0, "Time is up: 1 test files were not started."),
        (
            {"test_a.py": "import time\ndef test_a(): time.sleep(3.1)\ndef test_b(): assert 0\n"},
            3,
            0,
            "Time is up: 1 tests of these files were not started.",
        ),
        ({"test_a.py": "import pytest\n@pytest.mark.slow\ndef test_a(): assert 0\n"}, 60, 0, "1 deselected"),
    ],
    ids=["passed", "failed", "too late", "time is up", "slow"],
)
def test_files_run_until_the_deadline(
    tests: dict[str, str], seconds: float, code: int, printed: str, tmp_path: Path
) -> None:
    write(tmp_path, tests)
    lines = "import sys, time; from tests.affected import run_until; "
    lines += f"sys.exit(run_until({list(tests)}, time.monotonic() + {seconds}))"
    command = [sys.executable, "-W", "ignore", "-c", lines]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HANGING)
    assert done.returncode == code, done.stdout + done.stderr
    assert printed in done.stdout
