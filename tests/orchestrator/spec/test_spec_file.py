"""A specification file is read completely. An invalid one gives a line with the position of the error."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.errors import SpecError
from orchestrator.spec import fields, spec_file
from orchestrator.spec.specification import Spec
from orchestrator.spec.yaml_text import YamlError, parse_yaml


def read_text(folder: Path, text: str | bytes) -> Spec:
    path = folder / "asked.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return spec_file.read(path)


def test_every_section_of_a_file_is_read(tmp_path: Path) -> None:
    text = """
        audit: toys
        preset: few
        set: {parts: 3, training: {rate: 0.1}}
        sweep: {label: [a, b]}
        execution: {store: there, address: none, together: auto, stop_after: 1h, tolerate: 2, report: false}
    """
    execution = {"address": "none", "together": None, "stop_after": 3600.0, "tolerate": 2, "report": False}
    expected = Spec("toys", "few", {"parts": 3, "training.rate": 0.1}, {"label": ("a", "b")}, execution, "there")
    assert expected == read_text(tmp_path, text)


def test_none_is_text_and_null_sets_nothing(tmp_path: Path) -> None:
    text = "audit: toys\npreset: none\nexecution: {address: none, keep: none, store: null, tolerate: ~}\n"
    assert Spec("toys", "none", execution={"address": "none", "keep": "none"}) == read_text(tmp_path, text)


def test_number_or_text_is_read_for_mixed_options(tmp_path: Path) -> None:
    text = "audit: toys\nexecution: {together: 4, timeout: 90, stop_after: 1.5}\n"
    assert read_text(tmp_path, text).execution == {"together": 4, "timeout": 90.0, "stop_after": 1.5}
    text = "audit: toys\nexecution: {together: '4', timeout: '90'}\n"
    assert read_text(tmp_path, text).execution == {"together": 4, "timeout": 90.0}


def test_empty_section_sets_nothing(tmp_path: Path) -> None:
    assert Spec("toys") == read_text(tmp_path, "audit: toys\nset:\nsweep:\nexecution:\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "contains nothing; it must be a mapping with audit, preset, set, sweep, execution"),
        ("- audit: toys", "contains a list"),
        ("toys", "contains a str"),
        ("preset: few", "'audit' is missing"),
        ("audit: 3", "audit is 3; it must be text"),
        (
            "audit: toys\nsweeps: {}",
            "unknown key 'sweeps'; valid keys are audit, preset, set, sweep, execution, search; did you",
        ),
        ("audit: toys\nexecution: {adress: none}", "unknown key 'execution.adress'"),
        ("audit: toys\nexecution: {tolerate: x}", "execution.tolerate is 'x'; it must be a whole number"),
        ("audit: toys\nexecution: {tolerate: '3'}", "execution.tolerate is '3', which is text; write it as 3"),
        ("audit: toys\nexecution: {tolerate: true}", "execution.tolerate is True; it must be a whole number"),
        ("audit: toys\nexecution: {tolerate: 1.5}", "execution.tolerate is 1.5; it must be a whole number"),
        ("audit: toys\nexecution: {report: 'no'}", "execution.report is 'no', which is text; write it as false"),
        ("audit: toys\nexecution: {report: 1}", "execution.report is 1; it must be true or false"),
        ("audit: toys\nexecution: {address: [none]}", "execution.address is ['none']; it must be text"),
        ("audit: toys\nexecution: {way: 3}", "execution.way is 3; it must be text"),
        ("audit: toys\nexecution: {timeout: true}", "True is not a duration"),
        ("audit: toys\nexecution: {stop_after: later}", "'later' is not a duration"),
        ("audit: toys\nexecution: {together: x}", "together is 'x'; it must be auto, or 1 or more"),
        ("audit: toys\nexecution: {together: true}", "together is True; it must be auto, or 1 or more"),
        ("audit: toys\nexecution: {together: [1]}", "together is [1]; it must be auto, or 1 or more"),
        ("audit: toys\nexecution: 3", "execution is 3; it must be a mapping, as in execution: {name: value}"),
        ("audit: toys\npreset: {few: 1}", "preset is {'few': 1}; it must be text"),
        ("audit: toys\nset: {3: x}", "set has the key 3; it must be text"),
        ("audit: toys\n3: x", "unknown key '3'; valid keys are audit"),
        ("audit: toys\nset: [1]", "set is [1]; it must be a mapping"),
        ("audit: toys\nsweep: {parts: 3}", "sweep.parts is 3; it must be a list of values"),
        ("audit: toys\nsweep: {parts: []}", "sweep.parts has no values"),
        ("audit: toys\naudit: toys", "line 2, column 1: 'audit' is given twice"),
        ("audit: [toys", "line 1, column 13: expected ',' or ']'"),
        ("audit: toys\nset: {label: !!timestamp x}", "line 2, column 14: 'x' is not a valid timestamp"),
        ("audit: toys\nset: {label: 2024-13-45}", "line 2, column 14: '2024-13-45' is not a valid timestamp"),
        ("audit: toys\nset: {label: !!bool x}", "line 2, column 14: 'x' is not a valid bool"),
        ("audit: toys\nset: {label: !!int ''}", "line 2, column 14: '' is not a valid int"),
        ("audit: toys\nset: &a {label: *a}", "line 2, column 17: aliases are not allowed"),
        ("audit: !!python/object/apply:os.system [x]", "could not determine a constructor for the tag"),
        (b"audit: \xff\xfe", "is not YAML: "),
        (b"\x00\x01\x02", "is not YAML: "),
        ("audit: " + "[" * 2000, "is not YAML: it is nested too deeply"),
        ("#" * 1_000_001, "is larger than the limit of 1,000,000 bytes"),
    ],
)
def test_invalid_file_gives_line_with_position(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(SpecError) as error:
        read_text(tmp_path, text)
    assert (message in str(error.value), len(str(error.value).splitlines())) == (True, 1)
    assert str(error.value).startswith(str(tmp_path / "asked.yaml"))


def test_missing_or_special_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "folder.yaml").mkdir()
    for name, message in (
        ("none.yaml", "does not exist"),
        ("pipe.yaml", "a device, a pipe or a socket, not a file"),
        ("folder.yaml", "Is a directory"),
        ("x" * 300 + ".yaml", "File name too long"),
    ):
        with pytest.raises(SpecError, match=message):
            spec_file.read(tmp_path / name)


def test_command_line_values_are_read_like_files() -> None:
    for text in ("{a: 2024-13-45}", "{a: !!timestamp x}", "{a: &b 1, c: *b}", "{a: 1, a: 2}", "{a", "{" * 3000):
        with pytest.raises(SpecError, match=r"write it as \{name: value, \.\.\.\}"):
            fields._mapping(text, "privacy")
    assert fields._mapping("{a: 1.5}", "privacy") == {"a": 1.5}


def test_yaml_errors_have_a_position() -> None:
    assert parse_yaml("a: [1, null, true, x]") == {"a": [1, None, True, "x"]}
    with pytest.raises(YamlError) as error:
        parse_yaml("a: 1\nb: !!float x")
    assert error.value.line == 2
    assert error.value.column == 4
