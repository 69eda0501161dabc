"""Does a model remember which answer goes with which context?

A model that answers questions about a context x can memorise what the context says of it instead of reading it. Taking
out of every context what the answer is read from (here: its digits) leaves y, with the question; where the model gives
the hidden answer all the same, more often on contexts it was trained on than on held-out ones, it remembers.

    r = share of questions answered rightly from the corrupted context, s = from the whole one
    m = r_train - r_validation,  mem = H(X) m nats
    relational m = m less what answers that are merely common in one part contribute

Reading it. m is 0 where nothing is memorised: what can be guessed, is known anyway or is left in the context is
answered of held-out questions, too. m = 0.2: of 100 hidden answers 20 are given from memory. The four curves by epoch
show when in training it begins.

Source. Bombari et al. 2022, "Towards Differential Relational Privacy and its use in Question Answering": m is eq. 16,
mem eq. 15, the linear model section 5 and appendix B.3.

What is ours. As published, a training question has one gold answer and a held-out one several, of which the best
counts, which lowers m (to -1.8 points on SQuAD); the answer rests on the first gold answer alone on both parts, and m
as published stands beside it. A model that answers every question by what was common in training has a small m without
knowing any relation (marginal memorization): relational m leaves that out. Intervals are over contexts, since questions
of one context are not independent. mem is given only where the entropy H(X) can be estimated. Equations 25 and 26 have
a sign slip: the minimiser of the linear model is e1 + v / |v|^2 with v = [-1, Y^+ X]. Theorems 3.6 to 3.8 bound mem by
a pure epsilon, which DP-SGD does not give.

Cost. Replicates x epochs of fine-tuning, and decoding four sets at each epoch that is asked. `quickstart` takes about
a minute and a half of two cores.
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
    "Warning: which questions are which follows from the run's seed, and an owner who tries seeds can tell them apart: "
    "set secret=$(openssl rand -hex 16) here and in the run, and keep it."
)


def plan(config: Relational) -> Roots:
    """The tables that answer the question of the config, and their `summary`."""
    measures = measures_of(config.question)
    match config.question:
        case Answers() as question:
            about = describe_answers(config, question)
            return roots(measures, config, trainings(question, config.seed), lambda read: Job(summary, about, read))
        case linear:
            return roots(measures, config, linear, lambda read: Job(summary, About(), read))


def describe_answers(config: Relational, question: Answers) -> About:
    """What the summary needs to know of the questions that are asked."""
    privacy = question.system.tuning.guarantee if isinstance(question.system, Trained) else None
    subset = question_subsets(question)[0]
    asked = asked_questions(question, config.seed)
    return About(
        subset,
        epsilon=None if privacy is None else privacy.epsilon,
        cell=printed_cell(question),
        copies=count_asked_copies(asked),
        chance=best_constant(question.data, subset, asked),
    )


def count_asked_copies(asked: AskedQuestions) -> CopyCount:
    """The exact copies among the questions that are asked, of both parts."""
    questions = [question for part in asked.values() for question in part]
    return count_groups(first_copies(questions), "questions")


def best_constant(data: Dataset, subset: str, asked: AskedQuestions) -> float | None:
    """The accuracy of the best constant answer to the held-out questions of this subset; of all if it has none."""
    distinct = set(first_copies(asked["validation"]))
    questions = [question for question in asked["validation"] if question.id in distinct]
    numeric = [question for question in questions if is_numeric(question)]
    chosen = numeric if subset == "numeric" and numeric else questions
    scorer = load_questions(data).scorer
    return commonest_share(match_key(scorer, question.golds[0]) for question in chosen)


def limits(config: Relational) -> dict[str, int]:
    """The number of questions in each part, by the fields that it limits."""
    if not isinstance(config.question, Answers):
        return {}
    parts = load_parts(config.question, config.seed)
    return {"question.examples": len(parts.train), "question.held_out": len(parts.validation)}


def probes_config(config: Relational) -> Relational:
    """The config that hands out the questions which models trained here would be asked, to a system of another owner.

    Unchanged if it asks no questions, or draws by the seed which of them are trained on.
    """
    match config.question:
        case Answers(system=Trained(split="given")) as question:
            return replace(config, question=replace(question, system=Given()))
    return config


def blinding(config: Relational) -> Blinding:
    """How the questions are handed out. Raises ValueError if the config hands none out."""
    match config.question:
        case Answers(system=Given() as system) as question:
            return blind_questions(question, system, config.seed)
        case Answers():
            raise ValueError(
                "split is drawn, which belongs to models that are trained here; an external system was trained on the "
                "data set's own part: leave split out"
            )
        case question:
            raise ValueError(f"question is {question.tag}, which asks no questions; it must be answers")


def probes(config: Relational) -> Iterator[tuple[str, ProbeQuestions]]:
    """The questions of both parts, on whole contexts and on corrupted ones, in one blinded set for any system.

    Raises ValueError if the config hands out no questions.
    """
    yield handout_questions(blinding(config))


def split(config: Relational) -> Split:
    """What each question is that an owner gets."""
    system = given_system(config)
    has_secret = system is not None and bool(system.secret)
    return Split(key_table(blinding(config)), warning="" if has_secret else GUESSABLE)


def draw(config: Relational) -> Draw | None:
    """What the order in which questions are handed out follows from; None if none are handed out."""
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
