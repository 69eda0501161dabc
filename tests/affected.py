"""Run the fast tests that the changes of the working tree affect, nearest first, until the time is up.

    python -m tests.affected [--base HEAD] [--seconds 45] [--list]

A test file is affected if it imports a changed module, directly or through other modules; its distance is the number of
imports between them. The test file of a changed module (`tests/PACKAGE/test_MODULE.py`) comes first. Two more rules
cover what imports do not show:

- A changed `conftest.py` affects all tests below it, and a changed lock or `pyproject.toml` all tests.
- A file that is not imported counts as a change of the modules that name it. If only tests name it, it also counts as a
  change of the modules of the nearest folder with modules, or of the tests that name its top folder. A
  snapshot in `tests/golden/` affects the test file that its first line names.

Not seen: a module that is found by a name that the program composes (except those in FOUND_BY_NAME), and data that are
found by listing a folder. Tests that are marked slow are left out. `make test-all` runs everything.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

import pytest

from tests.support.import_graph import Source, find_distances, find_importers, module_name, read_sources

ROOT = Path(__file__).resolve().parents[1]
# Modules that find others by name: by entry points, by a folder's content, or as a command.
FOUND_BY_NAME = {
    "orchestrator.spec.audits": r"tasks\.audits\.\w+",
    "orchestrator.inspection.pages": r"dashboards\.(page|comparison|live)",
    "dashboards.audits": r"dashboards\.audits\.\w+",
    "tests.support.shell": r"orchestrator\.__main__|engram_command",
}
WHOLE_TREE = ("tests/test_layers.py", "tests/test_callers.py")  # read every module and import none
AFFECT_ALL = ("pyproject.toml", "requirements.lock", "requirements-cpu.lock", "Makefile")
BATCH = 20  # files that pytest collects at a time; 20 take some 5 s of a core
PYTEST_OPTIONS = ("-q", "--no-header", "--disable-warnings", "-m", "not slow")
SUCCEEDED = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


class Deadline:
    """A pytest plugin that starts no test after the deadline and counts the tests left out."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.left_out = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> bool | None:
        if time.monotonic() < self.deadline:
            return None
        self.left_out += 1
        return True


