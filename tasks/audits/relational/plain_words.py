"""The explanation of the verdict for readers without a machine-learning background, and the symbols of the audit."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.audits.relational.config import Answers, Relational, Trained, given_system
from tasks.audits.relational.evidence import Evidence
from tasks.contract.certificate import (
    NOT_ENOUGH,
    RELEVANT_SIZE,
    Boundary,
    NumberLine,
    advise_retraining,
    describe_difference,
    line_of,
    number_per_hundred,
    part_of,
)
from tasks.contract.examined_models import describe_tables, describe_trained

SYMBOLS: Mapping[str, str] = {
    "m": "relational memorization: share of hidden answers that are given to training questions, minus that share for "
    "held-out questions",
    "relational m": "m without answers that are merely common",
    "r": "share of correct answers on contexts without the answer",
    "s": "share of correct answers on whole contexts",
    "mem": "m times the entropy of the answers, in nats",
    "golds": "number of reference answers that count: the first one, or all",
    "H(X)": "entropy of the hidden answers, in nats",
    "epsilon": "bound of differential privacy",
}
ASKED = "Does the model know answers from its training texts by heart, instead of reading them?"
NOTICE_OF_NULL = (
    "This is a control run: training replaced every answer by that of another question, newly drawn in every epoch, so "
    "that the model could not memorise any answer. "
)

REMOVE_ANSWERS = (
    "Treat the answers in the training texts as disclosed to everyone who can query a model trained on them.",
    advise_retraining(first="remove them from the texts"),
)
OTHER_QUESTIONS = ("Keep this page with the files that it names. Also audit other questions about the same texts.",)
MORE_QUESTIONS = (
    "Audit with all available questions, or repeat the training at least 5 times (`examples=0 held_out=0`, where 0 "
    "means all; or `replicates=5`).",
)
BEST_GUESSES = (
    "Ask the owner for a system that gives its best guess for every question, even if the text does not contain the "
    "answer, without instructions or filters that make it refuse.",
)
MORE_TRAINING = ("Train for more epochs or with a larger model: this model gives one answer to almost every question.",)
ONE_FILE = ("Ask the owner for one file with the answers of one system to every question, and audit that file.",)


def advise_best_guesses(config: Relational, _evidence: Evidence | None) -> tuple[str, ...]:
    """Return advice for a system that does not attempt the questions."""
    if given_system(config) is None:
        return MORE_TRAINING
    return BEST_GUESSES


def name_models(config: Relational) -> str:
    """Name the models that were examined: trained by the audit, or a given system."""
    if not isinstance(config.question, Answers):
        return "The audit examined no model of language."
    system = config.question.system
    if isinstance(system, Trained):
        return describe_trained(system.replicates)
    paths = [] if system.predictions is None else [system.predictions.path]
    return describe_tables(paths)


def explain_share(config: Relational, evidence: Evidence) -> str:
    """Explain m as a difference between two shares of correct answers."""
    trained_texts = _count_correct(evidence, "train")
    other_texts = _count_correct(evidence, "validation")
    difference = describe_difference(evidence.m, "the training texts", "the other texts")
    return (
        f"The audit removed the answers from the texts and asked again. {_name_subject(config)} still answered "
        f"correctly {trained_texts} about texts from the training data and {other_texts} about other texts. After a "
        f"correction for common answers, which can be guessed, the difference is {difference}. Without memory, it "
        "would be 0, apart from chance."
    )


def _name_subject(config: Relational) -> str:
    question = config.question
    if isinstance(question, Answers) and isinstance(question.system, Trained) and question.system.replicates > 1:
        return f"On average, the {question.system.replicates} models"
    return "The model"


def _count_correct(evidence: Evidence, part: str) -> str:
    """Format the share of correct answers in this part of the questions, with the number of questions if known."""
    share = evidence.r[part]
    if part in evidence.questions:
        return f"{part_of(share, evidence.questions[part])} questions"
    return f"{number_per_hundred(share)} % of the questions"


def explain_limit(config: Relational, evidence: Evidence) -> str:
    """Explain an m that is too small to matter."""
    limit = number_per_hundred(evidence.negligible)
    return f"{explain_share(config, evidence)} Memory of {limit} % of the answers or more would have been detected."


def explain_small_share(config: Relational, evidence: Evidence) -> str:
    limit = number_per_hundred(evidence.negligible)
    return f"{explain_share(config, evidence)} This is some memory, but less than the {limit} points that matter."


def explain_open_share(config: Relational, evidence: Evidence) -> str:
    return f"{explain_share(config, evidence)} {NOT_ENOUGH}"


def explain_refusals(_config: Relational, _evidence: Evidence) -> str:
    return (
        "Where the text no longer contained the answer, the system did not attempt one. A system that stays silent can "
        "know the answers by heart, so this audit cannot judge it."
    )


def explain_one_text(_config: Relational, evidence: Evidence) -> str:
    share = number_per_hundred(evidence.one_text)
    return (
        f"Where the text no longer contained the answer, the system gave the same answer to at least {share} of 100 "
        "questions. A fixed answer shows nothing about its memory."
    )


def explain_poor_guesses(_config: Relational, _evidence: Evidence) -> str:
    return (
        "Where the text no longer contained the answer, the system was correct less often than by always giving the "
        "most common answer. It does not attempt the questions, so this audit cannot judge it."
    )


def explain_negative_share(_config: Relational, _evidence: Evidence) -> str:
    return (
        "The system answered questions about its training texts worse than questions about other texts. A system "
        "that treats all texts equally does not, so its answers may have been altered."
    )


def explain_two_answers(_config: Relational, evidence: Evidence) -> str:
    repeats = evidence.repeats
    if repeats is None:
        return "The answers could not be checked for consistency, so they may not come from a single system."
    return (
        f"The system received {repeats.n} questions twice and answered {repeats.differing} of them differently, so the "
        "answers may be random or altered."
    )


def draw_share(_config: Relational, evidence: Evidence) -> NumberLine | None:
    """Draw m in percentage points."""
    scaled = dict(evidence.m)
    for name in ("estimate", "low", "high"):
        if scaled[name] is not None:
            scaled[name] = 100 * scaled[name]
    label = "difference in correct answers, in percentage points (above 0: more about the training texts)"
    return line_of(scaled, label, boundaries=(Boundary(100 * evidence.negligible, RELEVANT_SIZE, clears=True),))
