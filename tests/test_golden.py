"""A snapshot fails with a diff, is renewed only with the flag, and loses entries that no test compares."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.golden import FOLDER, TESTS, GoldenFiles, load

TEST = "tests/test_a.py"
TEXT = "The model memorised 3 of 10 records."


def renew_entries(folder: Path, entries: dict[str, object], restricted: bool = False) -> dict[str, object]:
    """The entries of a file after renewing these."""
    files = GoldenFiles(True, folder, restricted)
    for key, value in entries.items():
        files.compare("test_a.yaml", key, value, TEST)
    files.write()
    return load((folder / "test_a.yaml").read_text())


@pytest.mark.parametrize(
    ("key", "value", "reason", "line"),
    [
        ("case", TEXT.replace("3", "4"), "has another value", "-case: The model memorised 3 of 10 records."),
        ("case", {"sentence": TEXT}, "has another value", f"+  sentence: {TEXT}"),
        ("other", TEXT, "has no entry", f"+other: {TEXT}"),
    ],
)
def test_difference_fails_with_its_lines(tmp_path: Path, key: str, value: object, reason: str, line: str) -> None:
    renew_entries(tmp_path, {"case": TEXT})
    files = GoldenFiles(False, tmp_path)
    files.compare("test_a.yaml", "case", TEXT, TEST)
    with pytest.raises(pytest.fail.Exception) as failure:
        files.compare("test_a.yaml", key, value, TEST)
    first, second, *lines = str(failure.value).splitlines()
    assert first == f"tests/golden/test_a.yaml {reason} for {key}."
    assert second.endswith(f"python -m pytest {TEST} --renew-golden")
    assert line in lines
    assert load((tmp_path / "test_a.yaml").read_text()) == {"case": TEXT}


def test_missing_file_fails(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"tests/golden/test_a\.yaml has no entry for case"):
        GoldenFiles(False, tmp_path).compare("test_a.yaml", "case", TEXT, TEST)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("restricted", "expected_keys"), [(False, ["b"]), (True, ["a", "b"])])
def test_renewal_drops_uncompared_entries(tmp_path: Path, restricted: bool, expected_keys: list[str]) -> None:
    renew_entries(tmp_path, {"a": 1, "b": 2})
    assert list(renew_entries(tmp_path, {"b": 3}, restricted)) == expected_keys


@pytest.mark.parametrize(
    "value", ["two\nlines", "a: b", "- 1", "", TEXT * 9, "“é”", (1, 2.5, None), {"x": {"y": [True]}}]
)
def test_renewed_value_is_equal(tmp_path: Path, value: object) -> None:
    renew_entries(tmp_path, {"case": value})
    GoldenFiles(False, tmp_path).compare("test_a.yaml", "case", value, TEST)


@pytest.mark.parametrize(
    ("value", "is_equal"),
    [([1, 2.0], True), ([1, 2.001], True), ([1, 2.1], False), ([1, "2.0"], False), ([2, 2.0], False), ([1], False)],
)
def test_tolerance_is_of_floats_only(tmp_path: Path, value: list[object], is_equal: bool) -> None:
    renew_entries(tmp_path, {"case": [1, 2.0]})
    files = GoldenFiles(False, tmp_path)
    if is_equal:
        files.compare("test_a.yaml", "case", value, TEST, tolerance=1e-3)
        return
    with pytest.raises(pytest.fail.Exception):
        files.compare("test_a.yaml", "case", value, TEST, tolerance=1e-3)


def test_every_entry_has_its_test() -> None:
    for path in FOLDER.rglob("*.yaml"):
        entries = load(path.read_text())
        (module,) = re.findall(r"^# Written by python -m pytest (\S+) --renew-golden$", path.read_text(), re.M)
        source = (TESTS.parent / module).read_text()
        if path.relative_to(FOLDER).with_suffix(".py").as_posix() != module.removeprefix("tests/"):
            assert "golden.compare(" in source
            continue
        names = {re.split(r"\[|: | \(", key)[0] for key in entries}
        assert [name for name in names if f"def {name}(" not in source] == []
