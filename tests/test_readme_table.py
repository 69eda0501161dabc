"""The table of audits in the README says what the plans of the quickstarts train."""

from __future__ import annotations

import re

import pytest

from orchestrator.planning.plan import plan_of
from orchestrator.spec.audits import names
from orchestrator.spec.resolve import pin_cells, resolve_cells
from orchestrator.spec.specification import Spec
from tasks.job import marks
from tests.support.shell import ROOT

ROWS = dict(re.findall(r"^\| \[`(\w+)`\][^|]*\|[^|]*\| ([^,|]+),", (ROOT / "README.md").read_text(), flags=re.M))


def test_every_audit_has_a_row() -> None:
    assert {"unique_feature", "forgetting", "density", "relational", "deja_vu"} == set(ROWS) <= set(names())


@pytest.mark.parametrize("audit", ROWS)
def test_the_trainings_of_a_quickstart_are_those_of_its_plan(audit: str) -> None:
    (cell,) = pin_cells(resolve_cells(Spec(audit, preset="quickstart")), {})
    jobs = [job for job in plan_of(cell).jobs.values() if marks(job.function).trains]
    links = sum(marks(job.function).trains for job in jobs)
    trainings = sum(marks(job.function).trains for job in jobs if job.after is None)
    in_links = f" in {links} links" if links > trainings else ""
    assert f"{trainings} trainings{in_links}" == ROWS[audit]
