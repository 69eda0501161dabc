"""Thresholds that only the answer reads: no job depends on them, but the run's name does."""

from __future__ import annotations

import dataclasses

import pytest

from orchestrator.planning.identity import run_id
from orchestrator.planning.idle_fields import fields_of_answer
from orchestrator.planning.plan import plan_of
from orchestrator.spec import audits
from orchestrator.spec.config_parts import flatten
from orchestrator.spec.fields import replace_fields
from orchestrator.spec.resolve import Cell, pin_cells, resolve_cells
from orchestrator.spec.specification import Spec
from tasks.audits.membership.answer import ANSWERING
from tests.support.shell import ROOT

AUDITS = sorted(folder.parent.name for folder in (ROOT / "tasks" / "audits").glob("*/config.py"))

THRESHOLDS = ("negligible", "level")


def tiny_cell(audit: str) -> Cell:
    return pin_cells(resolve_cells(Spec(audit, "quickstart", {"scale": "tiny"})), {})[0]


def name_of_run(cell: Cell) -> str:
    return run_id(cell.audit, list(plan_of(cell).jobs), cell.config)


@pytest.mark.parametrize("audit", AUDITS)
def test_every_threshold_of_an_answer_names_the_run(audit: str) -> None:
    cell = tiny_cell(audit)
    registered = audits.find(audit).audit
    if registered.stopping is None:
        stopping = set()
    else:
        stopping = set(registered.stopping.settings(0.05, 1))
    answer_fields = fields_of_answer(registered) - stopping
    thresholds = []
    for path, value in flatten(cell.config):
        # Modules of an answer read a threshold from the config, or from the alternative that they match.
        if isinstance(value, float) and (path in answer_fields or path.rpartition(".")[2] in THRESHOLDS):
            thresholds.append(path)
            changed_cell = dataclasses.replace(cell, config=replace_fields(cell.config, {path: value * 0.9}))
            assert name_of_run(changed_cell) != name_of_run(cell), path
    assert thresholds or audit == "unique_feature"


def test_answering_methods_read_like_their_functions() -> None:
    audit = audits.find("membership").audit
    wording = dataclasses.replace(audit.wording, certificate=ANSWERING.certificate)
    methods = dataclasses.replace(audit, verdict=ANSWERING.verdict, wording=wording)
    assert "training.guarantee" in fields_of_answer(methods)  # which a case of canaries reads
    assert fields_of_answer(methods) == fields_of_answer(audit)
