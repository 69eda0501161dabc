"""The number of requests that a run sends to a bucket, per job and for listings."""

from __future__ import annotations

from collections import Counter

import toys

from orchestrator.runs.lifecycle import start
from orchestrator.spec.resolve import Cell
from orchestrator.spec.specification import Execution
from orchestrator.store import open_store
from tests.support.s3 import BUCKET, Server

HERE = Execution(address="none", mlflow="off", report=False)


def requests(s3: Server, parts: int) -> Counter[str]:
    store = open_store(f"s3://{BUCKET}/of-{parts}")
    with s3.counting() as counts:
        report = start([Cell("toys", toys.Config(parts=parts))], store, HERE)
    assert report.state == "finished"
    assert report.jobs["done"] == parts + 1
    return counts


def test_job_costs_few_requests_and_no_listing(s3: Server) -> None:
    """Measured: 2 GET, 3 HEAD and 1 PUT for a job; in all 13 to 18 listings. Heartbeats add some as time passes."""
    few = requests(s3, 4)
    many = requests(s3, 24)
    more = {kind: (many[kind] - few[kind]) / 20 for kind in {*few, *many}}
    assert more.pop("LIST") < 0.5
    assert 3 <= sum(more.values()) < 8
