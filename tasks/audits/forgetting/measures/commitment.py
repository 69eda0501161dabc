"""Which key was promised to who answered for the pictures? Its SHA-256, as the owner's README.txt has it.

The key says of each picture that was handed out whether it is of D_Q or of the control set. An owner who is sent it
once the table is there can compute its SHA-256, and see that it is the one that stood there before anything was
answered. Only where a table of outputs was given, and there is a control set that nobody could guess: else nothing was
promised.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tasks.audits.forgetting.config import Forgetting
from tasks.audits.forgetting.evidence_rows import HANDED_OUT
from tasks.audits.forgetting.probe_set import ProbeSet, key_table
from tasks.audits.forgetting.trainings import Trainings
from tasks.external.blinding import Split
from tasks.job import Inputs, Job, task
from tasks.measure import Measure, Tables
from tasks.summaries import Row, alone, row

DIGITS = 16  # of the key's SHA-256, in the summary

COMMITMENT = pa.schema(
    [
        ("pictures", pa.int64()),  # that were handed out, those that were so twice counted once each time
        ("key", pa.string()),  # SHA-256 of the key, as the owner was told it
    ]
)


@task(version=1, name="forgetting.commitment")
def commitment(config: ProbeSet, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """The number of pictures and the key's SHA-256 (COMMITMENT), in one row."""
    key = key_table(config)
    return pa.Table.from_pylist([{"pictures": key.num_rows, "key": Split(key).commitment}], COMMITMENT)


def plan(config: Forgetting, trainings: Trainings) -> Job | tuple[()]:
    query = config.query
    if not trainings.targets or not config.given.outputs or not query.is_controlled or query.is_guessable:
        return ()
    return Job(commitment, config.probes)


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    for table in tables.rows(COMMITMENT):
        count = float(table["pictures"])
        yield row(HANDED_OUT, {"key": table["key"][:DIGITS]}, alone(count, table["pictures"]), "picture")


MEASURE = Measure("commitment", COMMITMENT, plan, rows)
