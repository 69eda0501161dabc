"""The share of repeated images whose two embeddings in a returned table differ.

Some public images are exported twice: among the public images and, uncropped, among the crops. An encoder maps both
copies to the same numbers, up to the last digits. If the embeddings differ, crops were not processed like whole images:
they may have been replaced by noise, by a constant vector or by another model's embeddings. The check does not detect
an owner who inspects each image and changes only the embeddings of true crops.
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

DISAGREEING = "repeated images with two embeddings"

AGREEMENT = pa.schema(
    [
        ("repeated", pa.int64()),  # images that were exported twice
        ("differing", pa.int64()),  # repeated images whose two embeddings differ
    ]
)


@dataclass(frozen=True)
class Repeats:
    """Exported images, the number of repeated ones, and the returned table."""

    attack: Attack
    repeated: int
    embeddings: File


@task(version=1, name="deja_vu.agreement")
def agreement(config: Repeats, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - reads a file
    """Count the repeated images and those whose embeddings differ (AGREEMENT, one row).

    Two embeddings are equal if no coordinate differs by more than SAME times the largest coordinate of both.
    """
    from tasks.external.encoders import SAME
    from tasks.external.sent_table import read_embeddings

    pictures = load_with_boxes(config.attack.data, config.attack.correlation)
    export = handed_out(crops_of(config.attack, pictures), pictures, config.repeated)
    table = read_embeddings(config.embeddings)
    public = export.public_ids
    repeated, originals = table.select(export.repeated_ids), table.select([public[index] for index in export.repeated])
    differences = np.abs(repeated - originals).max(axis=1)
    magnitudes = np.maximum(np.abs(repeated), np.abs(originals)).max(axis=1)
    return make_table(AGREEMENT, repeated=len(differences), differing=int((differences > SAME * magnitudes).sum()))


def plan(config: DejaVu, trainings: Trainings) -> Job | tuple[()]:
    match config.encoders:
        case Given(encoder=EncoderTable(embeddings=embeddings, repeated_images=repeated)) if embeddings and repeated:
            return Job(agreement, Repeats(trainings.attack, repeated, embeddings))
    return ()


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    for agreement_row in tables.rows(AGREEMENT):
        yield row(DISAGREEING, {}, proportion(agreement_row["differing"], agreement_row["repeated"]), "image", 0.0)


MEASURE = Measure("agreement", AGREEMENT, plan, rows)
