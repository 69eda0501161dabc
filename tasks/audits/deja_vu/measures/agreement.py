"""Does a table give one embedding to one picture, wherever it stands?

Some public pictures were handed out twice: among the public pictures, and whole among the crops. An encoder that is
asked as it should be gives both the same numbers, but for the last digits. Where they differ, the crops were answered
otherwise than pictures: by noise, by one vector for all, or by another model. Whoever looks at each picture can answer
crops otherwise and whole pictures alike, which is not found here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tasks.audits.deja_vu.attack import Attack, crops_of, handed_out
from tasks.audits.deja_vu.config import DejaVu
from tasks.audits.deja_vu.encoder_config import EncoderTable, Given
from tasks.audits.deja_vu.trainings import Trainings
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.schemas import make_table
from tasks.contract.summaries import Row, row
from tasks.datasets.catalog import load_with_boxes
from tasks.numerics.statistics import proportion
from tasks.worker.files import File

DISAGREEING = "repeated pictures with two embeddings"

AGREEMENT = pa.schema(
    [
        ("repeated", pa.int64()),  # pictures that were handed out twice
        ("differing", pa.int64()),  # of these with two embeddings
    ]
)


@dataclass(frozen=True)
class Repeats:
    """What was handed out, how many pictures of it twice, and the table that was sent."""

    attack: Attack
    repeated: int
    embeddings: File


@task(version=1, name="deja_vu.agreement")
def agreement(config: Repeats, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - reads a file
    """The pictures that were answered twice (AGREEMENT), in one row.

    Two embeddings are one where no coordinate is further apart than SAME of the largest coordinate of both.
    """
    from tasks.external.encoders import SAME
    from tasks.external.sent_table import read_embeddings

    pictures = load_with_boxes(config.attack.data, config.attack.correlation)
    handed = handed_out(crops_of(config.attack, pictures), pictures, config.repeated)
    table, public = read_embeddings(config.embeddings), handed.public_ids
    again, first = table.select(handed.repeated_ids), table.select([public[place] for place in handed.repeated])
    apart, largest = np.abs(again - first).max(axis=1), np.maximum(np.abs(again), np.abs(first)).max(axis=1)
    return make_table(AGREEMENT, repeated=len(apart), differing=int((apart > SAME * largest).sum()))


def plan(config: DejaVu, trainings: Trainings) -> Job | tuple[()]:
    match config.encoders:
        case Given(encoder=EncoderTable(embeddings=embeddings, repeated=repeated)) if embeddings and repeated:
            return Job(agreement, Repeats(trainings.attack, repeated, embeddings))
    return ()


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    for each in tables.rows(AGREEMENT):
        yield row(DISAGREEING, {}, proportion(each["differing"], each["repeated"]), "picture", 0.0)


MEASURE = Measure("agreement", AGREEMENT, plan, rows)
