"""The paper's tables and figures with the numbers that it prints, a few settings of our own, and the situations.

Bombari et al. 2022, table 2, in shares. NumNet+'s m of exact match is printed as 4.2, and its r as 35.8 and 31.5, which
is 4.3. The epoch is not given; here it is that of the best success on held-out questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from tasks.audits.relational.config import Linear, Relational
from tasks.contract.ranges import with_defaults
from tasks.contract.situation import Asked, Situation
from tasks.datasets.dataset import Dataset
from tasks.language_models.language_model import LanguageModel
from tasks.question_answering.predictions import Predictions
from tasks.training.recipe import Privacy

TABLE_2_SQUAD = Relational()
DROP = replace(TABLE_2_SQUAD, data=Dataset("drop"), numeric=False, epochs=30)
# The predictions of NumNet+, which is trained elsewhere: a folder of this name, here or in ENGRAM_DATA.
TABLE_2_DROP = replace(DROP, given=Predictions("numnet"))
QUICKSTART = Relational(
    data=Dataset("facts"), model=LanguageModel("tiny-t5"), examples=600, held_out=400, replicates=2, epochs=40,
    every=10, link=10, batch=16, length=128, answer_length=8,
)  # fmt: skip
SMOKE = replace(
    QUICKSTART, model=LanguageModel("tiny-t5#16x1"), examples=60, held_out=60, epochs=2, every=1, link=1,
    resamples=200,
)  # fmt: skip
LADDER = replace(QUICKSTART, replicates=1, epochs=20, link=0)
EPSILONS = (100.0, 10.0, 1.0)
LINEAR = Relational(measures=("linear",))
FIGURE_1 = replace(LINEAR, linear=Linear(sizes=((1000, 1000),)))
FIGURE_5 = replace(LINEAR, linear=Linear(sizes=((300, 2000), (1000, 1000))))

PRESETS: Mapping[str, Relational | tuple[Relational, ...]] = {
    "quickstart": QUICKSTART,
    "null": replace(QUICKSTART, relation="redrawn"),
    "stated": replace(QUICKSTART, data=Dataset("facts-stated")),
    "smoke": SMOKE,
    "table1": (replace(DROP, every=0), replace(TABLE_2_SQUAD, every=0)),
    "table2_squad": TABLE_2_SQUAD,
    "table2_drop": TABLE_2_DROP,
    "figure1": FIGURE_1,
    "figure2": DROP,
    "figure3": replace(DROP, epochs=100),
    "figure4": replace(DROP, model=LanguageModel("hub:t5-base"), epochs=40),
    "figure5": FIGURE_5,
    "linear-null": replace(LINEAR, linear=Linear(sizes=((1000, 300),))),
    "private": (
        replace(LINEAR, measures=("private",)),
        LADDER,
        *(replace(LADDER, privacy=Privacy(epsilon)) for epsilon in EPSILONS),
    ),
}

# What each repeats: a part of the paper, or a setting of ours.
REPEATS: Mapping[str, str] = {
    "quickstart": "ours: 600 embedded facts, a tiny T5",
    "null": "ours: quickstart with the answer of another question in every epoch",
    "stated": "ours: quickstart on facts whose answers stand in their contexts",
    "smoke": "ours: 60 facts, 2 epochs",
    "table1": "Table 1: examples of answers, DROP and SQuAD",
    "table2_squad": "Table 2: T5-small on SQuAD",
    "table2_drop": "Table 2: NumNet+ on DROP, by its predictions",
    "figure1": "Figure 1: the linear model",
    "figure2": "Figure 2: T5-small on DROP over 30 epochs",
    "figure3": "Figure 3: the same over 100 epochs",
    "figure4": "Figure 4: T5-base on DROP",
    "figure5": "Figure 5: the linear model of two sizes",
    "linear-null": "ours: a linear model with more samples than features, which memorises nothing",
    "private": "ours: the linear and the sequence model at several epsilons",
}


def tiny(config: Relational) -> Relational:
    """The same audit on embedded data with a small model, in seconds."""
    stated = config.data.name.startswith("squad") or config.data.name == "facts-stated"
    return replace(
        config,
        data=Dataset("facts-stated" if stated else "facts"),
        model=LanguageModel("tiny-t5#16x1"),
        given=None,
        secret="",
        examples=48,
        held_out=48,
        replicates=min(config.replicates, 2),
        epochs=min(config.epochs, 2),
        every=1 if config.every else 0,
        link=1 if config.link else 0,
        batch=min(config.batch, 16),
        accumulate=1,
        length=min(config.length, 128),
        answer_length=min(config.answer_length, 8),
        linear=config.linear.tiny(),
        resamples=min(config.resamples, 100),
    )


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
    return with_defaults(
        config,
        ("measures", "replicates", "epochs", "every", "link", "linear", "negligible", "resamples", "seed"),
        data=Dataset(config.data.name),
        model=replace(config.model, digest=""),
        given=None if config.given is None else GIVEN,
    )


QUESTIONS = Asked(
    "data",
    "Which questions, with their contexts and answers?",
    "records:questions.jsonl",
    "facts",
    sets={"examples": 0, "held_out": 0},
)

MODEL = Asked(
    "model",
    "Your sequence model, which is fine-tuned on them (or tiny-t5 as a stand-in)?",
    "folder:t5",
    "tiny-t5",
    optional=True,
)

SITUATIONS = (
    Situation(
        "data",
        "answer",
        (QUESTIONS, MODEL),
        preset="quickstart",
    ),
    Situation(
        "model",
        "answer",
        (Asked("model", "The model's folder, which is fine-tuned here?", "folder:t5"), QUESTIONS),
        preset="quickstart",
    ),
    Situation(
        "outputs",
        "answer",
        (
            QUESTIONS,
            Asked("given", "The folder of answers (empty: none yet)?", "predictions", optional=True),
            Asked("secret", "The secret with which questions were handed out (empty: none)?", "", optional=True),
        ),
        preset="quickstart",
        table="given",
        secret="secret",
    ),
)
