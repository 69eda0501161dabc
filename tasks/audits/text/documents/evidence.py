"""The evidence about documents, and about insertions into the training data of a given model."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.text.blind_control import BLIND
from tasks.audits.text.config import Text
from tasks.audits.text.continuations import BY_TRAINED
from tasks.audits.text.documents.insertions import MEMORISED as INSERTIONS_MEMORISED
from tasks.audits.text.documents.insertions import SHOWN
from tasks.audits.text.documents.ranks import FOUND, LOSS, MEMORISED, WON
from tasks.audits.text.power import document_resolution, insertion_resolution
from tasks.audits.text.question import Documents
from tasks.audits.text.reproduced import Copies, read_copies
from tasks.contract.power import Resolution
from tasks.contract.summaries import Row, first_row, index_rows, row_name, select_rows
from tasks.contract.ties import TIED


@dataclass(frozen=True)
class DocumentEvidence:
    """Summary rows about documents, each of which is in the training data of half of the models.

    `found_documents` counts the documents that are found, with the smallest adjusted p-value. `won` is the share of
    model pairs in which the model trained on a document assigns it the higher probability. `memorised` counts the
    documents that are still found after the effects are reduced by the smallest relevant size. `tied` is the share of
    tied scores. `copies` is None if no document is long enough. `resolution` states whether one document could be
    found.
    """

    found_documents: Row
    won: Row
    copies: Copies | None
    memorised: Row
    tied: Row | None
    resolution: Resolution
    level: float
    negligible: float

    @property
    def is_found(self) -> bool:
        return bool(self.found_documents["p_value"] <= self.level)

    @property
    def is_memorised(self) -> bool:
        return bool(self.memorised["p_value"] <= self.level)

    @property
    def share_is_negligible(self) -> bool:
        return bool(self.won["high"] < 0.5 + self.negligible)


def read_document_evidence(config: Text, summary: pa.Table) -> DocumentEvidence | None:
    """Read the evidence from a summary.

    Returns None if no document was tested, or if the share of pairs has no interval.
    """
    assert isinstance(config.question, Documents)
    rows = index_rows(summary)
    found_documents = first_row(rows, FOUND)
    won = rows.get(row_name(WON))
    if found_documents is None or won is None or won["low"] is None:
        return None
    return DocumentEvidence(
        found_documents,
        won,
        read_copies(rows),
        first_row(rows, MEMORISED) or found_documents,
        first_row(rows, TIED),
        document_resolution(config.question.models, config.level, found_documents["n"]),
        config.level,
        config.negligible,
    )


@dataclass(frozen=True)
class InsertionEvidence:
    """Summary rows about documents that were inserted into the training data of a given model.

    `found_repetitions` counts the repetition counts whose documents differ from those left out, with the smallest
    adjusted p-value. `blind` is the blind control. `won` contains, for each repetition count, the probability that a
    document has a larger effect than one left out. `found_documents` counts the individual documents that are found.
    `copies` is None if no document is long enough.
    """

    found_repetitions: Row
    won: tuple[Row, ...]
    blind: Row
    found_documents: Row
    copies: Copies | None
    level: float
    negligible: float
    memorised: Row | None = None
    tied: Row | None = None
    resolution: Resolution | None = None

    @property
    def finds_one(self) -> bool:
        return self.resolution is not None and self.resolution.finds_one

    @property
    def is_found(self) -> bool:
        return bool(self.found_repetitions["p_value"] <= self.level)

    @property
    def is_memorised(self) -> bool:
        return self.memorised is not None and bool(self.memorised["p_value"] <= self.level)

    @property
    def are_all_unknown(self) -> bool:
        return all(row["high"] < 0.5 + self.negligible for row in self.won)


def read_insertion_evidence(config: Text, summary: pa.Table) -> InsertionEvidence | None:
    """Read the evidence from a summary. Returns None if it is incomplete."""
    rows = index_rows(summary)
    found_repetitions = first_row(rows, SHOWN)
    blind = first_row(rows, BLIND)
    found_documents = first_row(rows, FOUND)
    won = tuple(row for row in select_rows(rows, WON) if row != rows.get(row_name(WON)))
    if found_repetitions is None or blind is None or found_documents is None:
        return None
    left_out = rows.get(row_name(LOSS, repetitions=0, by=BY_TRAINED))
    return InsertionEvidence(
        found_repetitions,
        won,
        blind,
        found_documents,
        read_copies(rows),
        config.level,
        config.negligible,
        first_row(rows, INSERTIONS_MEMORISED),
        first_row(rows, TIED),
        None if left_out is None else insertion_resolution(config.level, found_documents["n"], left_out["n"]),
    )
