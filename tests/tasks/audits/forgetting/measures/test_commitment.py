"""The key that an owner was promised is the one that the page names."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from orchestrator.planning.plan import Plan
from tasks.audits.forgetting import AUDIT, plan, split
from tasks.audits.forgetting.external_targets import ExternalTargets
from tasks.audits.forgetting.measures.commitment import COMMITMENT, MEASURE, commitment
from tasks.external.blinding import csv_of
from tasks.files import File
from tasks.job import Job, marks
from tasks.measure import Tables
from tasks.schemas import SUMMARY
from tests.tasks.audits.forgetting.test_plan import SMOKE
from tests.tasks.audits.forgetting.test_verdict import CLEARED, target

SECRET = replace(SMOKE, query=replace(SMOKE.query, secret="b1946ac92492d2347c62"))
SENT = ExternalTargets(outputs=(File("said.csv", "c" * 64),))


def test_the_certificate_names_the_sha256_of_the_key_that_was_handed_out() -> None:
    key = split(SECRET)
    assert key is not None
    table = commitment(SECRET.probes, ())
    (row,) = table.to_pylist()
    digest = hashlib.sha256(csv_of(key.key)).hexdigest()
    assert (1, COMMITMENT) == (marks(commitment).version, table.schema)
    assert {"pictures": 220, "key": digest} == row
    assert MEASURE.rows is not None
    rows = [*target("theirs", *CLEARED), *MEASURE.rows(Tables([table]), None)]
    found = AUDIT.certify("Has it?", replace(SECRET, given=SENT), pa.Table.from_pylist(rows, SUMMARY))
    assert found is not None
    assert found.beyond.endswith(
        f"The key of the pictures that were handed out has a SHA-256 that begins with {digest[:16]}."
    )


@pytest.mark.parametrize(
    ("changes", "planned"),
    [
        ({"given": SENT}, True),
        ({"given": SENT, "query": SMOKE.query}, False),  # whose order can be guessed, so that nothing was promised
        ({"given": SENT, "query": replace(SMOKE.query, held_back=0.0)}, False),
        ({}, False),
    ],
)
def test_it_is_planned_where_an_owner_was_promised_one(changes: dict[str, Any], planned: bool) -> None:
    config = replace(SECRET, **changes)
    roots = plan(config)
    assert planned == ("commitment" in roots)
    names = {marks(job.function).name for job in Plan.from_roots(roots).jobs.values()}
    assert planned == ("forgetting.commitment" in names)
    summary = roots["summary"]
    assert isinstance(summary, Job)
    assert planned == (commitment in {job.function for job in summary.inputs})
