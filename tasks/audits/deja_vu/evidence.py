"""Rows of a summary that decide the answer.

The decisive row is fixed in advance: the deja vu score of the most confident images after the last epoch, at the first
layer and for the first neighbour count. For a third-party encoder it is the corrected score.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.deja_vu.config import DejaVu
from tasks.audits.deja_vu.encoder_config import EncoderTable, Given, TrainedReferences
from tasks.audits.deja_vu.measures.agreement import DISAGREEING
from tasks.audits.deja_vu.measures.references import GAIN, RANK
from tasks.audits.deja_vu.measures.scores import BOTH, CORRECTED_SCORE, SCORE
from tasks.contract.summaries import Name, Row, first_row, index_rows, row_name
from tasks.contract.ties import most_tied

MOST_DISAGREEING = 0.05  # as a share of the repeated images
TARGET = "target"
REFERENCE = "reference"


@dataclass(frozen=True)
class Evidence:
    """Summary rows that decide the answer.

    `names` are the (metric, setting) pairs of the score and, if it was tested, of the reference's difference. `score`
    is the row of the decisive score. `accuracies` contains the rows of the accuracies of target and reference, keyed by
    model and set (A and B for a third-party encoder, else both). `reference_p` is the two-sided p-value for equal
    accuracy of the reference on A and B, or None if it was not tested. `rank` is the row of the encoder's rank among
    references, or None if there are fewer than two. `repeats` is the row of the repeated images, or None if there are
    none. `tied` is the row of the encoder with the most equal embeddings.
    """

    names: tuple[tuple[str, str], ...]
    score: Row
    accuracies: Mapping[tuple[str, str], Row]
    reference_p: float | None
    rank: Row | None
    negligible: float
    repeats: Row | None = None
    tied: Row | None = None

    @property
    def agrees(self) -> bool:
        """Whether the repeated images have equal embeddings. False if no images were repeated."""
        return self.repeats is not None and self.repeats["estimate"] <= MOST_DISAGREEING


def is_given(config: DejaVu) -> bool:
    return isinstance(config.encoders, Given)


def is_sent(config: DejaVu) -> bool:
    """Return whether the encoder stays with its owner, who returns embeddings."""
    match config.encoders:
        case Given(encoder=EncoderTable()):
            return True
    return False


def has_trained_references(config: DejaVu) -> bool:
    """Return whether a given encoder is compared with references that are trained here."""
    match config.encoders:
        case Given(comparison=TrainedReferences()):
            return True
    return False


def decisive_name(config: DejaVu, metric: str, **fields: str) -> Name:
    """Return the name of a row at the decisive epoch, layer, neighbour count and percentage."""
    layer = config.asked_layers[0]
    k = config.k[0]
    return row_name(
        metric, epoch=config.training.last_epoch, layer=layer, k=k, percent=config.confident_percent, **fields
    )


def score_name(config: DejaVu) -> Name:
    """Return the name of the decisive row, which for a given encoder is the corrected score."""
    return decisive_name(config, CORRECTED_SCORE if is_given(config) else SCORE)


def read_evidence(config: DejaVu, summary: pa.Table) -> Evidence | None:
    """Read the evidence from a summary. None if too few images have an inferred label."""
    rows = index_rows(summary)
    name = score_name(config)
    if name not in rows or rows[name]["estimate"] is None:
        return None
    if is_given(config):
        sets = {part: {"set": part} for part in "AB"}
    else:
        sets = {BOTH: {}}
    accuracies = {}
    for model in (TARGET, REFERENCE):
        for part, fields in sets.items():
            accuracies[model, part] = rows[decisive_name(config, "accuracy", model=model, **fields)]
    reference = row_name(GAIN, model=REFERENCE, percent=config.confident_percent)
    return Evidence(
        names=(name, reference) if reference in rows else (name,),
        score=rows[name],
        accuracies=accuracies,
        reference_p=rows[reference]["p_value"] if reference in rows else None,
        rank=rows.get(row_name(RANK, percent=config.confident_percent)),
        negligible=config.negligible,
        repeats=first_row(rows, DISAGREEING),
        tied=most_tied(rows),
    )
