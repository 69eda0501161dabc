"""The tables of each task and its version: neither changes without the other.

A failure means that the task no longer computes its stored results. If the change is intended, raise the task's
`version`, renew the golden file and review its diff. A fingerprint under an unchanged version is not renewed: if you
changed the table of this test instead of the task, delete its entry first.
"""

from __future__ import annotations

import importlib

import pytest

from tasks.audits.unique_feature.pairs.canary_selection import train_with_canary
from tasks.contract.job import marks
from tasks.training.classifier import train
from tests.support.fingerprint import Computed
from tests.support.golden import FOLDER, Golden, is_close, load, simplify

AUDITS = ("deja_vu", "density", "forgetting", "membership", "relational", "text", "unique_feature")


def list_cases() -> list[object]:
    cases: list[object] = []
    for audit in AUDITS:
        module = importlib.import_module(f"tests.tasks.audits.{audit}.computed_tables")
        for computed in module.TABLES:
            marks_of_case = [pytest.mark.trained] if computed.is_trained else []
            cases.append(pytest.param(audit, computed, id=f"{audit} {computed.name}", marks=marks_of_case))
    return cases


@pytest.mark.parametrize(("audit", "computed"), list_cases())
def test_task_computes_the_tables_of_its_version(golden: Golden, audit: str, computed: Computed) -> None:
    file = f"versions/{audit}.yaml"
    description = simplify(computed.describe())
    entries = load((FOLDER / file).read_text()) if (FOLDER / file).exists() else {}
    entry = entries.get(computed.name, {})
    if golden.files.renew and entry.get("version") == description["version"]:
        assert is_close(description, entry, computed.tolerance), (
            f"raise the version of {computed.name}, or delete its entry"
        )
    golden.compare(file, computed.name, description, computed.tolerance)


def test_training_versions_change_together(golden: Golden) -> None:
    versions = {}
    for task in (train_with_canary, train):
        versions[task.__name__] = marks(task).version
    golden.compare("versions/unique_feature.yaml", "trainings of one kind", versions)
