"""Texts whose log probabilities the owner of a model returns: what is handed out, and the table that comes back.

Columns `id` and `log_p`: of the whole text as it stands, in nats, the sum over its tokens.
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
COLUMNS = (  # as an owner is told them
    f'column "{LOG_P}": the log-probability\nof the field "text" by the model, whole and as it stands, in nats, summed '
    "over its tokens, a number of at most 0 with\nall its digits"
)


@dataclass(frozen=True, eq=False)
class Returned:
    """log p of each text, (texts,), and of those that were handed out twice the second time, else NaN."""

    log_p: Array
    again: Array


def handout_order(asked: Sequence[Sequence[str]], seed: int) -> HandedOut:
    """The texts of all questions, one after another, in the order in which an owner gets them."""
    texts = [text for each in asked for text in each]
    content = [hashlib.sha256(json.dumps(texts).encode()).hexdigest(), seed]
    return blind_images(content, len(texts), seed, "texts", lambda name, place: f"{name}-{place:06d}")


def handout_records(asked: Sequence[Sequence[str]], seed: int) -> tuple[str, Records]:
    """The name of the one set that an owner gets, and its texts."""
    handed, texts = handout_order(asked, seed), [text for each in asked for text in each]
    ids = [handed.id_of(handed.name, place) for place in range(len(handed.order))]
    return handed.name, Records(pa.table({ID: ids, "text": [texts[number] for number in handed.order]}))


def key_table(asked: Sequence[Sequence[str]], seed: int) -> pa.Table:
    """What each id stands for, in the order of the ids: the number of its question and of the candidate, both from 0.

    Candidate 0 is the identifier, or the secret, and the others are its references.
    """
    handed = handout_order(asked, seed)
    places = [(number, candidate) for number, each in enumerate(asked) for candidate in range(len(each))]
    chosen = [places[text] for text in handed.order]
    ids = [handed.id_of(handed.name, place) for place in range(len(chosen))]
    columns = [ids, *map(list, zip(*chosen, strict=True))]
    return pa.table(columns, names=[ID, "question", "candidate"])


def read_log_p(outputs: File, handed: HandedOut) -> Returned:
    """What the owner's table says; ValueError, in one line, where it does not tell of every text."""
    sent = read_sent(outputs, "log-probabilities", ID)
    if LOG_P not in sent.columns:
        raise ValueError(f"{sent.name} has no column {LOG_P}; it has {', '.join([ID, *sent.columns])}")
    log_p = sent.numbers(LOG_P)
    wrong = np.flatnonzero(~(np.isfinite(log_p) & (log_p <= 0)))
    if len(wrong):
        raise ValueError(
            f"{sent.name}: {LOG_P} of {sent.ids[wrong[0]]!r} is {log_p[wrong[0]]:g}; it must be a log probability in "
            f"nats, finite and at most 0; {len(wrong)} of {len(log_p)} are not"
        )
    again, repeats = np.full(len(handed.ids), np.nan), handed.repeats
    again[list(repeats)] = log_p[sent.rows(list(repeats.values()))]
    return Returned(log_p[sent.rows(handed.ids)], again)
