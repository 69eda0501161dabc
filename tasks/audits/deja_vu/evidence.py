"""The evidence in a summary: the rows that the answer rests on.

The decisive row was chosen beforehand: the deja vu score of the most confident pictures, after the last epoch, at the
first layer and of the first number of neighbours. Of a third-party encoder it is the corrected score.
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

MOST_DISAGREEING = 0.05  # of the pictures that were handed out twice
TARGET, REFERENCE = "target", "reference"


@dataclass(frozen=True)
class Evidence:
    """What the answer rests on.

    `score` is the summary row of the score that decides. `accuracies` are those of the target and of the reference, by
    model and set: A and B of a third-party encoder, else both. `reference_p` is the two-sided p-value of the
    reference's accuracies on A and on B being the same; None where that was not tested. `rank` is the row of the
    encoder's rank among references; None without several. `repeats` is the row of the pictures that were handed out
    twice; None without any. `tied` is the row of the encoder with most equal embeddings. `names` are the (metric,
    setting) of the score and, where it was tested, of the reference's difference.
    """

    names: tuple[tuple[str, str], ...]
    score: Row
    accuracies: Mapping[tuple[str, str], float]
    reference_p: float | None
    rank: Row | None
    negligible: float
    repeats: Row | None = None
    tied: Row | None = None

    @property
    def agrees(self) -> bool:
        """Whether the pictures that were handed out twice have the same embeddings; False without any."""
        return self.repeats is not None and self.repeats["estimate"] <= MOST_DISAGREEING


def is_given(config: DejaVu) -> bool:
    return isinstance(config.encoders, Given)


def is_sent(config: DejaVu) -> bool:
    """Whether the encoder stays with its owner, who sent embeddings."""
    match config.encoders:
        case Given(encoder=EncoderTable()):
            return True
    return False


def has_trained_references(config: DejaVu) -> bool:
    """Whether a given encoder is compared with references that are trained here."""
    match config.encoders:
        case Given(comparison=TrainedReferences()):
            return True
    return False


def decisive_name(config: DejaVu, metric: str, **fields: str) -> Name:
    """The name of a row of the attack and the percentage that decide."""
    layer, k = config.asked_layers[0], config.k[0]
    return row_name(metric, epoch=config.training.last_epoch, layer=layer, k=k, percent=config.confident, **fields)


def score_name(config: DejaVu) -> Name:
    """The name of the decisive row: of a given encoder that of the corrected score."""
    return decisive_name(config, CORRECTED_SCORE if is_given(config) else SCORE)


def read_evidence(config: DejaVu, summary: pa.Table) -> Evidence | None:
    """The evidence in a summary; None if the labels of too few pictures were inferred."""
    rows = index_rows(summary)
    name = score_name(config)
    if name not in rows or rows[name]["estimate"] is None:
        return None
    sets = {part: {"set": part} for part in "AB"} if is_given(config) else {BOTH: {}}
    accuracies = {}
    for model in (TARGET, REFERENCE):
        for part, fields in sets.items():
            row = rows[decisive_name(config, "accuracy", model=model, **fields)]
            accuracies[model, part] = row["estimate"]
    reference = row_name(GAIN, model=REFERENCE, percent=config.confident)
    return Evidence(
        names=(name, reference) if reference in rows else (name,),
        score=rows[name],
        accuracies=accuracies,
        reference_p=rows[reference]["p_value"] if reference in rows else None,
        rank=rows.get(row_name(RANK, percent=config.confident)),
        negligible=config.negligible,
        repeats=first_row(rows, DISAGREEING),
        tied=most_tied(rows),
    )
