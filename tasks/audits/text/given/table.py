"""Texts for a model's owner, and the table of log-probabilities that the owner returns.

The table has the columns `id` and `log_p`: the log-probability of the whole text in nats, summed over its tokens.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.datasets.records import ID, Records
from tasks.external.blinding import HandedOut, blind_images
from tasks.external.sent_table import read_sent
from tasks.worker.files import File

Array = NDArray[np.float64]
LOG_P = "log_p"
COLUMNS = (  # instructions for the owner
    f'column "{LOG_P}": the log-probability\nof the field "text" by the model, of the whole unchanged text, in nats, '
    "summed over its tokens: a number of at most 0,\nnot rounded"
)


@dataclass(frozen=True, eq=False)
class Returned:
    """log p of each text, shape (texts,), and the second number of texts exported twice (NaN for other texts)."""

    log_p: Array
    repeated_log_p: Array


def handout_order(candidates_by_question: Sequence[Sequence[str]], seed: int) -> HandedOut:
    """Return the order in which the owner receives the texts of all questions."""
    texts = [text for group in candidates_by_question for text in group]
    content = [hashlib.sha256(json.dumps(texts).encode()).hexdigest(), seed]
    return blind_images(content, len(texts), seed, "texts", lambda name, position: f"{name}-{position:06d}")


def handout_records(candidates_by_question: Sequence[Sequence[str]], seed: int) -> tuple[str, Records]:
    """Return the name of the exported set, and its texts."""
    handout = handout_order(candidates_by_question, seed)
    texts = [text for group in candidates_by_question for text in group]
    ids = [handout.id_of(handout.name, position) for position in range(len(handout.order))]
    return handout.name, Records(pa.table({ID: ids, "text": [texts[number] for number in handout.order]}))


def key_table(candidates_by_question: Sequence[Sequence[str]], seed: int) -> pa.Table:
    """Return the question and candidate number of each id, both counted from 0.

    Candidate 0 is the identifier or secret; the others are its references.
    """
    handout = handout_order(candidates_by_question, seed)
    places = []
    for number, group in enumerate(candidates_by_question):
        for candidate in range(len(group)):
            places.append((number, candidate))
    ordered_places = [places[text] for text in handout.order]
    ids = [handout.id_of(handout.name, position) for position in range(len(ordered_places))]
    columns = [ids, *map(list, zip(*ordered_places, strict=True))]
    return pa.table(columns, names=[ID, "question", "candidate"])


def read_log_p(outputs: File, handout: HandedOut) -> Returned:
    """Read the returned table. Raises ValueError if a number is missing or invalid."""
    returned_table = read_sent(outputs, "log-probabilities", ID)
    if LOG_P not in returned_table.columns:
        raise ValueError(
            f"{returned_table.name}: expected a column {LOG_P}, got "
            f"{', '.join([ID, *returned_table.columns])}. Rename or add the column."
        )
    log_p = returned_table.numbers(LOG_P)
    invalid_rows = np.flatnonzero(~(np.isfinite(log_p) & (log_p <= 0)))
    if len(invalid_rows):
        raise ValueError(
            f"{returned_table.name}: expected {LOG_P} in nats, finite and at most 0, got "
            f"{log_p[invalid_rows[0]]:g} for {returned_table.ids[invalid_rows[0]]!r}. Correct "
            f"{len(invalid_rows)} of {len(log_p)} numbers."
        )
    repeated_log_p = np.full(len(handout.ids), np.nan)
    repeats = handout.repeats
    repeated_log_p[list(repeats)] = log_p[returned_table.rows(list(repeats.values()))]
    return Returned(log_p[returned_table.rows(handout.ids)], repeated_log_p)
