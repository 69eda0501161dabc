"""Does a model remember which answer belongs to which context?

A model that answers questions about a context x can memorise the answer instead of reading it. The audit removes the
answer from every context (by default, it removes all digits), which leaves y, and asks again. A model that still gives
the hidden answer more often on training contexts than on held-out ones remembers it.

    r = share of correct answers on corrupted contexts, s = share on whole contexts
    m = r_train - r_validation,  mem = H(X) m nats
    relational m = m, corrected for answers that are merely common in one part

Interpretation. m is 0 if nothing is memorised, because answers that can be guessed, are general knowledge or remain in
the context are also given to held-out questions. m = 0.2 means that 20 of 100 hidden answers come from memory. The
curves over epochs show when memorisation begins.

Source. Bombari et al. 2022, "Towards Differential Relational Privacy and its use in Question Answering": m is eq. 16,
mem is eq. 15, the linear model is described in section 5 and appendix B.3.

Changes to the paper. In the paper, a training question has one gold answer, but a held-out question has several, of
which the best match counts. This lowers m (to -1.8 points on SQuAD). The verdict of this audit uses only the first gold
answer on both parts; the summary also reports m as published. A model that gives the common answers of its training
data has a small m without knowing any relation (marginal memorisation); relational m corrects for this. Intervals are
computed over contexts, because questions about one context are not independent. mem is reported only if the entropy
H(X) can be estimated. Equations 25 and 26 of the paper have a sign error: the minimiser of the linear model is e1 + v /
|v|^2 with v = [-1, Y^+ X]. Theorems 3.6 to 3.8 bound mem by a pure epsilon, which DP-SGD does not provide.

Cost. Replicates x epochs of fine-tuning, and decoding of four question sets per evaluation. `quickstart` takes about 90
seconds on two cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tasks.audits.relational.answer import MEANINGS, OBJECTIVES, RULES, certificate, verdict
from tasks.audits.relational.config import About, Answers, Given, Relational, Trained, given_system
from tasks.audits.relational.evidence import question_subsets
from tasks.audits.relational.measures import MEASURES, measures_of, summary
from tasks.audits.relational.plain_words import SYMBOLS
from tasks.audits.relational.power import power
from tasks.audits.relational.presets import PRESETS, REPEATS, SITUATIONS, printed_cell, tiny
from tasks.audits.relational.trainings import (
    AskedQuestions,
    asked_questions,
    blind_questions,
    load_parts,
    trainings,
)
from tasks.contract.audit import Audit, Handout, Wording
from tasks.contract.crosswalk import Attack
from tasks.contract.job import Job, Roots
from tasks.contract.learning import commonest_share
from tasks.contract.measure import roots
from tasks.contract.stand_in import stand_in_trained
from tasks.datasets.catalog import load_questions
from tasks.datasets.copies import CopyCount, count_groups
from tasks.datasets.dataset import Dataset
from tasks.datasets.questions.question import first_copies
from tasks.external.blinded_questions import Blinding, handout_questions, key_table
from tasks.external.blinding import Split
from tasks.external.bound_draw import Draw
from tasks.question_answering.question_sets import ProbeQuestions, is_numeric
from tasks.question_answering.scoring import match_key

__all__ = ["AUDIT", "PRESETS", "Relational", "plan", "probes", "split", "tiny"]

GUESSABLE = (
    "Warning: the order of the questions follows from the seed of the run, so an owner who tries seeds can recognise "
    "the training questions. Set secret=$(openssl rand -hex 16) here and in the run, and keep it."
)


def plan(config: Relational) -> Roots:
    """Plan the tables that answer the question, and the `summary` that combines them."""
    measures = measures_of(config.question)
    match config.question:
        case Answers() as question:
            about = describe_answers(config, question)
            return roots(
                measures,
                config,
                trainings(question, config.seed),
                lambda measures_inputs: Job(summary, about, measures_inputs),
            )
        case linear:
            return roots(measures, config, linear, lambda measures_inputs: Job(summary, About(), measures_inputs))


def describe_answers(config: Relational, question: Answers) -> About:
    """Return the facts about the questions that the summary needs."""
    privacy = None
    if isinstance(question.system, Trained):
        privacy = question.system.tuning.guarantee
    subset = question_subsets(question)[0]
    selected = asked_questions(question, config.seed)
    return About(
        subset,
        epsilon=None if privacy is None else privacy.epsilon,
        cell=printed_cell(question),
        copies=count_asked_copies(selected),
        chance=best_constant(question.data, subset, selected),
    )


def count_asked_copies(selected: AskedQuestions) -> CopyCount:
    """Count exact copies among the questions of both parts."""
    questions = [question for part in selected.values() for question in part]
    return count_groups(first_copies(questions), "questions")


def best_constant(data: Dataset, subset: str, selected: AskedQuestions) -> float | None:
    """Return the accuracy of the best constant answer to the held-out questions.

    Only questions in the subset count. If the subset is empty, all questions count.
    """
    distinct = set(first_copies(selected["validation"]))
    questions = [question for question in selected["validation"] if question.id in distinct]
    numeric = [question for question in questions if is_numeric(question)]
    decisive = questions
    if subset == "numeric" and numeric:
        decisive = numeric
    scorer = load_questions(data).scorer
    return commonest_share(match_key(scorer, question.golds[0]) for question in decisive)


def limits(config: Relational) -> dict[str, int]:
    """Return the number of available questions per part, keyed by the field that it limits."""
    if not isinstance(config.question, Answers):
        return {}
    parts = load_parts(config.question, config.seed)
    return {"question.examples": len(parts.train), "question.held_out": len(parts.validation)}


def probes_config(config: Relational) -> Relational:
    """Return the configuration that hands out the same questions to an externally trained system.

    The configuration is returned unchanged if it asks no questions or if the seed assigns questions to parts.
    """
    match config.question:
        case Answers(system=Trained(split="given")) as question:
            return replace(config, question=replace(question, system=Given()))
    return config


def blinding(config: Relational) -> Blinding:
    """Return the blinding of the handed-out questions. Raises ValueError if the configuration hands out none."""
    match config.question:
        case Answers(system=Given() as system) as question:
            return blind_questions(question, system, config.seed)
        case Answers():
            raise ValueError(
                "split: expected given for a system that was trained elsewhere, got drawn. Its training questions are "
                "the data set's own part: leave split out"
            )
        case question:
            raise ValueError(f"question: expected answers to hand out questions, got {question.tag}")


def probes(config: Relational) -> Iterator[tuple[str, ProbeQuestions]]:
    """Yield the questions of both parts, on whole and corrupted contexts, as one blinded set.

    Raises ValueError if the configuration hands out no questions.
    """
    yield handout_questions(blinding(config))


def split(config: Relational) -> Split:
    """Return the key of the handed-out questions."""
    system = given_system(config)
    has_secret = system is not None and bool(system.secret)
    return Split(key_table(blinding(config)), warning="" if has_secret else GUESSABLE)


def draw(config: Relational) -> Draw | None:
    """Return what determines the question order, or None if no questions are handed out."""
    match config.question:
        case Answers(system=Given() as system) as question:
            pool = question.data, question.selection, question.corruption
            return Draw(
                lambda: (pool[0].identity(), *map(repr, pool[1:])),
                config,
                config.seed,
                system.secret,
                system.nonce,
                system.commitment,
            )
    return None


def subject(config: Relational) -> str:
    match config.question:
        case Answers(system=Trained() as system) as question:
            return f"{system.reading.model} on {question.data.name}"
        case Answers() as question:
            return f"answers to {question.data.name}"
    return "the paper's linear model"


def stand_in(config: Relational) -> str:
    match config.question:
        case Answers(system=Trained() as system) as question:
            return stand_in_trained(question.data, system.reading.model.name, "sequence model")
    return ""


AUDIT = Audit(
    config=Relational,
    plan=plan,
    measures=MEASURES,
    presets=PRESETS,
    usual=(
        "question",
        "data",
        "examples",
        "numeric",
        "model",
        "epochs",
        "batch",
        "learning_rate",
        "predictions",
        "privacy.epsilon",
        "seed",
    ),
    tiny=tiny,
    limits=limits,
    verdict=verdict,
    objectives=OBJECTIVES,
    wording=Wording(
        repeats=REPEATS,
        situations=SITUATIONS,
        rules=RULES,
        answers=MEANINGS,
        certificate=certificate,
        symbols=SYMBOLS,
        subject=subject,
        stand_in=stand_in,
        attacks=(Attack.ATTRIBUTE,),
    ),
    handout=Handout(probes, config=probes_config, split=split, draw=draw, secret="question.system.secret"),
    power=power,
)
