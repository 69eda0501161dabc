"""Audits of this project and of other packages are found by name. A broken one gives a one-line error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import toys

from orchestrator.errors import EngramError, SpecError
from orchestrator.spec import audits
from tasks.user_code import closure
from tasks.user_code.closure import SourceFile
from tests.support.packages import offer

# As in a shell: pytest has the toys on its own path.
ENV = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (Path(toys.__file__).parent, Path(__file__).parents[3])))}


def test_all_audits_are_listed_in_order() -> None:
    names = audits.names()
    assert names == sorted(names)
    assert set(names) >= {"toys", "unique_feature"}


def test_listing_names_imports_no_audit() -> None:
    script = (
        "import sys; from orchestrator.spec import audits; names = audits.names(); "
        "print('toys' in sys.modules, [m for m in sys.modules if m.startswith('tasks.audits.')], 'toys' in names)"
    )
    completed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=ENV)
    assert completed.stdout.strip() == "False [] True"


def test_audit_has_the_question_it_answers() -> None:
    registered = audits.find("toys")
    assert registered.audit == toys.AUDIT
    assert registered.question == "How far does a sum get when its parts are lost?"


def test_files_of_an_audit_are_read_once_inside_find_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read_modules: list[str] = []

    def find_user_files(module: str) -> dict[str, SourceFile]:
        read_modules.append(module)
        return closure.find_user_files(module)

    monkeypatch.setattr(audits, "find_user_files", find_user_files)
    with audits.find_once(), audits.find_once():
        first = audits.find("toys")
        assert audits.find("toys") is first
    assert read_modules == ["toys"]
    audits.find("toys")
    audits.find("membership")
    assert read_modules == ["toys", "toys"]


def test_reexported_audit_is_documented_by_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(tmp_path, "passed_on", "passes_on:AUDIT", passes_on="from toys import AUDIT")
    monkeypatch.syspath_prepend(tmp_path)
    reexported = audits.find("passed_on")
    original = audits.find("toys")
    assert original.question == reexported.question
    assert original.documentation == reexported.documentation


def test_unknown_audit_is_refused_with_nearest_name() -> None:
    with pytest.raises(SpecError, match=r"unknown audit 'unique_featur'.*did you mean 'unique_feature'\?"):
        audits.find("unique_featur")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import nowhere_to_be_found", "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("this is no python", "SyntaxError"),
        ("raise RuntimeError('two\\nlines')", "RuntimeError: two"),
        ("AUDIT = 'a text'", "has no AUDIT that is a tasks.contract.audit.Audit"),
    ],
)
def test_broken_package_gives_one_line_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, problem: str
) -> None:
    module = f"broken_{abs(hash(text))}"
    offer(tmp_path, "broken", f"{module}:AUDIT", **{module: text})
    monkeypatch.syspath_prepend(tmp_path)
    assert "broken" in audits.names()
    with pytest.raises(EngramError) as raised:
        audits.find("broken")
    assert raised.value.exit_code == 1
    assert problem in str(raised.value)
    assert "package broken" in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


def test_package_cannot_reuse_an_audit_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(tmp_path, "unique_feature", "toys:AUDIT")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EngramError, match=r"package unique_feature .* offers another one"):
        audits.find("unique_feature")


def test_packages_are_listed_again_after_path_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    entry_points = audits.entry_points

    def counted(**arguments: str) -> object:
        looked.append(arguments["group"])
        return entry_points(**arguments)

    monkeypatch.setattr(audits, "entry_points", counted)
    monkeypatch.syspath_prepend(tmp_path / "new")
    for _ in range(3):
        audits.find("toys")
    assert looked == ["engram.audits"]
    offer(tmp_path / "newer", "later", "later:AUDIT")
    assert "later" not in audits.names()
    monkeypatch.syspath_prepend(tmp_path / "newer")
    assert "later" in audits.names()
