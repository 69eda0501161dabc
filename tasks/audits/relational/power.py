"""How often the audit finds that a stated share of the answers is remembered: m is an average over contexts."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.audits.relational.config import Answers, Relational
from tasks.audits.relational.trainings import asked_questions
from tasks.contract.power import GOAL, Power, mean_rate, smallest_size

SHARE = 0.1  # of the training questions, whose answer is known by memory alone
GUESSED = 0.1  # of the answers that are guessed without a context


def power(config: Relational) -> Iterator[Power]:
    """How often a share of SHARE of the training questions is found."""
    question = config.question
    if not isinstance(question, Answers):
        return
    chosen = asked_questions(question, config.seed)
    asked, held_out = (len(chosen[name]) for name in ("train", "validation"))

    def rate(size: int) -> float:
        own, other = GUESSED + SHARE, GUESSED
        error = (own * (1 - own) / size + other * (1 - other) / (held_out * size / asked)) ** 0.5
        return mean_rate(SHARE - question.negligible, error)

    enough = smallest_size(asked, 1, lambda size: rate(size) >= GOAL, factor=1.05)
    more = "" if enough is None else f"ask {enough:,} training questions, and more held-out ones in proportion"
    yield Power(f"a tenth of {asked:,} answers remembered ({held_out:,} questions held out)", rate(asked), more)
