"""What the paper prints, to stand beside what a run of its settings gives.

Bombari et al. 2022, table 2, in shares. NumNet+'s m of exact match is printed as 4.2, and its r as 35.8 and 31.5, which
is 4.3. The epoch is not given; here it is that of the best success on held-out questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from tasks.audits.relational.config import Relational
from tasks.audits.relational.presets import TABLE_2_DROP, TABLE_2_SQUAD
from tasks.datasets.dataset import Dataset
from tasks.question_answering.predictions import Predictions


class PublishedNumbers(NamedTuple):
    """A column of table 2."""

    s_train: float
    s_validation: float
    r_train: float
    r_validation: float
    m: float


# By the column, the questions and the score; all gold answers count.
TABLE_2: Mapping[str, Mapping[tuple[str, str], PublishedNumbers]] = {
    "T5 on SQuAD": {
        ("numeric", "exact_match"): PublishedNumbers(0.792, 0.840, 0.001, 0.019, -0.018),
        ("numeric", "f1"): PublishedNumbers(0.890, 0.900, 0.235, 0.260, -0.025),
    },
    "NumNet+ on DROP": {
        ("all", "exact_match"): PublishedNumbers(0.799, 0.786, 0.358, 0.315, 0.042),
        ("all", "f1"): PublishedNumbers(0.847, 0.823, 0.392, 0.347, 0.045),
    },
}
GIVEN = Predictions("whoever's")
CELLS: Mapping[str, Relational] = {"T5 on SQuAD": TABLE_2_SQUAD, "NumNet+ on DROP": TABLE_2_DROP}


def published_numbers(cell: str, questions: str, score: str) -> PublishedNumbers | None:
    """The numbers of this column; None where the paper has none."""
    return TABLE_2.get(cell, {}).get((questions, score))


def printed_cell(config: Relational) -> str:
    """The column whose data and training the config has, however often it is repeated or asked; empty for none."""
    if config.privacy is not None or not config.asks:
        return ""
    return next((name for name, cell in CELLS.items() if published_settings(cell) == published_settings(config)), "")


def published_settings(config: Relational) -> Relational:
    """The config without what the paper varies or leaves open."""
    like = Relational()
    return replace(
        config,
        data=Dataset(config.data.name),
        model=replace(config.model, digest=""),
        given=None if config.given is None else GIVEN,
        measures=like.measures,
        replicates=like.replicates,
        epochs=like.epochs,
        every=like.every,
        link=like.link,
        linear=like.linear,
        negligible=like.negligible,
        resamples=like.resamples,
        seed=like.seed,
    )
