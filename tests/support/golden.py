"""Snapshots: values that a test compares with a file in `tests/golden/`, which a person reviews.

    def test_verdict_of_many_secrets(golden: Golden) -> None:
        golden(verdict(CONFIG, table).sentence)

The file is named after the test's module; the entry's key is the test's name with its parameters, and a label. The
option `--renew-golden` writes the entries of the tests that run, and removes those that these no longer compare. Unless
the run was restricted to some tests, it removes all entries of the module's file that no test compared.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

TESTS = Path(__file__).resolve().parents[1]
FOLDER = TESTS / "golden"
WIDTH = 118
WORD = 20
HOW = "If the change is meant, renew the file and review its diff: python -m pytest {test} --renew-golden"
HEAD = "# Written by python -m pytest {test} --renew-golden\n"


class Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and mappings in their order."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def represent_text(dumper: Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


def represent_list(dumper: Dumper, values: list[Any]) -> yaml.SequenceNode:
    """Lists of numbers and words on one line, others with an element on each."""
    is_short = all(len(str(value)) <= WORD and not isinstance(value, (dict, list)) for value in values)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=is_short)


Dumper.add_representer(str, represent_text)
Dumper.add_representer(list, represent_list)


def dump(value: Any) -> str:
    return yaml.dump(value, Dumper=Dumper, allow_unicode=True, sort_keys=False, width=WIDTH)


def load(text: str) -> dict[str, Any]:
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) or {}


def simplify(value: Any) -> Any:
    """The value as YAML has it: mappings, lists, texts, numbers and None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        result = {}
        for field in dataclasses.fields(value):
            result[field.name] = simplify(getattr(value, field.name))
        return result
    if isinstance(value, Mapping):
        return {str(name): simplify(element) for name, element in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(map(simplify, value))
    if isinstance(value, (list, tuple)):
        return [simplify(element) for element in value]
    if isinstance(value, np.generic):
        return value.item()
    return value


def is_close(value: Any, expected: Any, tolerance: float) -> bool:
    """Whether two simplified values are equal, numbers within the relative tolerance."""
    if isinstance(value, dict) and isinstance(expected, dict):
        return list(value) == list(expected) and all(is_close(value[name], expected[name], tolerance) for name in value)
    if isinstance(value, list) and isinstance(expected, list):
        return len(value) == len(expected) and all(map(is_close, value, expected, [tolerance] * len(value)))
    if isinstance(value, float) and isinstance(expected, (int, float)):
        return bool(value == pytest.approx(expected, rel=tolerance, abs=0))
    return bool(value == expected and type(value) is type(expected))


def find_owner(key: str, tests: Iterable[str]) -> str | None:
    """The name of the test that compares an entry."""
    return next((test for test in tests if key == test or key.startswith((f"{test}: ", f"{test} ("))), None)


def golden_file(test: Path) -> str:
    """The golden file of a test module, relative to the folder."""
    return test.relative_to(TESTS).with_suffix(".yaml").as_posix()


class GoldenFiles:
    """The golden files of a session, each read once. Renewed files are written when the session ends."""

    def __init__(self, renew: bool, folder: Path = FOLDER, restricted: bool = False) -> None:
        self.renew = renew
        self.folder = folder
        self.restricted = restricted  # to some of the tests of a module
        self.entries: dict[str, dict[str, Any]] = {}
        self.compared: dict[str, dict[str, str]] = {}  # file -> keys -> the test file that compared them
        self.ran: dict[str, set[str]] = {}  # file -> the names of the tests that ran
        self.collected: dict[str, set[str]] = {}  # file -> the names of its tests, if all were collected

    def read(self, file: str) -> dict[str, Any]:
        if file not in self.entries:
            path = self.folder / file
            self.entries[file] = load(path.read_text()) if path.exists() else {}
        return self.entries[file]

    def compare(self, file: str, key: str, value: Any, test: str, tolerance: float = 0.0) -> None:
        """Fail the test if an entry of the file differs from the value. Replace it if files are renewed."""
        value = simplify(value)
        entries = self.read(file)
        self.compared.setdefault(file, {})[key] = test
        is_present = key in entries
        if is_present and is_close(value, entries[key], tolerance):
            return
        if self.renew:
            entries[key] = value
            return
        expected = dump({key: entries[key]}).splitlines() if is_present else []
        name = f"tests/golden/{file}"
        difference = difflib.unified_diff(expected, dump({key: value}).splitlines(), name, "this test", lineterm="")
        reason = "has another value" if is_present else "has no entry"
        pytest.fail("\n".join([f"{name} {reason} for {key}.", HOW.format(test=test), *difference]), pytrace=False)

    def is_stale(self, file: str, key: str) -> bool:
        """Whether no collected test compares an entry any more."""
        if key in self.compared[file]:
            return False
        if not self.restricted:
            return True
        if find_owner(key, self.ran.get(file, set())):
            return True
        return file in self.collected and not find_owner(key, self.collected[file])

    def write(self) -> None:
        """Write the files whose entries were compared, without the stale ones."""
        for file, keys in self.compared.items():
            current_entries = {}
            for key, value in self.entries[file].items():
                if not self.is_stale(file, key):
                    current_entries[key] = value
            path = self.folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            test = next(iter(keys.values()))
            blocks = [dump({key: value}) for key, value in current_entries.items()]
            path.write_text("\n".join([HEAD.format(test=test), *blocks]))


class Golden:
    """The entries of one test: `golden(value)`, or `golden(value, "label")` if it compares several."""

    def __init__(self, files: GoldenFiles, test: Path, name: str) -> None:
        self.files = files
        self.module = test.relative_to(TESTS)
        self.file = golden_file(test)
        files.ran.setdefault(self.file, set()).add(name)
        self.name = name
        self.counts: Counter[str] = Counter()

    def __call__(self, value: Any, label: str = "") -> None:
        """Compare a value with an entry of the test's own file. Equal labels are numbered, as in a loop."""
        key = f"{self.name}: {label}" if label else self.name
        self.counts[key] += 1
        if self.counts[key] > 1:
            key = f"{key} ({self.counts[key]})"
        self.compare(self.file, key, value)

    def compare(self, file: str, key: str, value: Any, tolerance: float = 0.0) -> None:
        """Compare a value with an entry of any file, numbers within a relative tolerance."""
        self.files.compare(file, key, value, f"tests/{self.module.as_posix()}", tolerance)


def is_restricted(config: pytest.Config) -> bool:
    """Whether a run leaves out some tests of its modules."""
    selected = config.getoption("keyword") or config.getoption("markexpr") or config.getoption("deselect")
    return bool(selected) or any("::" in argument for argument in config.args) or config.getoption("lf", False)
