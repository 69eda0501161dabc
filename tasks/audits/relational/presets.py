"""Presets, the published tables and figures that they repeat with their numbers, and the questions of `engram ask`.

Bombari et al. 2022, table 2, as shares. For NumNet+, the paper prints an exact-match m of 4.2, but r of 35.8 and 31.5,
whose difference is 4.3. The paper does not state the epoch; here it is the one with the best accuracy on held-out
questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from tasks.audits.relational.config import (
    PUBLISHED_TUNING,
    T5_SMALL,
    Answers,
    Given,
    Linear,
    PrivateLinear,
    Question,
    QuestionTuning,
    Relational,
    Trained,
)
from tasks.contract.ranges import with_defaults
from tasks.contract.situation import Asked, Situation
from tasks.datasets.dataset import Dataset
from tasks.language_models.language_model import LanguageModel
from tasks.language_models.tuning_config import Reading
from tasks.question_answering.predictions import Predictions
from tasks.training.privacy_config import DifferentialPrivacy, LinkedTraining

SQUAD = Dataset("squad")
DROP = Dataset("drop")


def _train_t5(epochs: int, reading: Reading = T5_SMALL, evaluation_interval: int = 1) -> Trained:
    """Return the published training on questions with the given number of epochs."""
    return Trained(reading, replace(PUBLISHED_TUNING, epochs=epochs), evaluation_interval=evaluation_interval)


def _ask_drop(system: Trained | Given) -> Relational:
    return Relational(Answers(DROP, numeric=False, system=system))


def _ask_facts(system: Trained, data: str = "facts", examples: int = 600, held_out: int = 400) -> Relational:
    return Relational(Answers(Dataset(data), examples=examples, held_out=held_out, system=system))


TABLE_2_SQUAD = Relational(Answers(SQUAD, system=_train_t5(20)))
# The predictions of NumNet+, which was trained elsewhere: a folder of this name in the working directory or
# ENGRAM_DATA.
TABLE_2_DROP = _ask_drop(Given(Predictions("numnet")))
TINY_T5 = Trained(
    Reading(LanguageModel("tiny-t5"), 128),
    QuestionTuning(epochs=40, batch=16, dropout=0.1, privacy=LinkedTraining(10)),
    replicates=2,
    evaluation_interval=10,
    answer_length=8,
)
QUICKSTART = _ask_facts(TINY_T5)
SMALLEST_T5 = replace(
    TINY_T5,
    reading=Reading(LanguageModel("tiny-t5#16x1"), 128),
    tuning=replace(TINY_T5.tuning, epochs=2, privacy=LinkedTraining(1)),
    evaluation_interval=1,
)
SMOKE = Relational(Answers(Dataset("facts"), examples=60, held_out=60, system=SMALLEST_T5, resamples=200))
EPSILONS = (100.0, 10.0, 1.0)


def _train_privately(privacy: LinkedTraining | DifferentialPrivacy) -> Trained:
    return replace(TINY_T5, tuning=replace(TINY_T5.tuning, epochs=20, privacy=privacy), replicates=1)


PRESETS: Mapping[str, Relational | tuple[Relational, ...]] = {
    "quickstart": QUICKSTART,
    "null": _ask_facts(replace(TINY_T5, relation="redrawn")),
    "stated": _ask_facts(TINY_T5, "facts-stated"),
    "smoke": SMOKE,
    "table1": (
        _ask_drop(_train_t5(30, evaluation_interval=0)),
        Relational(Answers(SQUAD, system=_train_t5(20, evaluation_interval=0))),
    ),
    "table2_squad": TABLE_2_SQUAD,
    "table2_drop": TABLE_2_DROP,
    "figure1": Relational(Linear(sizes=((1000, 1000),))),
    "figure2": _ask_drop(_train_t5(30)),
    "figure3": _ask_drop(_train_t5(100)),
    "figure4": _ask_drop(_train_t5(40, Reading(LanguageModel("hub:t5-base")))),
    "figure5": Relational(Linear(sizes=((300, 2000), (1000, 1000)))),
    "linear-null": Relational(Linear(sizes=((1000, 300),))),
    "linear-private": Relational(PrivateLinear()),
    "private": (
        _ask_facts(_train_privately(LinkedTraining())),
        *(_ask_facts(_train_privately(DifferentialPrivacy(epsilon))) for epsilon in EPSILONS),
    ),
}

# The source of each preset: a table or figure of the paper, or "ours".
REPEATS: Mapping[str, str] = {
    "quickstart": "ours: 600 embedded facts, a tiny T5",
    "null": "ours: quickstart, trained on the answers of other questions",
    "stated": "ours: quickstart on facts whose contexts state the answers",
    "smoke": "ours: 60 facts, 2 epochs",
    "table1": "Table 1: examples of answers, DROP and SQuAD",
    "table2_squad": "Table 2: T5-small on SQuAD",
    "table2_drop": "Table 2: predictions of NumNet+ on DROP",
    "figure1": "Figure 1: the linear model",
    "figure2": "Figure 2: T5-small on DROP over 30 epochs",
    "figure3": "Figure 3: the same over 100 epochs",
    "figure4": "Figure 4: T5-base on DROP",
    "figure5": "Figure 5: the linear model in two sizes",
    "linear-null": "ours: a linear model with more samples than features, without memorisation",
    "linear-private": "ours: a small linear model at several epsilons",
    "private": "ours: the sequence model at several epsilons",
}


def tiny(config: Relational) -> Relational:
    """Return a version of the audit on embedded data with a small model that runs in seconds."""
    return replace(config, question=config.question.tiny())


class PublishedNumbers(NamedTuple):
    """One column of table 2."""

    s_train: float
    s_validation: float
    r_train: float
    r_validation: float
    m: float


# Keyed by column, then by (questions, score); all gold answers count.
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
THIRD_PARTY = Predictions("third-party")
CELLS: Mapping[str, Question] = {"T5 on SQuAD": TABLE_2_SQUAD.question, "NumNet+ on DROP": TABLE_2_DROP.question}


def published_numbers(cell: str, questions: str, score: str) -> PublishedNumbers | None:
    """Return the published numbers of a column, or None if the paper has none."""
    return TABLE_2.get(cell, {}).get((questions, score))


def printed_cell(question: Question) -> str:
    """Return the column of table 2 with the same data and training, for any number of replicates.

    Returns an empty string if the paper has no such column.
    """
    return next((name for name, cell in CELLS.items() if published_settings(cell) == published_settings(question)), "")


def published_settings(question: Question) -> Question:
    """Return the question without the settings that the paper varies or does not state."""
    if not isinstance(question, Answers):
        return question
    data = Dataset(question.data.name)
    return with_defaults(question, ("negligible", "resamples"), data=data, system=_published_system(question.system))


def _published_system(system: Trained | Given) -> Trained | Given:
    match system:
        case Trained():
            return replace(
                system,
                replicates=1,
                evaluation_interval=1,
                reading=replace(system.reading, model=replace(system.reading.model, digest="")),
                tuning=replace(
                    system.tuning, epochs=1, privacy=LinkedTraining() if system.tuning.link else system.tuning.privacy
                ),
            )
        case Given():
            return replace(system, predictions=THIRD_PARTY)


QUESTIONS = Asked(
    "question.data",
    "Questions with their contexts and answers?",
    "records:questions.jsonl",
    "facts",
    sets={"question.examples": 0, "question.held_out": 0},
)
MODEL_FIELD = "question.system.reading.model"
MODEL = Asked(
    MODEL_FIELD,
    "Your sequence model, to be fine-tuned on them (or tiny-t5 as a stand-in)?",
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
        (Asked(MODEL_FIELD, "The folder of the model, to be fine-tuned here?", "folder:t5"), QUESTIONS),
        preset="quickstart",
    ),
    Situation(
        "outputs",
        "answer",
        (
            QUESTIONS,
            Asked(
                "question.system.predictions", "The folder of answers (empty: none yet)?", "predictions", optional=True
            ),
            Asked(
                "question.system.secret",
                "The secret of the handed-out questions (empty: none)?",
                "",
                optional=True,
            ),
        ),
        preset="quickstart",
        sets={"question.system": "given"},
        table="question.system.predictions",
        secret="question.system.secret",
    ),
)
