"""Detection rate of the audit if a stated share of the answers is memorised."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.audits.relational.config import Answers, Relational
from tasks.audits.relational.trainings import asked_questions
from tasks.contract.power import GOAL, Power, mean_rate, smallest_size

SHARE = 0.1  # share of the training answers that are known only from memory
GUESSED = 0.1  # share of the answers that are guessed without a context


def power(config: Relational) -> Iterator[Power]:
    """Yield the detection rate if SHARE of the training answers is memorised."""
    question = config.question
    if not isinstance(question, Answers):
        return
    questions_by_part = asked_questions(question, config.seed)
    training = len(questions_by_part["train"])
    held_out = len(questions_by_part["validation"])

    def rate(size: int) -> float:
        train_rate = GUESSED + SHARE
        held_out_rate = GUESSED
        error = (
            train_rate * (1 - train_rate) / size + held_out_rate * (1 - held_out_rate) / (held_out * size / training)
        ) ** 0.5
        return mean_rate(SHARE - question.negligible, error)

    required_size = smallest_size(training, 1, lambda size: rate(size) >= GOAL, factor=1.05)
    if required_size is None:
        advice = ""
    else:
        advice = f"ask {required_size:,} training questions, and more held-out ones in proportion"
    yield Power(f"a tenth of {training:,} answers memorised ({held_out:,} questions held out)", rate(training), advice)