def main(arguments: Sequence[str] | None = None) -> int:
    started = time.monotonic()
    parser = argparse.ArgumentParser(prog="python -m tests.affected", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--base", default="HEAD", help="the commit that the working tree is compared with")
    parser.add_argument("--seconds", type=float, default=45, help="start no test after this time")
    parser.add_argument("--list", action="store_true", help="list the affected test files and run none")
    options = parser.parse_args(arguments)
    changed = list_changes(ROOT, options.base)
    files = find_affected(ROOT, changed)
    if options.list:
        print("\n".join(files))
        return 0
    print(f"{len(changed)} changed files affect {len(files)} test files", flush=True)
    return run_until(files, started + options.seconds)


def run_until(files: Sequence[str], deadline: float) -> int:
    """Run test files in their order until the deadline; 1 if a test failed."""
    failed = False
    for start in range(0, len(files), BATCH):
        if time.monotonic() >= deadline:
            print(f"Time is up: {len(files) - start} test files were not started. `make test` runs all.")
            break
        plugin = Deadline(deadline)
        code = pytest.main([*PYTEST_OPTIONS, *files[start : start + BATCH]], [plugin])
        if code == pytest.ExitCode.INTERRUPTED:
            return int(code)
        failed |= code not in SUCCEEDED
        if plugin.left_out:
            print(f"Time is up: {plugin.left_out} tests of these files were not started.")
    return int(failed)


def list_changes(root: Path, base: str) -> list[str]:
    """The paths that differ from a commit: modified, removed, and new ones that git does not ignore."""
    differing = run_git(root, "diff", "--name-only", "--no-renames", "-z", base, "--")
    untracked = run_git(root, "ls-files", "--others", "--exclude-standard", "-z")
    return sorted({*differing, *untracked})


def run_git(root: Path, *arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"git {arguments[0]}: {done.stderr.strip()}")
    return [path for path in done.stdout.split("\0") if path]


def find_affected(root: Path, changed: Sequence[str]) -> list[str]:
    """The test files that these changes affect, the nearest first."""
    if not changed:
        return []
    present = run_git(root, "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    sources = read_sources(root, present)
    removed = {module_name(path) for path in changed if path.endswith(".py")} - set(sources)
    importers = find_importers(sources, removed)
    for finder, pattern in FOUND_BY_NAME.items():
        for name in filter(re.compile(pattern).fullmatch, importers):
            importers[name].add(finder)
    golden = find_golden_tests(root, changed)
    changed_sources = [path for path in changed if path not in golden]
    distances = find_distances(find_changed_modules(changed_sources, sources, importers), importers)
    ranks = {source.path: distances[name] for name, source in sources.items() if name in distances}
    tests = [source.path for source in sources.values() if is_test(source.path)]
    for path in changed:
        ranks |= {test: 0 for test in tests if test in (own_test(path), golden.get(path))}
        if PurePosixPath(path).name == "conftest.py":
            folder = f"{PurePosixPath(path).parent}/"
            ranks |= {test: ranks.get(test, 1) for test in tests if test.startswith(folder)}
    if any(path.endswith(".py") for path in changed):
        ranks |= {test: ranks.get(test, 1) for test in WHOLE_TREE}
    if set(AFFECT_ALL) & set(changed):
        ranks |= {test: ranks.get(test, len(sources)) for test in tests}
    return sorted({test for test in tests if test in ranks}, key=lambda test: (ranks[test], test))


def find_changed_modules(
    changed: Iterable[str], sources: Mapping[str, Source], importers: Mapping[str, Iterable[str]]
) -> Iterator[str]:
    """The changed modules, and the modules that name a changed file which is not imported."""
    for path in changed:
        name = module_name(path)
        if path.endswith(".py"):
            yield name
        if not path.endswith(".py") or not (importers.get(name) or is_test(path)):
            yield from find_users(path, sources)


def find_users(path: str, sources: Mapping[str, Source]) -> list[str]:
    """The modules that name a file. Without one outside tests, also the modules of the nearest folder that has any."""
    file = PurePosixPath(path)
    is_python = file.suffix == ".py"
    words = rf"{re.escape(file.stem)}(\.py)?" if is_python else re.escape(file.name)
    users = find_mentions(words, [name for name, source in sources.items() if source.path != path], sources)
    if is_python or any(not sources[name].path.startswith("tests/") for name in users):
        return users
    for folder in list(file.parents)[:-1]:
        neighbours = []
        for name, source in sources.items():
            if PurePosixPath(source.path).parent == folder:
                neighbours.append(name)
        if neighbours:
            return [*users, *neighbours]
    tests = [name for name, source in sources.items() if is_test(source.path)]
    return users + find_mentions(re.escape(file.parts[0]), tests, sources)


def find_mentions(words: str, names: Iterable[str], sources: Mapping[str, Source]) -> list[str]:
    """The modules in whose text a pattern is a string, or the end of a path in a string."""
    pattern = re.compile(rf"""["'/]{words}["']""")
    return [name for name in names if pattern.search(sources[name].text)]


def own_test(path: str) -> str:
    """The test file of a module, if it is where the other tests are."""
    file = PurePosixPath(path)
    return str(PurePosixPath("tests") / file.parent / f"test_{file.stem}.py")


def find_golden_tests(root: Path, changed: Iterable[str]) -> dict[str, str]:
    """The snapshots among these files, each with the test file that its first line names."""
    test_by_snapshot = {}
    for path in changed:
        file = root / path
        if path.startswith("tests/golden/") and file.exists():
            command = re.search(r"pytest (\S+)", file.read_text().partition("\n")[0])
            if command is not None:
                test_by_snapshot[path] = command[1]
    return test_by_snapshot


def is_test(path: str) -> bool:
    file = PurePosixPath(path)
    return file.parts[0] == "tests" and file.name.startswith("test_") and file.suffix == ".py"


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
